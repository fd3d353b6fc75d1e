"""DSpark's heads and whole DeepSpec checkpoints against the reference vectors (golden family
`dspark_heads`).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from drafter_support import StubTarget, greedy_chain, tolerance
from safetensors.torch import load_file

from dartree_exp.budgets.confidence import ConfidenceBudget
from dartree_exp.drafters.dflash.checkpoint import EMBED, LM_HEAD, load_drafter
from dartree_exp.drafters.dflash.config import read_config
from dartree_exp.drafters.heads.confidence import ConfidenceHead, bind_confidence, make_confidence
from dartree_exp.drafters.heads.head import make_head
from dartree_exp.drafters.heads.markov import MarkovHead
from dartree_exp.interfaces import Block
from dartree_exp.trees.ledger import Ledger
from dartree_exp.trees.scorer import make_scorer
from golden_support import GoldenCase, carried, golden_cases

FAMILY = "dspark_heads"


def is_head(case: GoldenCase) -> bool:
    """Blocks of only a head; the other cases are complete checkpoints over rounds."""
    return "num_blocks" in case.spec["params"]


def is_confident(case: GoldenCase) -> bool:
    return is_head(case) and case.spec["params"]["enable_confidence_head"]


HEADS = golden_cases(FAMILY, is_head)
FULL = golden_cases(FAMILY, lambda case: not is_head(case))


def read_head(case: GoldenCase) -> tuple[MarkovHead, ConfidenceHead | None]:
    """The golden head cases store the heads' tensors only (and an lm_head), so the checkpoint
    reader does not apply.
    """
    config = read_config(case.checkpoint)
    head = make_head(config.head, config.hidden_size, config.vocab_size)
    assert (
        isinstance(head, MarkovHead) and head.head_type == case.spec["params"]["markov_head_type"]
    )
    confidence = make_confidence(config.head, config.hidden_size)
    tensors = load_file(case.checkpoint / "head.safetensors")
    del tensors["lm_head.weight"]
    for module in (head, confidence):
        if module is not None:
            keys = [key for key in tensors if key.startswith(module.key_prefix)]
            module.load_state_dict(
                {key.removeprefix(module.key_prefix): tensors.pop(key) for key in keys}, assign=True
            )
            module.requires_grad_(False)
    assert not tensors
    return head, bind_confidence(confidence, head)


def block_of(case: GoldenCase, n: int) -> Block:
    return Block(case.arrays["hidden"][n], case.arrays["base_logits"][n].float(), None)


def proposal_lengths(
    confidence: ConfidenceHead, block: Block, chain: list[int], thresholds: list[float]
) -> list[int]:
    """Nodes that the confidence budget leaves of a chain (root first)."""
    ledger, only = Ledger(torch.tensor(chain[0])), torch.zeros(1, dtype=torch.int64)
    for token in chain[1:]:
        ledger.add_level(only, torch.tensor([token]), torch.zeros(1), only)
    tree = ledger.tree()
    scorer = make_scorer("marginal", block, None, chain[0], candidates=1, confidence=confidence)
    return [
        ConfidenceBudget(threshold).trim(None, tree, scorer).num_nodes for threshold in thresholds
    ]


@pytest.mark.parametrize("case", HEADS)
def test_greedy_chains(case: GoldenCase):
    head, _ = read_head(case)
    for n in range(case.spec["params"]["num_blocks"]):
        root = int(case.arrays["prev_token_ids"][n, 0])
        for k in (None, 8):
            chain, logits = greedy_chain(head, block_of(case, n), root, k)
            seen, expected = logits.isfinite(), case.arrays["greedy_chain_logits"][n].float()
            if k is None:
                assert chain[1:] == case.arrays["greedy_chain"][n].tolist()
                assert seen.all()
            for depth in range(
                len(chain) - 1
            ):  # with candidates, logits agree as long as the chains do
                torch.testing.assert_close(
                    logits[depth][seen[depth]], expected[depth][seen[depth]], **tolerance(case)
                )
                if chain[1 : depth + 2] != case.arrays["greedy_chain"][n, : depth + 1].tolist():
                    break


@pytest.mark.parametrize("case", HEADS)
def test_teacher_forced_pass(case: GoldenCase):
    head, _ = read_head(case)
    hidden, tokens = case.arrays["hidden"], case.arrays["prev_token_ids"]
    expected = case.arrays["teacher_forced_logits"].float() - case.arrays["base_logits"].float()
    torch.testing.assert_close(head(hidden, tokens).float(), expected, **tolerance(case))
    columns = torch.tensor([3, 0, 41])
    torch.testing.assert_close(
        head(hidden, tokens, columns).float(), expected[..., columns], **tolerance(case)
    )
    slots = torch.tensor([tokens.shape[1] - 1, 0]).expand(len(tokens), 2)
    picked = (
        hidden
        if head.reads_block
        else hidden.gather(1, slots[..., None].expand(-1, -1, hidden.shape[-1]))
    )
    some, every = head.codes(picked, tokens, slots), head.codes(hidden, tokens)
    torch.testing.assert_close(some, every[:, [tokens.shape[1] - 1, 0]])


@pytest.mark.parametrize("case", golden_cases(FAMILY, is_confident))
def test_confidence(case: GoldenCase):
    _, confidence = read_head(case)
    arrays, expected = case.arrays, case.spec["expected"]
    logits = confidence(arrays["hidden"], arrays["prev_token_ids"])
    torch.testing.assert_close(
        logits.float(), arrays["teacher_forced_confidence_logits"].float(), **tolerance(case)
    )
    for n, lengths in enumerate(expected["proposal_length_per_block_and_threshold"]):
        chain = [int(arrays["prev_token_ids"][n, 0]), *arrays["greedy_chain"][n].tolist()]
        logits = confidence(arrays["hidden"][n], torch.tensor(chain[:-1]))
        torch.testing.assert_close(
            logits.float(), arrays["chain_confidence_logits"][n].float(), **tolerance(case)
        )
        assert (
            proposal_lengths(
                confidence, block_of(case, n), chain, expected["confidence_thresholds"]
            )
            == lengths
        )


@pytest.mark.parametrize("case", FULL)
def test_complete_checkpoints_over_rounds(case: GoldenCase):
    tables = load_file(case.checkpoint / "model.safetensors")
    drafter = load_drafter(case.checkpoint, StubTarget(tables[EMBED], tables[LM_HEAD], 6))
    assert drafter.num_drafts == drafter.block_size == 7
    assert (drafter.head is None) == (case.spec["params"]["markov_rank"] == 0)
    session = drafter.session([])
    for r, line in enumerate(case.spec["rounds"]):
        arrays = {
            key.split(".", 1)[1]: value
            for key, value in case.arrays.items()
            if key.startswith(f"round{r}.")
        }
        block = session.propose(arrays["target_hidden"][0], line["root_token"], line["start"])
        torch.testing.assert_close(block.hidden, arrays["hidden"][0], **tolerance(case))
        torch.testing.assert_close(block.logits, arrays["base_logits"][0], **tolerance(case))
        if drafter.head is None:
            chain, logits = [line["root_token"], *block.logits.argmax(-1).tolist()], block.logits
        else:
            chain, logits = greedy_chain(drafter.head, block, line["root_token"], None)
        assert chain[1:] == arrays["greedy_chain"].tolist()
        torch.testing.assert_close(logits, arrays["greedy_chain_logits"], **tolerance(case))
        proposals = line["proposals"]
        assert all(chain[: len(p["verify_input_ids"])] == p["verify_input_ids"] for p in proposals)
        if drafter.confidence is not None:
            found = proposal_lengths(
                drafter.confidence, block, chain, [p["threshold"] for p in proposals]
            )
            assert found == [p["draft_token_count"] for p in proposals]


def _previous_token_ignored(head: MarkovHead, block: Block) -> Block:
    head.markov_w1.weight.copy_(head.markov_w1.weight.roll(1, 0))
    return block


def _slots_one_late(head: MarkovHead, block: Block) -> Block:
    return Block(block.hidden.roll(1, 0), block.logits, None)


def _gate_inverted(head: MarkovHead, block: Block) -> Block:
    for layer in (getattr(head, "gate_proj", None), getattr(head, "joint_proj", None)):
        if layer is not None:
            layer.weight[: head.rank].neg_()
            layer.bias[: head.rank].neg_()
    return block


@pytest.mark.parametrize(
    ("head_type", "break_it"),
    [
        ("vanilla", _previous_token_ignored),
        ("gated", _slots_one_late),
        ("gated", _gate_inverted),
        ("rnn", _slots_one_late),
        ("rnn", _gate_inverted),
    ],
)
def test_control_a_broken_head_is_caught(head_type: str, break_it: Callable):
    case = next(
        case
        for case in carried(FAMILY, is_head)
        if case.spec["params"]["markov_head_type"] == head_type
    )
    head, _ = read_head(case)
    block = break_it(head, block_of(case, 0))
    _, logits = greedy_chain(head, block, int(case.arrays["prev_token_ids"][0, 0]), None)
    expected = case.arrays["greedy_chain_logits"][0].float()
    assert not torch.allclose(logits.float(), expected, **tolerance(case))
