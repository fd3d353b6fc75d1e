"""The rebuilt tokenizer against the ids of the reference tokenizer."""

import pytest

from dartree_exp.models.fetch import FetchError, ensure
from dartree_exp.models.tokenizer import build_tokenizer
from golden_support import MODEL, golden_cases

NAME = "smollm2_135m"

pytestmark = pytest.mark.real_model


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(ensure(NAME))
    except FetchError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=golden_cases(MODEL, lambda case: case.name == NAME))
def golden(request):
    return request.param.spec


def test_ids(tokenizer, golden):
    for case in golden["tokenizer"]:
        assert tokenizer(case["text"], add_special_tokens=False)["input_ids"] == case["ids"], case[
            "text"
        ]
        assert tokenizer.decode(case["ids"]) == case["text"]


def test_chat_template(tokenizer, golden):
    for case in golden["greedy"]:
        turns = [{"role": "user", "content": case["prompt"]}]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=True)[
            "input_ids"
        ]
        assert list(ids) == case["prompt_ids"]


def test_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"\('llama', 'default'\) is not supported"):
        build_tokenizer({"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"})
