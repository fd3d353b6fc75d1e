"""A correction head that yields NaN or infinity is named, whatever builds the tree; it never passes
for a weak one.
"""

import copy
import math

import pytest
import torch
from contract_support import DRAFTING, MAIN, every_id

from dartree_exp.drafters.heads.latent import LatentHead
from dartree_exp.verify.finite import NonFiniteLogitsError
from dartree_exp.verify.sampling import Sampler

WITH_HEAD = [name for name in MAIN if DRAFTING[name].head is not None]
WITH_HEAD += [f"{head}-heap" for head in ("gated", "rnn", "swiglu")]


def output_row(head):
    return head._readout[7] if isinstance(head, LatentHead) else head.output[7]


def state_weight(head):
    return next(iter(head.parameters()))


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("where", [output_row, state_weight])
@pytest.mark.parametrize("method", WITH_HEAD)
def test_a_head_that_is_not_finite_is_named(make_case, method, where, poison):
    case = make_case(method, every_id(method))
    case.drafted(cap=4)  # control: as it is, nothing is wrong
    case.drafter.head = head = copy.deepcopy(case.drafter.head)
    with torch.no_grad():
        where(head).fill_(poison)
    message = (
        rf"corrected draft logits: the head \({type(head).__name__}\) gave NaN or infinite .*"
        r"drafter 'noisy', round 0, sample 'x'"
    )
    with pytest.raises(NonFiniteLogitsError, match=message):
        case.drafted(sampler=Sampler(sample_id="x"), cap=4)
