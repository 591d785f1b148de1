"""Metrics of changes that the dashboard executes itself. They have the same form as those of agents."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import pytest

from aliquot.dashboard.page_metrics import DashboardMetrics
from aliquot.sim import lifecycle as control
from system.dashboard import heres, stub
from system.dashboard.heres import HereBed
from system.dashboard.source_contract import ANN


@pytest.fixture
def bed(tmp_path: object) -> Iterator[HereBed]:
    path = f"{tmp_path}/state"
    with heres.bed(path, fleet=True) as made:
        yield made
    control.stop(path)


def value(figures: DashboardMetrics, name: str, **labels: str) -> float | None:
    return figures.page.registry.get_sample_value(name, labels)


def test_each_act_of_a_change_is_a_step_with_its_time(bed: HereBed) -> None:
    figures = DashboardMetrics(bed.source)
    assert value(figures, "aliquot_change_step_seconds_count", step="create") is None
    done = figures.counting_source.execute(bed.preview(bed.good), ANN, bed.reported.append)
    assert bed.loop.run(done).status == "done"
    assert Counter(bed.profiles()) == {"3g.40gb": 1, "1g.10gb": 2}
    assert value(figures, "aliquot_acts_total", act="create", profile="1g.10gb") == 2
    assert value(figures, "aliquot_acts_total", act="create", profile="3g.40gb") == 1
    assert value(figures, "aliquot_change_step_seconds_count", step="create") == 3
    assert (value(figures, "aliquot_change_step_seconds_sum", step="create") or 0) > 0
    for step in ("lock", "read", "record", "verify"):
        assert value(figures, "aliquot_change_step_seconds_count", step=step), step
    assert value(figures, "aliquot_changes_total", outcome="done") == 1


def test_what_the_driver_refuses_took_its_time_and_was_not_done(bed: HereBed) -> None:
    figures = DashboardMetrics(bed.source)
    preview = bed.preview(bed.good)
    bed.sim.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, nth=2)
    assert bed.loop.run(figures.counting_source.execute(preview, ANN, bed.reported.append)).status == "undone"
    assert value(figures, "aliquot_change_step_seconds_count", step="create") == 2
    done = [value(figures, "aliquot_acts_total", act="create", profile=p) or 0 for p in ("3g.40gb", "1g.10gb")]
    assert sum(done) == 1
    assert value(figures, "aliquot_change_step_seconds_count", step="undo") == 1


def test_a_source_that_delegates_changes_has_no_steps() -> None:
    figures = DashboardMetrics(stub.StubSource(stub.fleet()))
    asyncio.run(figures.counting_source.execute(stub.changing(), ANN, lambda _: None))
    page = figures.page.render({}).body.decode()
    assert "# TYPE aliquot_change_step_seconds histogram" in page
    assert "aliquot_change_step_seconds_count" not in page
    assert "aliquot_change_retries_total" not in page, "the page retries nothing by itself"
