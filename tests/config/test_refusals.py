"""Every mistake is one line with key, value, what is allowed and the closest valid name."""

import copy
import json
from pathlib import Path

import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_module
from omegaconf import DictConfig, OmegaConf

from dartree_exp.config import compose
from dartree_exp.config.composition import CONFIG_MODULE, CONFIG_NAME, VERSION_BASE
from dartree_exp.config.load import load_config
from dartree_exp.drafters.dflash.config import DFlashConfig
from dartree_exp.errors import ConfigError
from dartree_exp.inputs.checks import check_files

WEIGHTS = Path(__file__).parents[2] / "src" / "dartree_exp" / "drafters" / "weights"
UNKNOWN = [
    ("tree.bugdet=16", ["tree.bugdet=16", "no such key", "did you mean tree.budget?"]),
    ("+tree.bugdet=16", ["tree.bugdet=16", "no such key", "did you mean tree.budget?"]),
    ("width=8", ["width=8", "did you mean tree.width?"]),
    ("+frobnicate=1", ["frobnicate=1", "no such key"]),
    (
        "tree=prund",
        ["tree=prund", "chain, fixed, frontier, heap, pool, pruned", "did you mean pruned?"],
    ),
    ("drafter=dspak", ["drafter=dspak", "domino", "oracle"]),
    (
        "budget=16",
        [
            "budget=16",
            "allowed: auto, caddtree, ",
            "did you mean tree.budget=16?",
        ],
    ),
    ("tree=5", ["tree=5", "allowed: chain"]),
    ("tree=null", ["tree=null", "allowed: chain"]),
    ("tree=[[1]]", ["tree=[[1]]", "allowed: chain"]),
    (f"tree={'x' * 300}", ["tree=xxx", "allowed: chain"]),  # longer than a file's name may be
    ("+method=dartre_pruned", ["method=dartre_pruned", "did you mean dartree_pruned?"]),
    ("~tree.width", ["tree.width", "no value"]),
]
TYPES = [
    ("tree.budget=abc", ["tree.budget=abc", "an integer >= 0"]),
    ("tree.budget=16.5", ["tree.budget=16.5", "an integer >= 0"]),
    ("tree.budget=1e9", ["tree.budget=1000000000.0", "an integer >= 0"]),
    ("tree.budget=null", ["tree.budget=", "an integer >= 0"]),
    ("tree.budget=true", ["tree.budget=", "an integer >= 0"]),
    ("force=maybe", ["force=maybe", "true or false"]),
    ("tree.width={a: 1}", ["tree.width=", "an integer >= 1"]),
    ("tree.candidates=12.5", ["tree.candidates=12.5", "an integer >= 1, or all"]),
    ("decoding.stop_ids=[a]", ["decoding.stop_ids", "a list of integers >= 0"]),
]
RANGES = [
    ("tree.budget=-1", ["tree.budget=-1", "an integer >= 0"]),
    ("tree.beta=0.1", ["tree.beta=0.1", "a number <= 0"]),
    ("tree.beta=nan", ["tree.beta=nan", "a number <= 0"]),
    ("tree.beta=-inf", ["tree.beta=-inf", "a number <= 0"]),
    ("tree.width=0", ["tree.width=0", "an integer >= 1"]),
    ("tree.candidates=0", ["tree.candidates=0", "an integer >= 1, or all"]),
    ("tree.candidates=al", ["tree.candidates=al", "did you mean all?"]),
    ("tree.children=0", ["tree.children=0", "an integer >= 1, or null"]),
    ("tree.budget=1000000000", ["tree.budget=1000000000", "an integer >= 0 and <= 16384"]),
    ("tree.width=1000000000", ["tree.width=1000000000", "<= 16384"]),
    ("engine.threads=100000", ["engine.threads=100000", "<= 1024, or null"]),
    ("decoding.seed=9223372036854775808", ["decoding.seed", "<= 9223372036854775807"]),
    ("model.seed=9223372036854775808", ["model.seed", "<= 9223372036854775807"]),
    ("drafter.num_drafts=100000", ["drafter.num_drafts=100000", "<= 1024, or null"]),
    ("record.trees=-1", ["record.trees=-1", "an integer >= 0, or all"]),
    ("record.trees=al", ["record.trees=al", "did you mean all?"]),
    ("tree.depth=0", ["tree.depth=0", "an integer >= 1, or null"]),
    (
        "tree.scoring=conditonal",
        ["tree.scoring=conditonal", "marginal, static", "did you mean conditional?"],
    ),
    ("decoding.temperature=-1", ["decoding.temperature=-1.0", "a number >= 0"]),
    ("decoding.top_p=0", ["decoding.top_p=0.0", "a number > 0 and <= 1"]),
    ("decoding.max_new_tokens=0", ["decoding.max_new_tokens=0", "an integer >= 1"]),
    ("decoding.stop_ids=[-1]", ["decoding.stop_ids=[-1]", "a list of integers >= 0"]),
    ("engine.dtype=fp16", ["engine.dtype=fp16", "auto, bf16, fp32, fp64"]),
    ("engine.threads=0", ["engine.threads=0", "an integer >= 1 and <= 1024, or null"]),
    ("budget.threshold=1.5", ["budget.threshold=1.5", "a number >= 0 and <= 1"]),
    ("benchmark.limit=0", ["benchmark.limit=0", "an integer >= 1, or null"]),
    ("protocol=papr", ["protocol=papr", "default, paper", "did you mean paper?"]),
]
COMBINATIONS = [
    ("tree.draft_sampling=release", ["tree.draft_sampling=release", "tree=pruned", "argmax"]),
    (
        "method=dflash tree.draft_sampling=release",
        ["tree.draft_sampling=release", "tree.scoring=marginal", "argmax"],
    ),
    (
        "method=dspark tree.draft_sampling=release",
        ["tree.draft_sampling=release", "drafter.head=markov", "argmax"],
    ),
    (
        "method=chain_ddtree tree.normalise=vocab_on_prefix",
        ["tree.normalise=vocab_on_prefix", "candidates, vocab"],
    ),
    ("drafter=dflash tree.scoring=conditional", ["tree.scoring=conditional", "dflash", "marginal"]),
    ("tree.scoring=lattice", ["tree.scoring=lattice", "head=gru", "dspark, dspark_gated"]),
    (
        "drafter=dspark tree.scoring=lattice tree.candidates=all",
        ["tree.candidates=all", "lattice", "a number"],
    ),
    ("tree.scoring=mixture", ["tree.scoring=mixture", "head=gru", "drafter=dblast"]),
    (
        "drafter=dblast tree.scoring=conditional",
        ["tree.scoring=conditional", "head=latent", "tree.scoring=mixture"],
    ),
    (
        "method=speculative_sampling tree.coupled=true",
        ["tree.coupled=true", "verify=rejection", "verify=exact"],
    ),
    ("tree=sampled tree.coupled=true", ["tree.coupled=true", "tree=sampled", "tree=heap"]),
    (
        "method=domino tree.draft_sampling=release tree.coupled=true",
        ["tree.coupled=true", "tree.draft_sampling=release"],
    ),
    (
        "method=adaflash tree.coupled=true",
        ["tree.coupled=true", "budget=length_head", "budget=fixed"],
    ),
    ("tree.latent=drawn", ["tree.latent=drawn", "summed, greedy, sampled"]),
    ("tree.scoring=own", ["tree.scoring=own", "family=dflash", "marginal, static, conditional"]),
    ("drafter=dflash tree.scoring=static", ["tree.scoring=static", "dflash", "marginal"]),
    ("method=dartree_pruned drafter=dflash", ["tree.scoring=conditional", "dflash"]),
    (
        "model=qwen3_4b drafter=dspark_rnn",
        ["drafter=dspark_rnn", "model=qwen3_4b", "drafter.path=<folder>"],
    ),
    ("drafter.path=toy://", ["drafter.path=toy://", "only for model=toy"]),
    ("model=toy model.family=null drafter=oracle", ["model.family=null", "llama, qwen3"]),
    ("model.family=qwen3", ["model.family=qwen3", "model=toy"]),
    ("model=toy model.path=/x drafter=oracle", ["model.path=/x", "model=toy"]),
    ("model=toy drafter=oracle drafter.path=/x", ["drafter.path=/x", "scripted"]),
    ("model=toy drafter=oracle drafter.num_drafts=null", ["drafter.num_drafts=null", "scripted"]),
    ("drafter.num_drafts=4", ["drafter.num_drafts=4", "tree.depth"]),
    (
        "budget=confidence",
        ["budget=confidence", "domino", "gru", "no confidence head", "dspark_rnn"],
    ),
    (
        "drafter=dspark drafter.head=none budget=confidence",
        ["budget=confidence", "no confidence head"],
    ),
    (
        "verify=rejection tree.budget=16",
        ["verify=rejection", "tree=pruned", "use tree=sampled, or verify=exact"],
    ),
    (
        "verify=rejection tree=sampled",
        ["budget=cost_aware", "verify=rejection", "tree.budget to a number", "budget=fixed"],
    ),
    (
        "method=speculative_sampling decoding=sample proof=fp32",
        ["proof=fp32", "verify=rejection", "decoding.temperature=1.0", "by design", "proof=none"],
    ),
    (
        "method=speculative_sampling decoding=sample tree.children=2 tree.draft_temperature=0",
        ["tree.draft_temperature=0", "tree.children=2", "use tree.children=1"],
    ),
    ("budget=fixed", ["tree.budget=auto", "budget=fixed", "a number", "cost_aware, caddtree"]),
    ("budget=libraspec", ["budget=libraspec", "tree=pruned", "allowed: tree=chain"]),
    ("budget.costs=[[1,2,3]]", ["budget.costs=[[1, 2, 3]]", "pairs [rows, milliseconds]"]),
    ("budget.costs=[[1,5],[1,6]]", ["budget.costs", "ascending integers >= 1"]),
    ("budget.costs=[[0,5]]", ["budget.costs", "ascending integers >= 1"]),
    ("budget.costs=[[1.5,5]]", ["budget.costs", "ascending integers >= 1"]),
    ("budget.costs=[[1,0]]", ["budget.costs", "milliseconds > 0"]),
    ("budget.costs=[[1,nan]]", ["budget.costs", "milliseconds > 0"]),
    ("budget.costs=[1,2]", ["budget.costs", "pairs [rows, milliseconds]"]),
    ("sweep.name=../elsewhere", ["sweep.name=../elsewhere", "plain folder name"]),
    ("output=''", ["output", "must name a folder"]),
    ("decoding.stop_strings=['']", ["decoding.stop_strings", "empty"]),
]
UNREADABLE = [
    ("tree.width=${oc.env:NOPE}", ["tree.width", "NOPE"]),
    ("tree.width=${nosuch:1}", ["tree.width", "nosuch"]),
    ("tree.width=${tree.width}", ["tree.width", "Recursive"]),
    ("decoding.stop_strings=['${nowhere}']", ["decoding.stop_strings", "nowhere"]),
    ("tree=glob(nosuch*)", ["tree=glob(nosuch*)", "matches none of chain, fixed"]),
    ("tree.width=glob(*)", ["tree.width=glob(*)", "works for groups only"]),
    ("tree=glob(p*)", ["tree=pool,pruned", "add -m"]),
    ("tree.width=${nowhere}", ["tree.width", "nowhere"]),
    ("tree.budget", ["tree.budget", "write key=value"]),
    ("-0.2", ["-0.2", "write key=value"]),
    ("tree.width=8,12", ["tree.width=8,12", "add -m"]),
    ("decoding.stop_strings=[", ["decoding.stop_strings=[", "quote"]),
]


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    """The default settings as composed by Hydra, once for all tests that change only a value."""
    with initialize_config_module(CONFIG_MODULE, version_base=VERSION_BASE):
        return hydra_compose(CONFIG_NAME)


