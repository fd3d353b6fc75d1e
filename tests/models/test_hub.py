"""Without a network, a hub name fails at once, with the setting and what to set instead."""

import socket

import pytest
from huggingface_hub import constants

from dartree_exp.config import compose
from dartree_exp.errors import UserError
from dartree_exp.models.hub import is_reachable


@pytest.fixture
def no_hub(monkeypatch):
    """The hub's client assumes a network, but its address is closed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", address)
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    def no_request(*args, **kwargs):
        raise AssertionError("the client asked the network")

    monkeypatch.setattr("httpx.Client.send", no_request)
    return address


def test_a_closed_port_is_no_hub_and_an_open_one_is(no_hub, monkeypatch):
    assert not is_reachable()
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert is_reachable()
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert not is_reachable()


def test_names_of_the_hub_fail_without_a_request(no_hub):
    from dartree_exp.drafters.locate import locate
    from dartree_exp.models.registry import load_target
    from dartree_exp.prompts import load_prompts

    config = compose(
        ["model=qwen3_4b", "model.path=some/hub-name", "benchmark=gsm8k", "engine.dtype=fp32"]
    )
    with pytest.raises(
        UserError, match=r"model.path=some/hub-name: no such folder.*set model.path=<folder>"
    ):
        load_target(config.model, config.engine)
    with pytest.raises(UserError, match=r"drafter.path=some/hub-name.*set drafter.path=<folder>"):
        locate("some/hub-name")
    with pytest.raises(
        UserError, match=r"openai/gsm8k is not available.*benchmark.path=<file or folder>"
    ):
        load_prompts(config.benchmark)
