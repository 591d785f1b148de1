"""Results of a change, as a status and an event for programs."""

from __future__ import annotations

import pytest

from aliquot.kubernetes.gpu import change_report
from aliquot.kubernetes.gpu.change_report import ChangeReport
from aliquot.kubernetes.gpu.node_status import AgentStatus, parse

PARTIAL = "the driver refused; not all could be undone"


@pytest.mark.parametrize("report", [ChangeReport(), ChangeReport("train", 2.5), ChangeReport(outcome="partial")])
def test_an_event_says_what_the_agent_reported(report: ChangeReport) -> None:
    assert change_report.read(change_report.event_annotations(report)) == report


def test_an_event_about_anything_else_has_no_report() -> None:
    assert change_report.event_annotations(None) == {}
    assert change_report.read({}) == ChangeReport()
    assert change_report.read({change_report.ANNOTATION: "{"}) == ChangeReport()


def test_a_status_carries_how_its_change_ended() -> None:
    status = AgentStatus("failed", "ApplyFailed", PARTIAL, change=ChangeReport(outcome="undone"))
    assert parse(status.document()) == status
    assert status.rollback == "undone"
    assert AgentStatus("failed", "Held", "a holder stays").rollback == ""


@pytest.mark.parametrize("seconds", ["1e300", "-5"])
def test_a_duration_that_no_change_has_is_left_out(seconds: str) -> None:
    found = {change_report.ANNOTATION: f'{{"config":"train","seconds":{seconds}}}'}
    assert change_report.read(found) == ChangeReport("train")
