"""The outcome of a change on its page comes from values, whatever its sentences say."""

from __future__ import annotations

import pytest

from aliquot.core.engine.action_text import HolderWait, describe, progress_line
from aliquot.core.model.actions import Reset
from aliquot.core.model.inventory import Holder
from aliquot.core.model.structured_text import StructuredText
from aliquot.dashboard.change_requests import PartitionGpu
from aliquot.dashboard.local import outcome_text
from aliquot.dashboard.pages import plan as plan_page
from aliquot.dashboard.pages.history import ENDS
from aliquot.dashboard.pending_changes import RUNNING, PendingChange
from aliquot.dashboard.view_models import ActionLine, ChangeOutcome, ChangePreview
from aliquot.errors import AliquotError, LockedError, StalePlanError

GPU = "0000:07:00.0"


@pytest.mark.parametrize(
    ("done", "shown"),
    [
        (ChangeOutcome.done("keep 1. Verified."), "Done: keep 1. Verified."),
        (ChangeOutcome.nothing("it matches."), "Nothing to do: it matches."),
        (ChangeOutcome.refused("the disk is full"), "Refused, nothing changed: the disk is full"),
        (ChangeOutcome("done", "done-1: applied"), "Done: done-1: applied"),
        (ChangeOutcome("undone", "Failed."), "Failed and reverted: Failed."),
        (ChangeOutcome("partial", ""), "Failed, partly reverted."),
    ],
)
def test_the_label_of_the_outcome_comes_once(done: ChangeOutcome, shown: str) -> None:
    assert plan_page.ending(ENDS[done.status][0], done) == shown


def test_the_sentence_of_an_outcome_is_whole() -> None:
    assert ChangeOutcome.done("it was changed.").sentence == "Done: it was changed."
    assert ChangeOutcome.refused("it moved").sentence == "Nothing was changed: it moved"


@pytest.mark.parametrize(
    ("error", "details"),
    [
        (StalePlanError("it moved", details=("fingerprint then 1, now 2",)), ()),
        (LockedError("it is locked", details=("by process 7",)), ("by process 7",)),
    ],
)
def test_fingerprints_are_not_shown(error: AliquotError, details: tuple[str, ...]) -> None:
    assert outcome_text.refused("n", error, lambda step, _: step).details == details


def test_a_wait_is_no_progress() -> None:
    wait = progress_line(GPU, HolderWait((Holder("process", "7"),), 60.0))
    did = describe(Reset(gpu=GPU, reason=""))
    lines = (wait, did, StructuredText("node-1: ", wait), StructuredText("node-1: ", did), "GPU: waiting for a train")
    preview = ChangePreview("t", ("n",), actions=(ActionLine("n", GPU, "reset", "", "the GPU", ""),) * 4)
    request = PartitionGpu(node="n", gpu=GPU, mig="empty")
    change = PendingChange("id", request, preview, "ana", 0.0, state=RUNNING, lines=lines)
    assert plan_page.outcome(change, "")["acts"] == 3
