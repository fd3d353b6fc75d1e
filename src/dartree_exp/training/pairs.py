"""What the fits of a drafter's scores share: one pair of numbers for each scorer and temperature,
fitted on every other held-out prompt, judged on the rest, and written to one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dartree_exp.training.command import Parser, output_file
from dartree_exp.training.corpus import Sample
from dartree_exp.training.errors import InputError
from dartree_exp.training.halves import add_halves_arguments, decode_watched
from dartree_exp.training.tau import head_kind, held_out_prompts
from dartree_exp.trees.spec import OWN, SCORERS

if TYPE_CHECKING:
    from dartree_exp.config.schema import Config
    from dartree_exp.decode import Method
    from dartree_exp.engines.target import Target
    from dartree_exp.interfaces import BudgetPolicy

FITTED = tuple(name for name in SCORERS if name not in ("static", OWN))
"""`static` is only used in an ablation."""


class Found(NamedTuple):
    """The pair of a case. judged: what it says of the other half; shown: the end of its line; how:
    how pairs are found.
    """

    pair: list[float]
    judged: dict[str, float]
    shown: str
    how: str


def usual_scorers(folder: Path) -> list[str]:
    """Those that the drafter's head can serve."""
    from dartree_exp.drafters.heads.spec import HEADS

    head = HEADS[head_kind(folder)]
    return [
        name
        for name, scorer in ((name, SCORERS[name]) for name in FITTED)
        if (head.last_token or not scorer.last_token)
        and (not scorer.corrects or head.mixture == scorer.mixture)
    ]


def chosen_scorers(args: Any) -> list[str]:
    """Those of `--scorers`, or all that the drafter has. Raises InputError for one that needs a
    head that it lacks.
    """
    folder = args.drafter.resolve()
    if head_kind(folder) != "none":
        return args.scorers or usual_scorers(folder)
    if "conditional" in (args.scorers or ()):
        raise InputError(f"--scorers conditional: {folder} has no correction head")
    return args.scorers or ["marginal"]


@dataclass(frozen=True)
class Case:
    """A scorer and a temperature of the target, with what decodes for them."""

    scorer: str
    temperature: float
    target: Target
    method: Method
    config: Config

    def decode(self, policy: BudgetPolicy, samples: Sequence[Sample]) -> None:
        """Decode the prompts with a policy that notes what it sees of every round."""
        from dartree_exp.assemble import make_sampler

        how, method = self.config.decoding, self.method
        decode_watched(
            *(self.target, method, policy, samples, how.max_new_tokens),
            lambda sample: make_sampler(how, sample.id),
        )


def cases(args: Any, *settings: str) -> Iterator[Case]:
    """Every pair to fit: trees of the drafter at the temperatures of the arguments, without what
    was fitted to it before. settings: further ones.
    """
    from dartree_exp.assemble import make_method
    from dartree_exp.config import compose
    from dartree_exp.drafters import load_drafter
    from dartree_exp.drafters.dflash.session import DFlashDrafter
    from dartree_exp.drafters.heads.spec import HEADS
    from dartree_exp.models.registry import load_target

    folder, target = args.drafter.resolve(), None
    for scorer in chosen_scorers(args):
        parts = (
            ["method=ddtree"]
            if scorer == "marginal"
            else [
                f"drafter={HEADS[head_kind(folder)].drafter}",
                f"tree.scoring={scorer}",
                "tree=pruned",
                "tree.budget=64",
            ]
        )
        for temperature in args.temperatures:
            given = [
                f"drafter.path={folder}",
                f"engine.threads={args.threads}",
                f"decoding.temperature={temperature}",
                f"decoding.max_new_tokens={args.cap}",
            ]
            config = compose([*parts, *given, *settings, *args.set])
            target = target or load_target(config.model, config.engine)
            drafter = load_drafter(config.drafter, target)
            if isinstance(drafter, DFlashDrafter):
                drafter.edge_pairs = drafter.coupled_pairs = {}
            method = make_method(config.tree, config.budget, drafter)
            yield Case(scorer, temperature, target, method, config)


def add_pair_arguments(parser: Parser, temperatures: Sequence[float]) -> None:
    """What a command that fits pairs asks. temperatures: of the target, where none are given."""
    add_halves_arguments(parser)
    parser.add_argument(
        "--scorers", nargs="+", choices=FITTED, help="scorers to fit; none: all that it has"
    )
    parser.add_argument(
        "--temperatures",
        nargs="+",
        type=float,
        default=list(temperatures),
        help="temperatures of the target",
    )
    parser.add_argument(
        "--out",
        type=output_file,
        required=True,
        help="write the pairs here (JSON); what else it says of the same weights stays",
    )


def fit_pairs(
    args: Any,
    keys: tuple[str, str, str],
    header: str,
    fit: Callable[[Case, list[Sample]], Found],
    *settings: str,
) -> None:
    """Fit, print and write every case.

    keys: of the pairs, of what is judged and of `how` in the file. header: of the printed lines,
    which begin with scorer and temperature. settings: further ones of every case.
    """
    import torch

    from dartree_exp.drafters.heads.edges import stored_edges, write_edges

    folder, samples = args.drafter.resolve(), held_out_prompts(args)
    torch.set_num_threads(args.threads)
    stored = stored_edges(args.out, folder)
    pairs, judged, how = keys
    print(f"scorer       T{header}")
    for case in cases(args, *settings):
        found, temperature = fit(case, samples), f"{case.temperature:g}"
        stored[pairs].setdefault(case.scorer, {})[temperature] = found.pair
        stored[judged].setdefault(case.scorer, {})[temperature] = found.judged
        stored[how] = found.how
        print(f"{case.scorer:11s} {case.temperature:3g}{found.shown}", flush=True)
        write_edges(args.out, folder, stored)
