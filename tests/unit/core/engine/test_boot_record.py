"""Desired states that an apply records for the next boot."""

from __future__ import annotations

import msgspec

from aliquot.core.config.boot_record import RecordedRequest, merge_requests
from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory, Mig
from aliquot.core.planner.plan import plan
from aliquot.errors import HardwareError, StorageError
from laws.oracle import mig_nodes
from unit.core.engine.hosts import desired_state, host
from unit.core.engine.memory import Bench

replace = msgspec.structs.replace
A100 = catalog.family("a100-40gb")


class MemoryBootRecord:
    """A boot record in a list. If ``broken`` is set, calls raise it."""

    def __init__(self) -> None:
        self.kept: tuple[RecordedRequest, ...] = ()
        self.broken: StorageError | None = None

    def record(self, desired: Desired, after: Inventory) -> None:
        if self.broken:
            raise self.broken
        self.kept = merge_requests(self.kept, desired, after)


def bench(node: Inventory) -> tuple[Bench, MemoryBootRecord]:
    made, boot_record = Bench(node), MemoryBootRecord()
    made.context = msgspec.structs.replace(made.context, boot_record=boot_record)
    return made, boot_record


def run(made: Bench, desired: Desired) -> ApplyOutcome:
    return apply(plan(made.memory.inventory, desired), made.context, made.messages.append)


def test_a_met_request_is_kept_once() -> None:
    made, boot_record = bench(host("a2", "sriov-mdev"))
    desired = desired_state(made.memory.inventory, "A2-4Q", "A2-4Q")
    assert run(made, desired).status == "done"
    assert [k.desired.vgpus for k in boot_record.kept] == [desired.gpus[0].vgpus]
    kept = boot_record.kept
    assert run(made, desired).status == "nothing"
    assert boot_record.kept == kept


def test_a_request_that_was_met_already_is_kept() -> None:
    # An apply was killed between its last call and the record. The same request again finds nothing to do.
    made, boot_record = bench(host("a2", "sriov-mdev"))
    desired = desired_state(made.memory.inventory, "A2-4Q")
    assert run(made, desired).status == "done"
    boot_record.kept = ()
    assert run(made, desired).status == "nothing"
    assert len(boot_record.kept) == 1


def test_what_failed_is_not_kept() -> None:
    made, boot_record = bench(host("a2", "sriov-mdev"))
    assert run(made, desired_state(made.memory.inventory, "A2-4Q")).status == "done"
    previous = boot_record.kept

    def fail(n: int, what: str) -> None:
        if what.startswith("create-vgpu"):
            raise HardwareError("refused")

    made.memory.before = fail
    assert run(made, desired_state(made.memory.inventory, "A2-8Q")).status in ("undone", "partial")
    assert boot_record.kept == previous


def test_what_waits_for_a_reboot_is_kept_for_it() -> None:
    off = replace(mig_nodes.gpu(A100, ()), mig=Mig(True, "disabled", "disabled"), resettable=False)
    made, boot_record = bench(mig_nodes.node(off))
    desired = mig_nodes.desired_state(A100, ["7g.40gb"])
    assert run(made, desired).status == "reboot"
    assert boot_record.kept[0].desired.instances == desired.gpus[0].instances


def test_a_record_that_cannot_be_kept_is_reported_and_no_failure() -> None:
    made, boot_record = bench(host("a2", "sriov-mdev"))
    boot_record.broken = StorageError("no space left on device")
    assert run(made, desired_state(made.memory.inventory, "A2-4Q")).status == "done"
    assert any("not recorded for the next boot" in line for line in made.messages)
    assert boot_record.kept == ()
