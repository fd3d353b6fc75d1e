"""Every setting: type, range and one line of meaning. Defaults are in `conf/`, never here.

Every field is mandatory: a YAML file of `conf/` or the command line gives the value. `validate.py`
checks the ranges declared here and the combinations that no single range can express.
"""

from __future__ import annotations

from dataclasses import dataclass

from dartree_exp.config.knob import knob
from dartree_exp.config.method_schema import (
    MOST_SEED,
    BudgetConfig,
    DrafterConfig,
    TreeConfig,
    VerifyConfig,
)
from dartree_exp.engines.spec import ENGINES

OBJECTIVES = (
    "tau_macro",
    "tau_micro",
    "emitted_per_round",
    "speedup",
    "speedup_macro",
    "tokens_per_second",
)
MOST_THREADS = 1024


@dataclass(kw_only=True)
class ModelConfig:
    """The target p, whose output must be preserved."""

    name: str = knob("target in records and tables; the embedded targets are fetched by this name")
    path: str | None = knob(
        "local Llama- or Qwen3-family folder, or a hub name; null: the embedded or toy target"
    )
    family: str | None = knob("architecture of the toy target", allowed=("llama", "qwen3"))
    seed: int = knob("seed of the toy target's weights", low=0, high=MOST_SEED)
    drafters: dict[str, str | None] = knob("this target's drafter checkpoints, by drafter name")


@dataclass(kw_only=True)
class BenchmarkConfig:
    """Prompts, their order and their version."""

    name: str = knob("prompt set in records and tables")
    version: str = knob(
        "version of prompts, template and stop rules; a change makes results incomparable"
    )
    path: str | None = knob(
        "local file, or folder with one of `files` or a subfolder named like the set; no hub name"
    )
    dataset: str | None = knob("data set on the hub; null: shipped with the package")
    subset: str | None = knob("configuration of the hub's data set")
    split: str | None = knob("split of the hub's data set")
    files: list[str] = knob("file names to look for if `path` is a folder")
    template: str = knob(
        "text of a turn; $field: a field of the row, $$: a dollar sign; rows with `turns` are used "
        "unchanged",
        escapes=True,
    )
    optional: str = knob(
        "appended to the template if the row has its fields and they are not empty", escapes=True
    )
    count: int | None = knob(
        "number of prompts in the set; larger data is shuffled by `seed` and cut; null: all", low=1
    )
    limit: int | None = knob(
        "number of them to decode, spread over categories and drawn by `seed`; null: all", low=1
    )
    seed: int = knob("seed of the shuffle that picks a subset", low=0, high=MOST_SEED)
    categories: list[str] = knob("use only these categories; []: all")
    max_new_tokens: int = knob(
        "the set's usual cap per answer; decoding.max_new_tokens follows it unless set", low=1
    )
    study_max_new_tokens: int = knob("the same in the studies of conf/experiment", low=1)


@dataclass(kw_only=True)
class DecodingConfig:
    """How the target samples and when an answer ends. The same for every method."""

    temperature: float = knob("0: greedy", low=0.0)
    top_k: int = knob("keep the k most likely tokens; 0: all", low=0)
    top_p: float = knob(
        "keep the smallest set of tokens with this mass; 1: all", above=0.0, high=1.0
    )
    seed: int = knob("seed of sampling at temperature > 0", low=0, high=MOST_SEED)
    max_new_tokens: int = knob("cap per answer", low=1)
    stop_ids: list[int] = knob("token ids that end an answer, besides the target's own", low=0)
    stop_strings: list[str] = knob("strings that end an answer", escapes=True)
    enable_thinking: bool = knob("passed to the chat template")


@dataclass(kw_only=True)
class EngineConfig:
    """Where and how tensors are computed."""

    name: str | None = knob(
        "how rows become logits; null: packed on a CPU if it computes the model, else eager",
        allowed=ENGINES,
    )
    device: str = knob("auto: a GPU if there is one", allowed=("auto", "cpu", "cuda"))
    dtype: str = knob(
        "auto: bf16 on a GPU or a CPU with AMX or AVX512-BF16, else fp32",
        allowed=("auto", "bf16", "fp32", "fp64"),
    )
    threads: int | None = knob(
        "CPU threads; null: one or all, whichever is faster in the run's warm-up",
        low=1,
        high=MOST_THREADS,
    )
    attention: str = knob(
        "auto: row_invariant for bf16 on a CPU (library if the self-test in the warm-up fails), "
        "else library; row_invariant gives a tree row the same bits as a plain step",
        allowed=("auto", "row_invariant", "library"),
    )
    profile: bool = knob("synchronise the device after every stage (exact stages, slower total)")


@dataclass(kw_only=True)
class TrackerConfig:
    """A mirror of the records, which are always written."""

    name: str = knob("where results are mirrored", allowed=("none", "wandb", "tensorboard"))
    project: str = knob("project of the tracker")
    entity: str | None = knob("team or user of the tracker; null: its default")
    mode: str = knob(
        "offline: written locally, to be synchronised by hand",
        allowed=("offline", "online", "disabled"),
    )


@dataclass(kw_only=True)
class RecordConfig:
    """What is recorded beyond samples and rounds."""

    trees: int | str = knob(
        "number of first prompts whose draft trees are recorded for the viewer",
        allowed=("all",),
        low=0,
    )


@dataclass(kw_only=True)
class SweepConfig:
    """The sweep's folder, and how its points are checked, run and compared."""

    name: str | None = knob(
        "folder under `output`; the same name resumes it; null: time and id, `runs` without -m"
    )
    on_error: str = knob(
        "after a failed point: continue with the others, or stop", allowed=("continue", "stop")
    )
    check: bool = knob(
        "refuse the whole sweep if any point's settings are invalid; false: run the others"
    )
    objective: str = knob(
        "number in a run's summary that a search (hydra/sweeper=search) optimises",
        allowed=OBJECTIVES,
    )


@dataclass(kw_only=True)
class Config:
    """One run: decode the prompts with plain decoding and one method, interleaved by prompt."""

    model: ModelConfig
    drafter: DrafterConfig
    tree: TreeConfig
    budget: BudgetConfig
    verify: VerifyConfig
    benchmark: BenchmarkConfig
    decoding: DecodingConfig
    engine: EngineConfig
    tracker: TrackerConfig
    record: RecordConfig
    sweep: SweepConfig
    parts: list[str] = knob(
        "Python modules that declare your own trees, heads, drafters, budgets, verifiers, engines"
    )
    method: str | None = knob(
        "name of the method in tables; ar: plain decoding only; null: named after its parts"
    )
    protocol: str = knob(
        "paper: the published clock, which leaves out the first draft", allowed=("default", "paper")
    )
    baseline: str = knob(
        "plain decoding: paired (prompt by prompt in every run) or shared (timed once per prompt "
        "in a sweep)",
        allowed=("paired", "shared"),
    )
    proof: str = knob(
        "fp32: also decode the first prompts in float32, where the ids must equal plain decoding's",
        allowed=("none", "fp32"),
    )
    proof_prompts: int = knob("number of prompts that proof=fp32 decodes (first turns)", low=1)
    repeats: int = knob("passes over the prompts, for timing (all give the same ids)", low=1)
    force: bool = knob("run again even if done already")
    output: str = knob("root folder of runs")
