"""From a benchmark's configuration to its prompts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dartree_exp.errors import UserError
from dartree_exp.prompts.prompt import Prompt, category, render
from dartree_exp.prompts.rows import load_rows
from dartree_exp.prompts.select import stratify, subset
from dartree_exp.prompts.template import RowError, check_template

if TYPE_CHECKING:
    from dartree_exp.config.schema import BenchmarkConfig


def load_prompts(config: BenchmarkConfig) -> list[Prompt]:
    """The prompts to decode, in order: the papers' subset, filtered by category, cut to
    `benchmark.limit`.

    The subset is drawn before filtering, so a category's prompts do not depend on the filter.
    Raises UserError for an invalid template, missing or damaged data, a row of the wrong form, an
    unknown category or a limit below 1.
    """
    if config.limit is not None and config.limit < 1:
        raise UserError(f"benchmark.limit={config.limit}: must be at least 1")
    check_template("benchmark.template", config.template)
    check_template("benchmark.optional", config.optional)
    source, rows = load_rows(config)
    chosen = subset(len(rows), config.count, config.limit, config.seed)
    names = {}
    for row in chosen:
        with _placed(config, row, source):
            names[row] = category(rows[row], config.name)
    if config.categories:
        known = sorted(set(names.values()))
        if unknown := [name for name in config.categories if name not in known]:
            raise UserError(
                f"benchmark.categories: {unknown[0]!r} is not one of {', '.join(known)}"
            )
        chosen = [row for row in chosen if names[row] in config.categories]
    if config.limit is not None and config.limit < len(chosen):
        chosen = stratify(chosen, [names[row] for row in chosen], config.limit)
    prompts = []
    for row in chosen:
        with _placed(config, row, source):
            turns = render(rows[row], config.template, config.optional)
        prompts.append(
            Prompt(f"{config.name}/{row}", names[row], turns, config.name, config.version)
        )
    return prompts


@contextmanager
def _placed(config: BenchmarkConfig, row: int, source: str) -> Iterator[None]:
    """Add benchmark, row and source to a row's error."""
    try:
        yield
    except RowError as error:
        raise UserError(f"benchmark={config.name}: row {row} of {source}: {error}") from error
