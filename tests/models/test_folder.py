"""Damage in a target's folder is one line with file and reason, before the weights are read."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_registry import edit_config, load

from dartree_exp.assemble import make_rule
from dartree_exp.config import compose
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.models import chat_template
from dartree_exp.models.weight_files import non_finite

HELLO = [{"role": "user", "content": "hello"}]
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def edit(path, **fields):
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | fields))


@pytest.fixture
def no_weights(monkeypatch):
    """Loading weights fails."""
    from transformers import LlamaForCausalLM

    monkeypatch.setattr(
        LlamaForCausalLM, "from_pretrained", lambda *a, **k: pytest.fail("weights were read")
    )


def refused(folder, message):
    with pytest.raises(UserError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4}},
            r"config\.json: quantization_config \(awq\)",
        ),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            r"\(gptq\): quantised weights are not supported",
        ),
        ({"quantization_config": {"quant_method": "fp8"}}, r"\(fp8\)"),
        ({"quantization_config": {"load_in_4bit": True}}, r"\(load_in_4bit\)"),
        ({"compression_config": {"format": "pack"}}, r"compression_config"),
    ],
)
def test_quantised_folders_are_refused(folder, no_weights, fields, message):
    edit_config(folder, **fields)
    refused(folder, message)


@pytest.mark.parametrize(
    "name", ["quantize_config.json", "quant_config.json", "hf_quant_config.json"]
)
def test_quantised_folders_are_known_by_their_own_files_too(folder, no_weights, name):
    (folder / name).write_text("{}")
    refused(folder, rf"{name}: quantised weights")


def test_a_weight_of_another_dtype_is_refused(folder, no_weights):
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"].to(torch.float8_e4m3fn)
    save_file(weights, folder / "model.safetensors")
    refused(folder, r"model\.safetensors: tensor model\.norm\.weight has dtype F8_E4M3")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": "32"}, "hidden_size = '32': must be an integer"),
        ({"vocab_size": 10**12}, "vocab_size = 1000000000000: must be an integer from 1 to"),
        ({"num_hidden_layers": 4000}, "num_hidden_layers = 4000, but the weights have 3 layers"),
        (
            {"vocab_size": 1 << 24},
            r"vocab_size, hidden_size = \[16777216, 32\], but tensor .*embed_tokens.* is \[64, "
            r"32\]",
        ),
        ({"intermediate_size": 1 << 20}, "intermediate_size, hidden_size"),
        ({"num_attention_heads": 0}, "num_attention_heads = 0: must be"),
        ({"num_key_value_heads": 3}, "must be a multiple of num_key_value_heads = 3"),
        ({"head_dim": -8}, "head_dim = -8"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan: must be a positive number"),
        ({"rope_parameters": [1]}, r"rope parameters = \[1\]: must be an object"),
        ({"rope_parameters": {"rope_theta": "x"}}, "rope_theta = 'x'"),
        ({"layer_types": 5}, "layer_types = 5: must be a list of names"),
        ({"model_type": ["llama"]}, r"model_type = \['llama'\]: must be a name"),
    ],
)
def test_absurd_sizes_are_refused_by_key_and_value(folder, no_weights, fields, message):
    edit_config(folder, **fields)
    refused(folder, rf"config\.json: .*{message}")


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "null", "\x00", '{"eos_token_id": "x"}', '{"eos_token_id": [1, 64]}', POINTER],
)
def test_a_damaged_generation_config_is_refused(folder, no_weights, content):
    (folder / "generation_config.json").write_text(content)
    refused(folder, r"generation_config\.json")


def test_without_end_ids_in_the_generation_config_the_models_own_count(folder):
    (folder / "generation_config.json").write_text("{}")
    assert load(folder).eos_ids == (1, 2)
    (folder / "generation_config.json").unlink()
    assert load(folder).eos_ids == (1, 2)


def test_end_ids_of_tokenizer_and_generation_config_are_merged_with_one_note(folder, capsys):
    load(folder)
    assert capsys.readouterr().err == ""  # the tokenizer's <end> is among the generation config's
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    assert load(folder).eos_ids == (2, 1)
    [line] = capsys.readouterr().err.splitlines()
    assert (
        "the end token is '<end>' in the tokenizer and 'user' in the generation config; both end an"
        in line
    )


@pytest.mark.parametrize(
    "name",
    ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"],
)
@pytest.mark.parametrize("content", ["{", "[]", POINTER, "\xff"])
def test_damaged_tokenizer_files_are_named(folder, no_weights, name, content):
    (folder / name).write_bytes(content.encode("latin-1"))
    refused(folder, rf"{name} is (a Git LFS pointer.*git lfs pull|not)")


@pytest.mark.parametrize(
    "fields", [{"model": None}, {"added_tokens": 5}, {"model": {"type": "BPE"}}]
)
def test_tokenizers_that_the_library_refuses(folder, no_weights, fields):
    edit(folder / "tokenizer.json", **fields)
    refused(folder, "the tokenizer files of .* cannot be used: ")


def test_a_tokenizer_that_cannot_read_the_prompt(folder, no_weights):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    edit(folder / "tokenizer.json", model=tokenizer["model"] | {"unk_token": ""})
    refused(folder, r"the tokenizer cannot read the rendered prompt: .*Missing \[UNK\]")


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "generation_config.json", "chat_template.jinja"]
)
def test_git_lfs_pointers_say_what_to_do(folder, no_weights, name):
    (folder / name).write_text(POINTER)
    refused(folder, rf"{name} is a Git LFS pointer, not the file itself; run `git lfs pull`")


TEMPLATES = {
    "{{ raise_exception('roles must alternate') }}": "the chat template fails: roles must "
    "alternate",
    "{{ messages[9].content }}": "the chat template fails: list object has no element 9",
    "{% for": "the chat template fails: unexpected 'end of template'",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "the chat template fails: maximum recursion "
    "depth",
    "{% for i in range(10**12) %}x{% endfor %}": "power operator",
    "{{ 'a' * 10000000000 }}": "the chat template has the number 10000000000",
    "{{ messages | tojson(indent=99999999999) }}": "has the number",
    "{% for i in range(1000000) %}x{% endfor %}": "has the number 1000000",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "does not "
    "end: stopped after",
    "{% if true %}{% endif %}": "the chat template renders no token",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_that_fail_or_never_end_are_refused(folder, no_weights, template):
    (folder / "chat_template.jinja").write_text(template)
    refused(folder, TEMPLATES[template])


def test_a_step_that_is_slow_itself_is_stopped_by_time(folder, no_weights, monkeypatch):
    monkeypatch.setattr(chat_template, "MAX_SECONDS", 0.1)
    loop = "{% for i in range(9999) %}{{ range(99999) | list | length }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(loop)
    refused(folder, r"the chat template does not end: stopped after 0\.1 s")


def test_a_template_id_without_an_embedding_row_is_named(folder, no_weights):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {f"w{i}": 5 + i for i in range(60)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }} w59{% endfor %}"
    )
    refused(
        folder, "the chat template gives 'w59', id 64, but the target has only 64 embedding rows"
    )


def test_an_end_token_without_an_embedding_row_is_named(folder, no_weights):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {f"w{i}": 5 + i for i in range(60)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    edit(folder / "tokenizer_config.json", eos_token="<|im_end|>")
    refused(
        folder, r"eos_token '<\|im_end\|>' has id 65, but the target has only 64 embedding rows"
    )


@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (float("-inf"), "infinity")])
def test_weights_that_are_not_finite_are_named(folder, value, word):
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.2.mlp.down_proj.weight"][3, 5] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    refused(folder, rf"tensor model\.layers\.2\.mlp\.down_proj\.weight holds {word}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
def test_non_finite_numbers_are_found_anywhere(dtype):
    assert non_finite(torch.full((3, 1001), torch.finfo(dtype).max, dtype=dtype)) is None
    for value, word in ((torch.nan, "NaN"), (torch.inf, "infinity"), (-torch.inf, "infinity")):
        for place in (0, 1000, 3002):
            tensor = torch.zeros(3, 1001, dtype=dtype)
            tensor.view(-1)[place] = value
            assert non_finite(tensor) == word


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{", r"index\.json is not JSON"),
        ("{}", "weight_map must name the file of every tensor"),
        ('{"weight_map": {"a": 5}}', "weight_map must name the file"),
        (
            '{"weight_map": {"a": "../x.safetensors"}}',
            r"weight_map names '\.\./x\.safetensors': must be",
        ),
        ('{"weight_map": {"a": "b.safetensors"}}', r"names b\.safetensors, which does not exist"),
    ],
)
def test_damaged_indices_are_refused(folder, no_weights, index, message):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    refused(folder, message)


def rule(folder, *overrides):
    return make_rule(compose(["model=toy", "drafter=random", *overrides]).decoding, load(folder))


def test_a_stop_string_that_is_a_special_token_is_its_id(folder):
    made = rule(folder, "decoding.stop_strings=['<end>',x]", "decoding.stop_ids=[7]")
    assert made.stop_ids == {1, 7} and made.stop_strings == ("x",)


def test_stops_that_could_never_end_an_answer_are_refused(folder):
    with pytest.raises(
        ConfigError, match=r"stop_strings: 'x<end>' contains the special token '<end>'"
    ):
        rule(folder, "decoding.stop_strings=['x<end>']")
    with pytest.raises(
        ConfigError, match=r"decoding\.stop_ids: 64 is not an id of mine; allowed: 0\.\.63"
    ):
        rule(folder, "decoding.stop_ids=[64]")


def test_a_prompt_that_no_tokenizer_can_read(folder):
    with pytest.raises(UserError, match="half a surrogate pair"):
        load(folder).tokenizer.encode_chat([{"role": "user", "content": "\ud800"}])
