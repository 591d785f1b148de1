from __future__ import annotations

import pytest

from aliquot.core.planner.linear_program import ColumnClass, solve


def test_multipliers_are_what_one_more_unit_costs() -> None:
    classes = [ColumnClass(10, [(0, 0), (2, 1), (1, 2)], [0, 3, 3])]
    found = solve(classes, (4, 4))
    assert found.multipliers == pytest.approx([1, 1]), "8/3 columns at 3 serve 4 and 4"
    assert found.taken == {(0, 0), (0, 1), (0, 2)}


def test_a_row_that_has_enough_costs_nothing() -> None:
    found = solve([ColumnClass(3, [(0, 0), (1, 5)], [0, 2])], (2, 4))
    assert found.multipliers == pytest.approx([2, 0])


def test_the_narrowest_rows_limit_growth() -> None:
    found = solve([ColumnClass(4, [(2, 0, 9), (0, 2, 9)], [0, 0])], (0, 0, 0), (1, 1, 1))
    assert found.multipliers == pytest.approx([0.5, 0.5, 0])


def test_each_class_has_its_own_columns() -> None:
    classes = [ColumnClass(1, [(0,), (1,)], [0, 5]), ColumnClass(2, [(0,), (1,)], [0, 3])]
    assert solve(classes, (1,)).multipliers == pytest.approx([3])
    assert solve(classes, (3,)).multipliers[0] >= 5


@pytest.mark.parametrize("first", [0, 1, 2])
def test_any_column_is_a_beginning(first: int) -> None:
    classes = [ColumnClass(10, [(0, 0), (2, 1), (1, 2)], [0, 3, 3], first)]
    assert solve(classes, (4, 4)).multipliers == pytest.approx([1, 1])


def test_needs_that_cannot_be_met_have_high_multipliers() -> None:
    assert solve([ColumnClass(2, [(1,)], [0])], (3,)).multipliers[0] > 1000


def test_no_needs_are_no_work() -> None:
    assert solve([], ()).multipliers == []
