"""SIGTERM ends the run after the current prompt; a second one, like Ctrl-C, ends it immediately."""

import os
import signal
import threading

import pytest

from dartree_exp.console.terminate import Terminated, deferred
from dartree_exp.records.reader import Run
from dartree_exp.runs import turns
from test_run import start


def signalled(monkeypatch, *signals, prompt=1):
    """Send these signals to a run while it decodes a prompt; returns the prompts whose decoding
    began.
    """
    right, begun = turns.decode_turn, []

    def decode(*args):
        begun.append(args[1].id)
        if len(begun) == prompt:
            for number in signals:
                os.kill(os.getpid(), number)
        return right(*args)

    monkeypatch.setattr(turns, "decode_turn", decode)
    return begun


def folder_in(path):
    (folder,) = (entry for entry in path.iterdir() if entry.is_dir())
    return Run(folder)


def test_the_current_prompt_is_kept_and_the_rerun_resumes(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    begun = signalled(monkeypatch, signal.SIGTERM, prompt=2)
    with pytest.raises(Terminated):
        start(tmp_path)
    assert signal.getsignal(signal.SIGTERM) == before
    left = folder_in(tmp_path)
    assert left.state == "INTERRUPTED" and [s.id for s in left.samples] == begun and len(begun) == 2
    done = start(tmp_path)
    assert (
        done.state == "DONE"
        and done.samples[:2] == left.samples
        and len(begun) == len(done.samples) == 3
    )


@pytest.mark.parametrize(
    ("signals", "error"),
    [((signal.SIGTERM, signal.SIGTERM), Terminated), ((signal.SIGINT,), KeyboardInterrupt)],
)
def test_a_second_signal_or_an_interrupt_ends_at_once(tmp_path, monkeypatch, signals, error):
    signalled(monkeypatch, *signals)
    with pytest.raises(error):
        start(tmp_path)
    assert folder_in(tmp_path).state == "INTERRUPTED" and not folder_in(tmp_path).samples


def test_a_handler_of_somebody_else_stays(monkeypatch):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
    try:
        with deferred() as check:
            os.kill(os.getpid(), signal.SIGTERM)
            check()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [1]


def test_outside_the_main_thread_nothing_is_installed():
    done = []

    def work():
        with deferred() as check:
            check()
            done.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.getsignal(signal.SIGTERM)]