def refusal(caught: pytest.ExceptionInfo[ConfigError], said: list[str]) -> None:
    message = str(caught.value)
    assert "\n" not in message
    for words in said:
        assert words in message


@pytest.mark.parametrize(("line", "said"), UNKNOWN + COMBINATIONS + UNREADABLE)
def test_a_mistake_is_one_line(line: str, said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(line.split(" "))
    refusal(caught, said)


@pytest.mark.parametrize(("line", "said"), TYPES + RANGES)
def test_a_bad_value_is_one_line(composed: DictConfig, line: str, said: list[str]) -> None:
    raw = copy.deepcopy(composed)
    key, _, value = line.partition("=")
    OmegaConf.update(
        raw, key, OmegaConf.create(f"value: {value}").value
    )  # read as YAML, as Hydra reads plain values
    with pytest.raises(ConfigError) as caught:
        load_config(raw)
    refusal(caught, said)


@pytest.mark.parametrize(
    "overrides",
    [
        ["tree.budget=0"],
        ["tree.beta=0"],
        ["tree.candidates=all"],
        ["decoding.top_p=0.5", "decoding.temperature=1"],
        ["method=ar", "drafter=dflash", "tree.scoring=conditional"],
        ["decoding.stop_strings=['a, b']"],
        ["model=toy", "drafter=domino", "drafter.path=/somewhere"],
    ],
)
def test_the_edge_of_what_is_allowed_is_allowed(overrides: list[str]) -> None:
    compose(overrides)


def test_paths_that_name_nothing_are_refused(tmp_path: Path) -> None:
    check_files(compose(["model=qwen3_4b", f"model.path={tmp_path}", f"benchmark.path={tmp_path}"]))
    check_files(compose(["model=qwen3_4b"]))  # hub names, left to the loaders
    for override in (
        "model.path=/no/where",
        "benchmark.path=org/name",
        "drafter.path=./nothing",
        "drafter.path=pkg://dartree_exp.drafters/nothing",
    ):
        with pytest.raises(ConfigError, match=override.partition("=")[2]):
            check_files(compose(["model=qwen3_4b", override]))


def test_a_local_checkpoint_without_a_head_is_refused_before_it_loads(tmp_path: Path) -> None:
    headless = DFlashConfig(
        **dict.fromkeys(("hidden_size", "intermediate_size", "head_dim"), 8),
        **dict.fromkeys(("num_hidden_layers", "num_attention_heads", "num_key_value_heads"), 1),
        **{"vocab_size": 16, "block_size": 4, "mask_token_id": 3, "num_target_layers": 4},
        target_layer_ids=(1,),
        shift_label=False,
    )
    (tmp_path / "config.json").write_text(json.dumps(headless.to_json()))
    here = ["model=toy", f"drafter.path={tmp_path}"]
    check_files(compose([*here, "drafter=dflash"]))
    with pytest.raises(
        ConfigError, match=r"drafter\.head=gru: the checkpoint .* has no correction head"
    ):
        check_files(compose([*here, "drafter=domino"]))


def test_a_local_checkpoint_with_another_head_is_refused_before_it_loads(tmp_path: Path) -> None:
    raw = json.loads((WEIGHTS / "smollm2_135m" / "config.json").read_text())
    (tmp_path / "domino").mkdir()
    (tmp_path / "domino" / "config.json").write_text(json.dumps(raw))
    with pytest.raises(
        ConfigError, match=r"drafter\.head=markov: the checkpoint .* has a gru head"
    ):
        check_files(compose(["drafter=dspark", f"drafter.path={tmp_path / 'domino'}"]))
    head = {"markov_rank": 4, "markov_head_type": "gated", "enable_confidence_head": False}
    reference = {"backbone": {"folder": "domino", "sha256": "0" * 64}}
    (tmp_path / "gated").mkdir()
    (tmp_path / "gated" / "config.json").write_text(json.dumps(head | reference))
    here = ["drafter=dspark_gated", f"drafter.path={tmp_path / 'gated'}"]
    check_files(compose(here))
    with pytest.raises(
        ConfigError, match=r"budget=confidence: the checkpoint .* has no confidence head"
    ):
        check_files(compose([*here, "budget=confidence", "tree.budget=8"]))
