"""Costs of a round: measured by rounds of the method, recorded, used again, pinned."""

import json

import pytest
from test_warm_up import PROMPT, environment, interrupted_after, start

from dartree_exp.assemble import load_parts
from dartree_exp.config import compose
from dartree_exp.generate import Generator
from dartree_exp.metrics.clock import StageClock
from dartree_exp.records.environment import BESIDES, VERIFY
from dartree_exp.records.reader import Run
from dartree_exp.records.schema import RecordError
from dartree_exp.runs.costs import round_costs, sizes, with_costs
from dartree_exp.verify.sampling import Sampler

AUTO = ["model=toy", "drafter=oracle", "engine.dtype=fp32", "tree.budget=auto"]
FREE = {VERIFY: {"1": 10.0, "65": 10.0}, BESIDES: {"draft": 1.0, "build": 0.5, "other": 0.25}}


class Ticks:
    """A clock of a machine on which a verified row takes 1 ms."""

    now = 0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    ("most", "found"),
    [(0, [0]), (1, [0, 1]), (6, [0, 1, 4, 6]), (64, [0, 1, 4, 8, 16, 32, 64]), (5, [0, 1, 4, 5])],
)
def test_sizes_reach_the_largest_tree(most, found):
    assert sizes(most) == found


def test_rounds_of_every_size_are_measured(monkeypatch):
    target, method = load_parts(compose([*AUTO, "budget.most=16"]))
    ticks, verify = Ticks(), target.verify

    def slow(tokens, *arguments):
        ticks.now += 1_000_000 * len(tokens)
        return verify(tokens, *arguments)

    monkeypatch.setattr(target, "verify", slow)
    costs = round_costs(
        target, method, PROMPT, Sampler(), lambda profile: StageClock(now=ticks, profile=profile)
    )
    assert costs[VERIFY] == {"1": 1.0, "2": 2.0, "5": 5.0, "9": 9.0, "17": 17.0}
    assert set(costs[BESIDES]) == {"draft", "build", "mask", "commit", "other"}
    measured = with_costs(method, costs, compose(AUTO).budget)
    assert measured.cost(9) == pytest.approx(0.009) and measured.cost(3) == pytest.approx(0.003)


def test_a_prompt_without_room_measures_nothing():
    target, method = load_parts(compose(AUTO))
    longest = [4] * (target.max_positions - method.depth)
    assert round_costs(target, method, longest, Sampler(), StageClock) == {}


def test_what_is_pinned_is_not_measured():
    _, method = load_parts(compose(AUTO))
    budget = compose([*AUTO, "budget.costs=[[1,2.0],[3,4]]", "budget.overhead=7"]).budget
    pinned = with_costs(method, FREE, budget)
    assert (pinned.cost(3), pinned.overhead.total) == (pytest.approx(0.004), 0.007)
    _, made = load_parts(compose([*AUTO, "budget.costs=[[1,2.0],[3,4]]", "budget.overhead=7"]))
    assert (made.cost(1), made.overhead.draft) == (pytest.approx(0.002), 0.007)
    free = with_costs(method, FREE, compose(AUTO).budget)
    assert free.cost(30) == pytest.approx(0.01)
    assert (free.overhead.draft, free.overhead.rest) == pytest.approx((0.001, 0.00075))


def test_a_resumed_run_decides_by_the_costs_recorded_first(tmp_path, monkeypatch):
    settings = ["drafter=oracle", "tree.budget=auto", "engine.threads=1", "engine.dtype=fp32"]
    found = iter([FREE, {**FREE, VERIFY: {"1": 10.0, "65": 900.0}}])
    monkeypatch.setattr("dartree_exp.runs.warm_up.round_costs", lambda *arguments: next(found))
    monkeypatch.setattr("dartree_exp.runs.turns.decode_turn", interrupted_after(1))
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path, *settings)
    monkeypatch.undo()
    monkeypatch.setattr("dartree_exp.runs.warm_up.round_costs", lambda *arguments: next(found))
    done = start(tmp_path, *settings)
    assert environment(done)["machine"][VERIFY] == FREE[VERIFY]
    assert environment(done)["edge_calibration"] == "uncalibrated"
    sizes_of = {sample.id: set() for sample in done.samples}
    for round_ in done.rounds:
        sizes_of[round_.id].add(round_.tree_size)
    first, second = sizes_of.values()
    assert max(first) == max(second) > 4


@pytest.mark.parametrize("costs", [{"1": "x"}, {"one": 1.0}, {"1": -1.0}, {"1": 0}, [1, 2]])
def test_damaged_costs_are_refused(tmp_path, costs):
    done = start(tmp_path, "engine.threads=1", "engine.dtype=fp32")
    file = done.path / "environment.json"
    damaged = json.loads(file.read_text())
    damaged["machine"][VERIFY] = costs
    file.write_text(json.dumps(damaged))
    with pytest.raises(RecordError, match=VERIFY):
        _ = Run(done.path).environment


def test_a_generator_measures_once_and_only_if_the_budget_follows(monkeypatch):
    import dartree_exp.runs.costs as costs_module

    right, calls = costs_module.round_costs, []

    def counted(*arguments, **more):
        calls.append(1)
        return right(*arguments, **more)

    monkeypatch.setattr(costs_module, "round_costs", counted)
    short = ["decoding.max_new_tokens=6", "engine.threads=1"]
    Generator(compose([*AUTO, *short, "tree.budget=4"]))("hi")
    assert not calls
    generator = Generator(compose([*AUTO, *short]))
    generator("hi")
    made = len(calls)
    generator("hello")
    assert made == len(calls) > 0


def test_an_answer_measures_nothing_for_a_budget_that_does_not_read_it(monkeypatch):
    measured, right = [], Generator._measure
    monkeypatch.setattr(Generator, "_measure", lambda *a: measured.append(1) or right(*a))
    toy = ["model=toy", "drafter=dspark", "tree=chain", "engine.dtype=fp32"]
    Generator(compose([*toy, "budget=confidence", "decoding.max_new_tokens=4"]))("hello")
    assert not measured
    Generator(compose([*toy, "budget=libraspec", "decoding.max_new_tokens=4"]))("hello")
    assert measured
