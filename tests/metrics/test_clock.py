"""The clock with fake time: stages add up, and the device is synchronised only when necessary."""

import pytest

from dartree_exp.metrics.clock import STAGES, StageClock


class FakeTime:
    """A clock that is advanced by hand and records when the device was synchronised."""

    def __init__(self):
        self.ns = 1_000
        self.synced = []

    def now(self):
        return self.ns

    def sleep(self, ns):
        self.ns += ns

    def synchronize(self):
        self.synced.append(self.ns)


@pytest.fixture
def fake():
    return FakeTime()


def clock_of(fake, **options):
    return StageClock(synchronize=fake.synchronize, now=fake.now, **options)


def run_two_rounds(fake, clock):
    with clock.prefill():
        fake.sleep(500)
    clock.start()
    rounds = []
    for scale in (1, 3):
        for cost, stage in enumerate(STAGES[:-1], start=1):
            with clock.stage(stage):
                fake.sleep(10 * cost * scale)
        fake.sleep(7)
        rounds.append(clock.end_round())
    fake.sleep(11)
    return rounds, clock.stop()


def test_stages_add_up_to_the_decode_time(fake):
    rounds, times = run_two_rounds(fake, clock_of(fake))
    assert times["decode"] == pytest.approx(1e-9 * (4 * 150 + 2 * 7 + 11), rel=1e-12)
    assert sum(times[stage] for stage in STAGES) == pytest.approx(times["decode"], rel=1e-12)
    assert times["other"] == pytest.approx(25e-9, rel=1e-12)
    assert times["prefill"] == pytest.approx(500e-9, rel=1e-12)
    assert list(rounds[0]) == list(STAGES)
    for stage in STAGES[:-1]:
        assert sum(r[stage] for r in rounds) == pytest.approx(times[stage], rel=1e-12)
    assert [r["other"] for r in rounds] == pytest.approx([7e-9, 7e-9], rel=1e-12)


def test_without_profile_only_the_ends_synchronise(fake):
    run_two_rounds(fake, clock_of(fake))
    assert len(fake.synced) == 4
    assert fake.synced[:3] == [1_000, 1_500, 1_500] and fake.synced[3] == fake.ns


def test_profile_synchronises_at_both_ends_of_every_stage(fake):
    run_two_rounds(fake, clock_of(fake, profile=True))
    assert len(fake.synced) == 4 + 2 * 2 * 5


def test_first_draft_excluded_under_the_papers_protocol(fake):
    rounds, times = run_two_rounds(fake, clock_of(fake, exclude_first_draft=True))
    assert times["excluded"] == pytest.approx(10e-9)
    assert rounds[0]["draft"] == 0 and rounds[1]["draft"] == pytest.approx(30e-9)
    assert rounds[0]["other"] == pytest.approx(7e-9)
    assert times["decode"] == pytest.approx(1e-9 * (4 * 150 + 25 - 10))
    assert sum(times[stage] for stage in STAGES) == pytest.approx(times["decode"], rel=1e-12)
    assert "excluded" not in run_two_rounds(FakeTime(), clock_of(FakeTime()))[1]


def test_a_stage_left_by_an_exception_is_closed_and_counted(fake):
    clock = clock_of(fake)
    clock.start()
    with pytest.raises(KeyError), clock.stage("verify"):
        fake.sleep(40)
        raise KeyError
    assert clock.stop()["verify"] == pytest.approx(40e-9)


def test_calls_out_of_order_are_refused(fake):
    clock = clock_of(fake)
    with pytest.raises(RuntimeError, match="outside"), clock.stage("draft"):
        pass
    with pytest.raises(RuntimeError, match="before start"):
        clock.stop()
    with pytest.raises(RuntimeError, match="before stop"):
        clock.times()
    clock.start()
    with pytest.raises(ValueError, match="unknown stage 'drafting'"), clock.stage("drafting"):
        pass
    with (
        pytest.raises(RuntimeError, match="inside stage 'draft'"),
        clock.stage("draft"),
        clock.stage("build"),
    ):
        pass
    with pytest.raises(RuntimeError, match="belongs before"), clock.prefill():
        pass
    with pytest.raises(RuntimeError, match="new one"):
        clock.start()
    clock.stop()
    with pytest.raises(RuntimeError, match="second time"):
        clock.stop()


def test_the_real_clock_runs_forward():
    clock = StageClock()
    clock.start()
    with clock.stage("draft"):
        sum(range(1000))
    times = clock.stop()
    assert 0 < times["draft"] <= times["decode"]
