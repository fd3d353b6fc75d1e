"""What a message repeats of the user's own text never reaches the terminal as control
characters.
"""

from dartree_exp.errors import ConfigError


def test_a_message_is_one_line_an_argument_and_shows_control_characters():
    error = ConfigError("a\nb\x1b[31m=\x9b", "second\tline")
    assert str(error) == "a\\nb\\x1b[31m=\\x9b\nsecond\\tline"
