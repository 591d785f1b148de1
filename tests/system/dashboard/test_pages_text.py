"""Texts of the pages that users once misunderstood."""

from __future__ import annotations

import time

import msgspec
import pytest

from aliquot.core.model.placement import Placement
from aliquot.core.rendering import mig_picture
from aliquot.dashboard import formatting as words
from aliquot.dashboard import gpu_bars as pictures
from aliquot.dashboard.change_requests import PartitionGpu
from aliquot.dashboard.gpu_bars import FreeMemory
from aliquot.dashboard.pages import vgpus
from aliquot.dashboard.pages.node_summary import capacity
from aliquot.dashboard.pending_changes import ENDED, PendingChange, PendingChanges
from aliquot.dashboard.view_models import (
    CLUSTER,
    ChangeOutcome,
    ObservedFleet,
    ObservedNode,
    PastChange,
    VgpuRow,
    VirtualizationView,
)
from support import factory, vgpufactory
from system.dashboard import stub
from system.dashboard.pagedraw import document, html
from system.dashboard.stub import StubSource

replace = msgspec.structs.replace


def test_what_is_missing_elsewhere_is_a_calm_note() -> None:
    """An alert is only for a page that is useless without the requirement. Only the page of VMs reports missing VMs."""
    rows, lacks, none = stub.virtual(), ("two: no driver",), ("KubeVirt is not installed",)
    for path in ("/sriov", "/vgpus", "/machines"):
        source = StubSource(stub.fleet(), replace(rows, missing=lacks, no_vms=none))
        source.kind = CLUSTER
        of_use = document(source, path)
        assert "Note: some requirements are missing. two: no driver" in of_use.text
        assert ("KubeVirt" in of_use.text) == (path == "/machines")
        assert "Missing requirements" not in of_use.text
    cluster = StubSource(stub.fleet(), VirtualizationView(missing=lacks, no_vms=none))
    cluster.kind = CLUSTER
    bare = document(cluster, "/machines").text
    assert "Missing requirements. KubeVirt is not installed Note: some requirements are missing. two: no driver" in bare


def test_simulated_nodes_have_no_machines_and_that_is_not_a_failure() -> None:
    source = StubSource(
        stub.fleet(), VirtualizationView(missing=("two: no driver",), no_vms=("Simulated nodes have none.",))
    )
    text = document(source, "/machines").text
    assert "Simulated nodes have none." in text
    assert "missing" not in text


def test_mig_that_is_off_is_not_mig_that_is_absent() -> None:
    off = replace(factory.inventory("a30*2"), node="off")
    never = replace(vgpufactory.node(vgpufactory.gpu("NVIDIA A2")), node="never")
    observations = tuple(ObservedNode(i.node, i, stub.NOW, revision=1) for i in (never, off))
    text = document(StubSource(ObservedFleet(observations, 1, ready=True)), "/").text
    assert "MIG disabled" in text
    assert "no MIG" in text


def test_how_long_a_node_is_unavailable_grows_while_the_page_is_open() -> None:
    """Only the time changes, so the server sends nothing and the page counts by itself."""
    observation = ObservedNode("gone", factory.inventory("a30"), words.now() - 7200, "it does not answer", revision=1)
    source = StubSource(ObservedFleet((observation,), 1, ready=True))
    assert "not responding, last read 2 h ago" in document(source, "/").text
    assert f'<time data-ago="{observation.observed_at}">2 h ago</time>' in html(source, "/")
    never = ObservedNode("gone", error="it does not answer", revision=1)
    assert "not responding, never read" in document(StubSource(ObservedFleet((never,), 1, ready=True)), "/").text


