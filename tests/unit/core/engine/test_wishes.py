"""Which wishes an apply leaves for the next boot."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.config.boot_record import RecordedRequest
from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory, Mig
from aliquot.core.planner.plan import plan
from aliquot.errors import HardwareError, StorageError
from laws.oracle import world
from unit.core.engine.hosts import host, wish
from unit.core.engine.memory import Bench

replace = msgspec.structs.replace
A100 = catalog.family("a100-40gb")


class MemoryWishes:
    """A record in a list. ``broken`` is raised instead of answering."""

    def __init__(self) -> None:
        self.kept: tuple[RecordedRequest, ...] = ()
        self.saves = 0
        self.broken: StorageError | None = None

    def load(self) -> tuple[RecordedRequest, ...]:
        if self.broken:
            raise self.broken
        return self.kept

    def save(self, kept: Iterable[RecordedRequest]) -> None:
        self.saves += 1
        self.kept = tuple(kept)


def bench(node: Inventory) -> tuple[Bench, MemoryWishes]:
    made, wishes = Bench(node), MemoryWishes()
    made.world.boot_record = wishes
    return made, wishes


def run(made: Bench, desired: Desired) -> ApplyOutcome:
    return apply(plan(made.memory.inventory, desired), made.world, made.said.append)


def test_a_met_wish_is_kept_once() -> None:
    made, wishes = bench(host("a2", "sriov-mdev"))
    desired = wish(made.memory.inventory, "A2-4Q", "A2-4Q")
    assert run(made, desired).status == "done"
    assert [k.desired.vgpus for k in wishes.kept] == [desired.gpus[0].vgpus]
    assert run(made, desired).status == "nothing"
    assert wishes.saves == 1, "a record that would not change is not written"


def test_a_wish_that_was_met_already_is_kept() -> None:
    """An apply that was killed between its last call and the record is asked again, and finds nothing to do."""
    made, wishes = bench(host("a2", "sriov-mdev"))
    desired = wish(made.memory.inventory, "A2-4Q")
    assert run(made, desired).status == "done"
    wishes.kept = ()
    assert run(made, desired).status == "nothing"
    assert len(wishes.kept) == 1


def test_what_failed_is_not_kept() -> None:
    made, wishes = bench(host("a2", "sriov-mdev"))
    assert run(made, wish(made.memory.inventory, "A2-4Q")).status == "done"
    former = wishes.kept

    def fail(n: int, what: str) -> None:
        if what.startswith("create-vgpu"):
            raise HardwareError("refused")

    made.memory.before = fail
    assert run(made, wish(made.memory.inventory, "A2-8Q")).status in ("undone", "partial")
    assert wishes.kept == former


def test_what_waits_for_a_reboot_is_kept_for_it() -> None:
    off = replace(world.gpu(A100, ()), mig=Mig(True, "disabled", "disabled"), resettable=False)
    made, wishes = bench(world.node(off))
    desired = world.wish(A100, ["7g.40gb"])
    assert run(made, desired).status == "reboot"
    assert wishes.kept[0].desired.instances == desired.gpus[0].instances


def test_a_record_that_cannot_be_kept_is_said_and_no_failure() -> None:
    made, wishes = bench(host("a2", "sriov-mdev"))
    wishes.broken = StorageError("no space left on device")
    assert run(made, wish(made.memory.inventory, "A2-4Q")).status == "done"
    assert any("not recorded for the next boot" in line for line in made.said)
    assert wishes.saves == 0, "what cannot be read is not written over"
