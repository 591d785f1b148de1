"""The page's rows of VMs, with attach and detach, against a real libvirtd."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aliquot.dashboard.change_requests import AttachDevices, DetachDevices, SetVgpus, SwitchFunctions
from aliquot.dashboard.local.connect import open_local
from aliquot.dashboard.local.source import LocalSource
from aliquot.dashboard.view_models import ChangeOutcome, ChangePreview, Person, VmRow
from aliquot.errors import AliquotError, PermissionDeniedError
from aliquot.sim import lifecycle as control
from system.dashboard.source_contract import Bed, Loop

from .conftest import Machines

ANN = Person("ann")


class Page(Bed):
    """A page over a node ``n``: an A2 with mdevs (three A2-4Q), an L40S with vendor-specific VFIO (two L40S-8Q)."""

    source: LocalSource
    node = "n"

    def row(self, name: str) -> VmRow | None:
        return next((m for m in self.source.virtual.vms if m.name == name), None)

    def machine(self, name: str) -> VmRow:
        self.wait(lambda: self.row(name) is not None, f"machine {name}")
        found = self.row(name)
        assert found is not None
        return found

    def has(self, name: str, count: int) -> Callable[[], bool]:
        """Return a function that reports whether the VM is shown with ``count`` devices."""

        def so() -> bool:
            found = self.row(name)
            return found is not None and len(found.devices) == count

        return so

    def free(self, name: str) -> list[str]:
        found = self.row(name)
        return [d.id for d in found.free] if found else []

    def attach(self, name: str, *devices: str) -> ChangePreview:
        return self.preview(AttachDevices(namespace="", vm=name, node="n", devices=devices))

    def detach(self, name: str, *devices: str) -> ChangePreview:
        return self.preview(DetachDevices(namespace="", vm=name, node="n", devices=devices))

    def done(self, found: ChangePreview) -> ChangeOutcome:
        assert found.changes, found
        done = self.execute(found)
        assert done.status == "done", done
        return done


@pytest.fixture
def page(tmp_path: Path, uri: str, through: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    state = str(tmp_path / "state")
    for name, value in {"ALIQUOT_BACKEND": "direct", "ALIQUOT_LIBVIRT": through, "LIBVIRT_DEFAULT_URI": uri}.items():
        monkeypatch.setenv(name, value)
    control.start(state, "a2:mdev,l40s:vfio", "n")
    loop = Loop()
    try:
        made = Page(loop)
        made.source = loop.call(lambda: open_local("n", fleet=False, state_dir=state))
        loop.start(made.source.run())
        made.wait(lambda: made.source.fleet.ready, "a fleet that is ready")
        gpus = made.make_observation().inventory.gpus  # type: ignore[union-attr]
        made.done(made.preview(SwitchFunctions(gpus=tuple(f"n/{g.pci}" for g in gpus), on=True)))
        rows = made.source.virtual.vgpus
        for gpu, kind, count in ((gpus[0], "A2-4Q", 3), (gpus[1], "L40S-8Q", 2)):
            places = [f"n/{r.name}" for r in rows if r.parent == gpu.pci][:count]
            made.done(made.preview(SetVgpus(places=tuple(places), type=kind)))
        yield made
        loop.run(made.source.aclose())
    finally:
        loop.close()
        control.stop(state)


def uuids(page: Page, kind: str) -> list[str]:
    return [r.uuid if kind.startswith("A2") else r.address for r in page.source.virtual.vgpus if r.type == kind]


def test_from_attach_to_detach(page: Page, machines: Machines) -> None:
    machines.define("win11")
    row = page.machine("win11")
    assert (row.node, row.running, row.devices, row.why_not) == ("n", False, (), "")
    assert sorted(d.type for d in row.free) == ["A2-4Q", "A2-4Q", "A2-4Q", "L40S-8Q", "L40S-8Q"]
    first = uuids(page, "A2-4Q")[0]
    found = page.attach("win11", first)
    assert [(a.verb, a.node) for a in found.actions] == [("attach", "n")]
    assert any("ramFB" in line for line in found.warnings), (
        "only one device may show the screen: reported before it is saved"
    )
    assert machines.virsh("dumpxml", "win11").count("<hostdev") == 0, "a preview touches nothing"
    page.done(found)
    assert first in machines.virsh("dumpxml", "win11")
    page.wait(page.has("win11", 1), "the device")
    assert page.machine("win11").devices[0].type == "A2-4Q"
    assert first not in [d.id for d in page.machine("win11").free]
    page.done(page.detach("win11", first))
    page.wait(page.has("win11", 0), "that it is gone")
    assert machines.virsh("dumpxml", "win11").count("<hostdev") == 0


def test_what_another_machine_has_is_not_free_and_is_refused(page: Page, machines: Machines) -> None:
    machines.define("one")
    machines.define("two")
    first = uuids(page, "L40S-8Q")[0]
    page.done(page.attach("one", first))
    page.machine("two")
    page.wait(lambda: first not in page.free("two"), "that it is taken")
    found = page.attach("two", first)
    assert found.blocked
    assert "one" in found.obstacles[0].message
    assert page.execute(found).status == "refused"


def test_the_second_of_two_previews_is_refused(page: Page, machines: Machines) -> None:
    machines.define("one")
    machines.define("two")
    first = uuids(page, "A2-4Q")[0]
    mine, other = page.attach("one", first), page.attach("two", first)
    page.done(mine)
    late = page.execute(other)
    assert (late.status, late.code) == ("refused", "MOVED")
    assert first not in machines.virsh("dumpxml", "two")


def test_rules_of_several_in_one_machine_are_reported_before_saving(page: Page, machines: Machines) -> None:
    machines.define("mixed")
    page.done(page.attach("mixed", uuids(page, "A2-4Q")[0]))
    found = page.attach("mixed", uuids(page, "L40S-8Q")[0])
    assert found.obstacles or found.warnings or found.notes or found.changes
    together = page.attach("mixed", *uuids(page, "A2-4Q")[1:])
    assert all(o.rule and o.message for o in together.obstacles)


def test_what_is_not_there_is_reported(page: Page, machines: Machines) -> None:
    machines.define("win11")
    with pytest.raises(AliquotError, match="not found"):
        page.attach("nobody", uuids(page, "A2-4Q")[0])
    assert page.attach("win11", "0000:ff:00.0").blocked
    assert page.detach("win11", uuids(page, "A2-4Q")[0]).obstacles[0].rule == "NOT_ATTACHED"
    with pytest.raises(AliquotError, match="nothing is selected"):
        page.attach("win11")
    with pytest.raises(PermissionDeniedError):
        page.preview(
            AttachDevices(namespace="", vm="win11", node="n", devices=("x",)), Person("guest", reads_only=True)
        )


def test_where_libvirt_is_unavailable_the_page_says_so(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", "qemu+unix:///system?socket=/nowhere/at/all")
    page.wait(lambda: any("libvirt" in m for m in page.source.virtual.no_vms), "that libvirt is away")
    assert page.source.virtual.vms == ()
    assert "libvirt" in page.loop.run(page.source.may(ANN, "attach"))
    with pytest.raises(AliquotError):
        page.attach("win11", "x")
