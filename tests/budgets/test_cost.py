"""What rows cost between and beyond the measured points."""

import pytest

from dartree_exp.budgets.cost import CostCurve


@pytest.mark.parametrize(
    "rows,seconds", [(1, 2.0), (5, 3.0), (9, 4.0), (10, 6.0), (12, 10.0), (0, 2.0)]
)
def test_lines_between_points_and_the_last_slope_beyond(rows, seconds):
    assert CostCurve({9: 4.0, 1: 2.0, 11: 8.0})(rows) == pytest.approx(seconds)


def test_one_point_is_a_constant_and_none_is_refused():
    assert CostCurve({17: 0.5})(64) == 0.5
    with pytest.raises(ValueError, match="at least one"):
        CostCurve({})
