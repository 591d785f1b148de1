"""Healthy values do not look like alerts, and changes without GPUs have a clear title."""

from __future__ import annotations

import pytest

from aliquot.core.engine.history import PastRun
from aliquot.dashboard.local.history import change
from aliquot.dashboard.pages.fleet_summary import headline
from aliquot.dashboard.pages.node_summary import summarize
from aliquot.dashboard.view_models import ObservedNode
from support import factory


@pytest.mark.parametrize(
    ("name", "gpus", "title"),
    [
        ("", (), "A change that reached no GPU"),
        ("", ("0",), "A change of GPU 0"),
        ("the record", (), "Last request applied again"),
        ("train", (), "train"),
        ("train", ("0", "1"), "train on 2 GPUs"),
    ],
)
def test_a_change_is_named_after_the_gpus_that_it_reached(name: str, gpus: tuple[str, ...], title: str) -> None:
    assert change("n", PastRun("1", 1.0, 2.0, "", name, "refused", gpus)).title == title


def test_a_zero_of_problems_is_calm() -> None:
    observation = ObservedNode("one", factory.inventory("a30*2"), 1.0, revision=1)
    figures = {figure.what: figure for figure in headline([(observation, summarize(observation))])}
    assert {figures[what].mood for what in ("GPUs with holes", "nodes with drift", "nodes not responding")} == {"calm"}
    stale = ObservedNode("one", None, 1.0, "it does not answer", revision=1)
    (alarm,) = [f for f in headline([(stale, summarize(stale))]) if f.what == "node not responding"]
    assert (alarm.number, alarm.mood) == ("1", "bad")
