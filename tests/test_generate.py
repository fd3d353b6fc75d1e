"""One answer, streamed: its pieces, its fallback, and a prompt that is too long."""

import pytest

from dartree_exp.config import compose
from dartree_exp.errors import UserError
from dartree_exp.generate import Generator, main

TOY = ["model=toy", "drafter=oracle", "tree.budget=4", "decoding.max_new_tokens=12"]


@pytest.mark.parametrize("drafter", ["oracle", "random"])
def test_the_pieces_are_the_text_and_drafts_are_marked(drafter):
    pieces = []
    generation = Generator(compose([*TOY, f"drafter={drafter}"]))("a question", pieces.append)
    assert "".join(piece.text for piece in pieces) == generation.text
    assert len(generation.ids) <= 12 and generation.fallback is None
    accepted = len(generation.ids) - generation.rounds - 1  # one root, then one bonus per round
    assert abs(sum(piece.drafted for piece in pieces) - accepted) <= 1  # the cap may cut the last


def test_every_method_gives_plain_decodings_answer():
    plain, drafted = (
        Generator(compose([*TOY, setting]))("a question") for setting in ("method=ar", "tree=heap")
    )
    assert plain.ids == drafted.ids and drafted.tau > plain.tau == 1


def test_a_prompt_beyond_the_target_is_one_line(monkeypatch, capsys):
    prompt = "word " * 3000
    with pytest.raises(UserError, match=r"prompt of 3001 ids .* the target has 2048"):
        Generator(compose(TOY))(prompt)
    monkeypatch.setattr("sys.argv", ["generate", prompt, *TOY])
    assert main() == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("generate: prompt of 3001 ids and decoding.max_new_tokens=12 need 3013")
