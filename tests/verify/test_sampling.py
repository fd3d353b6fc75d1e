"""The target's draw: filters, keyed noise, and the law it must follow."""

import numpy as np
import pytest
import torch

from dartree_exp.verify.sampling import GREEDY_EPS, Sampler

LOGITS = torch.tensor([1.0, 3.0, 2.0, 3.0, -1.0])


@pytest.mark.parametrize("temperature", [0.0, GREEDY_EPS / 10])
def test_greedy_takes_the_lowest_id_among_ties(temperature):
    assert Sampler(temperature).choose(LOGITS, 7) == 1


@pytest.mark.parametrize("temperature", [GREEDY_EPS, 1e-3, 1.0])
def test_small_temperatures_stay_finite(temperature):
    assert Sampler(temperature, seed=3).choose(LOGITS, 7) in range(5)


def test_noise_depends_on_seed_sample_position_and_token_only():
    noise = Sampler(1.0, seed=1, sample_id="a").noise(5, 10)
    assert np.array_equal(noise, Sampler(0.5, top_k=2, seed=1, sample_id="a").noise(5, 10))
    assert np.array_equal(noise[:4], Sampler(1.0, seed=1, sample_id="a").noise(5, 4))
    for other in (Sampler(1.0, seed=2, sample_id="a"), Sampler(1.0, seed=1, sample_id="b")):
        assert not np.array_equal(noise, other.noise(5, 10))
    assert not np.array_equal(noise, Sampler(1.0, seed=1, sample_id="a").noise(6, 10))


def test_top_k_keeps_ties_and_top_p_keeps_the_first():
    assert Sampler(1.0, top_k=1).kept(LOGITS).tolist() == [False, True, False, True, False]
    assert Sampler(1.0, top_p=1e-9).kept(LOGITS).sum() == 1
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    assert Sampler(1.0, top_p=0.7).kept(probs.log()).tolist() == [True, True, False, False]
    assert Sampler(1.0, top_k=3, top_p=0.6).kept(probs.log()).tolist() == [True, True, False, False]


def chi_square(sampler_of_seed, probs: torch.Tensor, draws: int = 4000) -> float:
    counts = np.bincount(
        [sampler_of_seed(s).choose(probs.log(), 11) for s in range(draws)], minlength=len(probs)
    )
    expected = draws * probs.numpy()
    used = expected > 0
    assert counts[~used].sum() == 0
    return float(((counts[used] - expected[used]) ** 2 / expected[used]).sum())


def test_draws_over_seeds_follow_the_law():
    probs = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05])
    # 4 degrees of freedom: 1e-6 quantile is 33.4
    assert chi_square(lambda s: Sampler(1.0, seed=s), probs) < 33.4
    filtered = torch.tensor([0.4, 0.25, 0.2, 0.0, 0.0]) / 0.85
    draws = [Sampler(1.0, top_k=3, seed=s).choose(probs.log(), 2) for s in range(4000)]
    counts = np.bincount(draws, minlength=5)
    assert counts[3:].sum() == 0
    assert (
        (counts[:3] - 4000 * filtered[:3].numpy()) ** 2 / (4000 * filtered[:3].numpy())
    ).sum() < 27.6


def test_control_a_biased_shared_sampler_is_caught():
    """Equal ids across methods cannot reveal a biased sampler; the chi-square must."""

    class Biased(Sampler):
        def noise(self, position, size):
            return 0.8 * super().noise(position, size)

    probs = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05])
    assert chi_square(lambda s: Biased(1.0, seed=s), probs) > 33.4
