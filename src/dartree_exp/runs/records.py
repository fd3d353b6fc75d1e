"""The lines of samples.jsonl, rounds.jsonl and trees.jsonl."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dartree_exp.decode import Decoded, Round
from dartree_exp.metrics.measures import is_degenerate
from dartree_exp.prompts import Prompt
from dartree_exp.records.schema import RoundRecord, SampleRecord
from dartree_exp.records.trees import DIGITS, TreeRecord, branches
from dartree_exp.runs.arms import Answers, Arms, prompt_sha256

CONTEXT_TOKENS = 32  # tokens of the answer recorded before the root of a tree


def sample_record(
    arms: Arms, prompt: Prompt, turn: int, ids: list[int], answers: Answers, repeat: int
) -> SampleRecord:
    """The line of one turn. ids: of the rendered prompt."""
    plain, drafted, verdict = answers.plain, answers.drafted, answers.verdict
    return SampleRecord(
        id=prompt.id,
        category=prompt.category,
        turn=turn,
        prompt_sha256=prompt_sha256(ids),
        prompt_tokens=len(ids),
        method=str(arms.config.method),
        ids=drafted.ids,
        text=arms.target.tokenizer.decode(drafted.ids),
        finish=drafted.finish,
        ar_ids=plain.ids,
        verdict=verdict.verdict,
        verdict_detail=verdict.detail,
        emitted=len(drafted.ids),
        rounds=len(drafted.rounds),
        verified=sum(r.tree.num_nodes for r in drafted.rounds),
        acceptance_lengths=[r.tokens_advanced for r in drafted.rounds],
        emitted_per_round_counts=[r.emitted for r in drafted.rounds],
        time=drafted.time,
        ar=_lean(answers.plain),
        fallback=answers.fallback,
        error=answers.error,
        degenerate=is_degenerate(drafted.ids),
        exact=arms.method.verify.exact,
        enable_thinking=arms.config.decoding.enable_thinking,
        repeat=repeat,
    )


def round_records(sample: SampleRecord, decoded: Decoded) -> Iterator[RoundRecord]:
    """The lines of a sample's rounds."""
    for r in decoded.rounds:
        places, offered = branches(r.tree.parents.tolist(), r.tree.scores.tolist(), r.accepted)
        ranks = None if r.tree.ranks is None else r.tree.ranks[r.accepted[1:]].tolist()
        yield RoundRecord(
            id=sample.id,
            turn=sample.turn,
            round=r.index,
            start=r.start,
            root=int(r.tree.tokens[0]),
            accepted=r.accepted[1:],
            accepted_tokens=r.accepted_tokens,
            accepted_ranks=ranks,
            bonus=r.bonus,
            tree_size=r.tree.num_nodes,
            supertree_size=r.tree.supertree_size,
            tree_depth=int(r.tree.depths.max()),
            tokens_advanced=r.tokens_advanced,
            emitted=r.emitted,
            time=r.time,
            accepted_places=places,
            path_children=offered,
            repeat=sample.repeat,
        )


def tree_records(
    sample: SampleRecord, decoded: Decoded, decode: Callable[[list[int]], str]
) -> Iterator[TreeRecord]:
    """The draft trees of a sample's rounds, for the viewer. decode: ids -> text."""
    for r in decoded.rounds:
        before = r.start - sample.prompt_tokens  # ids of the answer before the root
        yield _tree_record(
            sample, r, decode, context=sample.ids[max(0, before - CONTEXT_TOKENS) : before]
        )


def _tree_record(
    sample: SampleRecord, round_: Round, decode: Callable[[list[int]], str], context: Sequence[int]
) -> TreeRecord:
    """The draft tree of one round. context: the last ids of the answer before the root."""
    tree = round_.tree
    scored = tree if tree.supertree is None else tree.supertree
    kept = None if tree.kept is None else tree.kept.tolist()
    tokens = scored.tokens.tolist()
    return TreeRecord(
        id=sample.id,
        turn=sample.turn,
        round=round_.index,
        tokens=tokens,
        parents=scored.parents.tolist(),
        scores=[round(score, DIGITS) for score in scored.scores.tolist()],
        ranks=None if scored.ranks is None else scored.ranks.tolist(),
        verified=kept,
        accepted=round_.accepted if kept is None else [kept[node] for node in round_.accepted],
        bonus=round_.bonus,
        context=decode(list(context)),
        texts={str(token): decode([token]) for token in dict.fromkeys([*tokens, round_.bonus])},
        repeat=sample.repeat,
    )


def _lean(plain: Decoded) -> dict[str, float] | None:
    """Plain decoding's token count and seconds; None if it has no answer."""
    if not plain.time:
        return None
    return {
        "emitted": len(plain.ids),
        "prefill": plain.time["prefill"],
        "decode": plain.time["decode"],
    }