def test_a_gpu_whose_instances_have_their_vgpus_is_not_full() -> None:
    def row(n: int, type: str = "", why: str = "", state: str = "free") -> VgpuRow:
        place = f"0000:08:00.{n}"
        return VgpuRow("one", place, place, "0000:08:00.0", "NVIDIA A100", type, why_not=why, state=state)

    why = "every GPU instance 1g.5gb is taken"
    (answer,) = vgpus.caps((row(4, "A100-1-5C"), row(5, why=why), row(6, state="passed through whole (vfio-pci)")))
    assert "Its other 1 place stay empty: every GPU instance 1g.5gb is taken" in answer
    assert "full" not in answer
    (answer,) = vgpus.caps((row(4, "A100-40C"), row(5, why="no memory is left")))
    assert "is full: 1 vGPU (A100-40C) use all" in answer
    assert vgpus.caps((row(4, "A100-1-5C"), row(6, state="passed through whole (vfio-pci)"))) == ()


@pytest.mark.parametrize(
    ("seconds", "output"), [(0.01, "less than 0.1 s"), (0.12, "0.1 s"), (2.52, "2.5 s"), (12.9, "12 s"), (200, "3 min")]
)
def test_how_long_something_took(seconds: float, output: str) -> None:
    assert words.took(seconds) == output


def test_a_hole_is_what_moving_closes_and_the_rest_is_left_over() -> None:
    """The totals, the picture and the text use the same terms."""
    instance = mig_picture.DrawnInstance("a", "1g.5gb", Placement(2, 1))
    labels = {
        b.label
        for b in pictures.instances("x", 8, (instance,), gaps=FreeMemory({7}, broken=True)).blocks
        if not b.letter
    }
    assert labels == {"hole"}
    labels = {b.label for b in pictures.instances("x", 8, (instance,), gaps=FreeMemory({7})).blocks if not b.letter}
    assert labels == {"free", "left over"}
    wanted = pictures.instances("x", 8, (instance,), gaps=FreeMemory({4, 5}, wanted="3g.20gb"))
    assert {b.label for b in wanted.blocks if b.kind == pictures.HOLE} == {"no 3g.20gb"}


def test_the_past_of_a_node_that_is_gone_is_not_shown_as_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    source = StubSource(ObservedFleet((ObservedNode("here", revision=1),), 1, ready=True))

    async def none(node: str | None = None, most: int = 200) -> tuple[PastChange, ...]:
        return ()

    monkeypatch.setattr(source, "history", none)
    assert "The node lab does not exist or was removed." in document(source, "/history?node=lab").text
    assert "No changes are recorded yet" in document(source, "/history?node=here").text


def test_a_plan_that_was_refused_is_reported_as_what_it_was() -> None:
    """It was based on an earlier state, its actions were not executed, and its node may not exist."""
    source = StubSource(stub.fleet())
    pending = PendingChanges(source)
    done = ChangeOutcome.refused(
        "the instance is held",
        ("by process 4711",),
        "IN_USE",
        "end the holders and run again, or add --policy wait",
    )
    change = PendingChange(
        "one",
        PartitionGpu(node="dgx-1", gpu="0000:47:00.0", mig="3g.20gb"),
        stub.changing(),
        "ana",
        1.0,
        state=ENDED,
        done=done,
    )
    pending._changes["one"] = replace(change, made=time.time(), ended=time.time())
    text = document(source, "/plans/one", pending=pending).text
    assert "Refused, nothing changed: the instance is held" in text
    for word in (
        "by process 4711",
        "When planned",
        "Planned actions, in this order",
        "Plan it with waiting",
        "Show the current state of dgx-1",
    ):
        assert word in text
    for word in ("Nothing was changed", "--policy", "Actions, in this order"):
        assert word not in text.partition("As text, for a ticket")[0]
    empty_fleet = StubSource(ObservedFleet((), 1, ready=True))
    assert "Show the current state of dgx-1" not in document(empty_fleet, "/plans/one", pending=pending).text


def test_profiles_of_which_more_would_fit_come_first() -> None:
    rows = [name for name, count in capacity(stub.fleet()) if count.repacked > count.now]
    assert rows
    assert [name for name, _ in capacity(stub.fleet())][: len(rows)] == rows
