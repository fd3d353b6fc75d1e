"""Whole decodes of the reference implementations, round by round (golden family
`end_to_end`, fp32).
"""

import pytest
import torch

from dartree_exp.assemble import make_method
from dartree_exp.config import compose
from dartree_exp.decode import autoregress, speculate
from dartree_exp.drafters.dflash.checkpoint import load_drafter
from dartree_exp.engines.target import Target
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.registry import check_folder, load_weights
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule
from golden_support import GoldenCase, carried, golden_cases

HEADLESS = ("dflash", "ddtree")


def overrides(run: dict) -> list[str]:
    """The configuration of a reference run."""
    name = run["method"]
    budget = f"tree.budget={run.get('tree_budget', 64)}"
    if name.startswith("dominotree"):
        arm = name.removeprefix("dominotree_")
        normalise = "vocab" if arm == "marginal" else "vocab_on_prefix"
        knobs = [
            f"tree.scoring={arm}",
            f"tree.normalise={normalise}",
            f"tree.children={run['node_topk']}",
        ]
        return ["method=dominotree", budget, *knobs, f"tree.candidates={run['corr_topm']}"]
    if name.startswith("dartree"):
        knobs = [
            f"tree.candidates={run['candidate_vocab_size']}",
            f"tree.children={run['expansion_k']}",
        ]
        knobs += [f"tree.width={run['supertree_width']}"] if name == "dartree_pruned" else []
        return [f"method={name}", budget, *knobs]
    if name == "dspark":
        return [
            "method=dspark",
            budget,
            "budget=confidence",
            f"budget.threshold={run['confidence_threshold']}",
        ]
    return [f"method={'domino' if name == 'domino_chain' else name}", budget]


def load_target(folder) -> Target:
    """Targets of the golden vectors have no tokenizer."""
    model = load_weights(folder, check_folder(folder)[0], torch.float32)
    return Target(model, name=folder.name, tokenizer=None, eos_ids=(), weights_sha256=lambda: "")


def decode(target, folder, run: dict, prompt: list[int]):
    rule = StopRule(run["max_new_tokens"], stop_ids=frozenset(run["stop_token_ids"] or ()))
    if run["method"] == "ar":
        return autoregress(target, prompt, Sampler(), rule, StageClock())
    config = compose(overrides(run))
    drafter = load_drafter(folder, target, use_head=run["method"] not in HEADLESS)
    method = make_method(config.tree, config.budget, drafter)
    return speculate(target, method, prompt, Sampler(), rule, StageClock())


def check_round(ours, theirs: dict) -> None:
    assert ours.start == theirs["start"]
    if "draft_tokens" in theirs:
        drafts, nodes = theirs["draft_tokens"], ours.tree.num_nodes
        assert nodes == theirs.get("proposal_length", nodes)
        assert ours.tree.tokens[1:].tolist() == drafts[len(drafts) - nodes :]
        return
    assert ours.tree.tokens[1:].tolist() == theirs["tokens"]
    assert ours.tree.parents.tolist() == theirs["parents"]
    assert ours.tree.depths[1:].tolist() == theirs["depths"]
    assert ours.accepted == theirs["accepted_indices"]
    assert ours.bonus == theirs["bonus"]


@pytest.mark.parametrize("case", golden_cases("end_to_end"))
def test_reference_runs(case: GoldenCase):
    golden, folders = case.spec, case.folders
    target = load_target(folders["target"])
    checked = 0
    for run in golden["runs"]:
        decoded = decode(
            target,
            folders["draft"],
            run,
            golden["prompts"][run["prompt_index"]],
        )
        assert decoded.ids == run["new_ids"], run["method"]
        if run["method"] == "ar":
            continue
        advanced = [r.tokens_advanced for r in decoded.rounds]
        expected = run["acceptance_lengths"]
        # The references' loops look at the root's position, so they may run one more round after
        # the cap is reached.
        assert expected[: len(advanced)] == advanced, run["method"]
        assert len(expected) - len(advanced) <= (1 + sum(advanced) >= run["max_new_tokens"])
        for ours, theirs in zip(decoded.rounds, run["rounds"], strict=False):
            check_round(ours, theirs)
            checked += 1
    assert checked > 20


def has_pruned(case: GoldenCase) -> bool:
    return any(run["method"] == "dartree_pruned" for run in case.spec["runs"])


def test_control_a_wrong_knob_is_caught():
    """Another depth bonus builds other trees, and the comparison notices."""
    case = carried("end_to_end", has_pruned)[0]
    golden, folders = case.spec, case.folders
    run = next(r for r in golden["runs"] if r["method"] == "dartree_pruned")
    target = load_target(folders["target"])
    drafter = load_drafter(folders["draft"], target)
    wrong = compose([*overrides(run), "tree.beta=-1.5"])
    method = make_method(wrong.tree, wrong.budget, drafter)
    decoded = speculate(
        target,
        method,
        golden["prompts"][0],
        Sampler(),
        StopRule(run["max_new_tokens"]),
        StageClock(),
    )
    assert decoded.ids == run["new_ids"]
    with pytest.raises(AssertionError):
        for ours, theirs in zip(decoded.rounds, run["rounds"], strict=False):
            check_round(ours, theirs)
