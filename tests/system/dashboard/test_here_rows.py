"""Rows for VMs, from constructed inventories and compared with the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from os import environ
from typing import Any

import msgspec
import pytest

from aliquot.core.config.boot_record import RecordedRequest
from aliquot.core.model.desired import DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Holder, HostVirtualization, Inventory
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.local.desired_state import SPARE, place_of
from aliquot.dashboard.local.vm_rows import rows
from aliquot.dashboard.view_models import VgpuRow, VirtualizationView
from aliquot.kubernetes.kinds.harvester_names import DISABLED, OUT_OF_SYNC, SYNCED
from aliquot.node.connect import connect
from aliquot.sim import lifecycle as control
from support import forkserver, vgpufactory
from support.factory import inventory, with_instances

A2 = vgpufactory.gpu("NVIDIA A2")
Q4 = vgpufactory.kind("NVIDIA A2", "4Q")
replace = msgspec.structs.replace


def of(found: VirtualizationView, name: str) -> VgpuRow:
    return next(r for r in found.vgpus if r.name == name)


def test_functions_that_are_off_can_be_switched_on() -> None:
    (row,) = rows(vgpufactory.node(vgpufactory.gpu("NVIDIA A2", on=False))).sriov
    assert (row.enabled, row.functions, row.total, row.why_not) == (False, 0, 16, "")
    assert row.state == "disabled: 16 functions possible"


def test_without_the_host_driver_nothing_can_be_switched_and_it_is_reported_what_is_missing() -> None:
    bare = HostVirtualization(iommu=True, vfio=True, vgpu_manager=False)
    found = rows(vgpufactory.node(vgpufactory.gpu("NVIDIA A2", on=False), host=bare))
    assert "its driver is not the vGPU host driver" in found.sriov[0].why_not
    assert "vGPU host driver" in found.missing[0]
    assert "install" in found.missing[0]


def test_each_function_is_a_row_with_what_can_be_made_there() -> None:
    found = rows(vgpufactory.node(A2))
    assert [r.name for r in found.vgpus] == [f.pci for f in A2.virtual.functions]  # type: ignore[union-attr]
    assert found.vgpus[0].state == "free"
    assert {"A2-4Q", "A2-16Q"} <= set(found.vgpus[0].types)
    assert (found.vgpus[0].enabled, found.vgpus[0].parent) == (False, A2.pci)


def test_a_held_vgpu_cannot_be_changed_and_says_by_whom() -> None:
    gpu = vgpufactory.having(A2, (Q4, 0), (Q4, 3), held=(3,))
    found = rows(vgpufactory.node(gpu))
    idle, held = of(found, vgpufactory.address(0)), of(found, vgpufactory.address(3))
    assert (idle.type, idle.state, idle.why_not) == ("A2-4Q", "idle", "")
    assert held.holders == ("vm 4711 (guest)",)
    assert held.why_not == "it is held by vm 4711 (guest)"
    assert found.sriov[0].state == "16 functions, 2 vGPUs"
    assert found.sriov[0].why_not
    assert {t[-2:] for t in of(found, vgpufactory.address(1)).types} <= {"4Q", "4A", "4C", "4B"}, "one size only"


def test_a_full_gpu_says_why_nothing_more_can_be_made() -> None:
    gpu = vgpufactory.having(A2, *((Q4, n) for n in range(4)))
    free = of(rows(vgpufactory.node(gpu)), vgpufactory.address(9))
    assert free.types == ()
    assert free.why_not


def test_a_function_that_is_passed_through_whole_is_no_place() -> None:
    assert A2.virtual is not None
    first, *rest = A2.virtual.functions
    unavailable = replace(first, driver="vfio-pci", holders=(Holder("vm", "1"),))
    gpu = replace(A2, virtual=replace(A2.virtual, functions=(unavailable, *rest)))
    row = of(rows(vgpufactory.node(gpu)), first.pci)
    assert (row.holders, row.types) == (("vm 1",), ())
    assert "passed through" in row.why_not


def test_a_gpu_that_carries_its_vgpus_itself_has_a_row_for_each_and_each_that_could_be() -> None:
    gpu = vgpufactory.gpu("Tesla T4")
    kind = next(t for t in vgpufactory.table("Tesla T4").types if t.short == "T4-8Q")
    gpu = vgpufactory.having(gpu, (kind, 0))
    found = rows(vgpufactory.node(gpu)).vgpus
    assert found[0].name == found[0].uuid == place_of(gpu, gpu.vgpus[0])
    assert [r.name for r in found[1:]] == [f"{SPARE}{gpu.pci}#1"]


def test_behind_mig_the_reason_is_the_missing_instance_and_not_the_mode() -> None:
    gpu = vgpufactory.gpu("NVIDIA A100-SXM4-40GB", mig=True)
    row = rows(vgpufactory.node(gpu)).vgpus[0]
    assert row.types == ()
    assert "no GPU instance" in row.why_not


# -- MIG


def kept(pci: str, *names: tuple[str, int], mig: bool = True) -> RecordedRequest:
    return RecordedRequest(DesiredGpu(pci, mig, tuple(DesiredInstance(i, name, (0,)) for name, i in names)))


def test_a_configuration_counts_what_is_asked_there_possible_now_and_at_all() -> None:
    node = with_instances(inventory("a100-sxm4-40gb"), 0, "3g.20gb@4", "1g.5gb@0")
    (row,) = rows(node).migs
    counts = {p.name: (p.requested, p.present, p.available, p.total) for p in row.profiles}
    assert counts["3g.20gb"] == (1, 1, 0, 2)
    assert counts["1g.5gb"] == (1, 1, 3, 7)
    assert (row.enabled, row.status, row.why_not) == (True, SYNCED, "")


def test_what_was_asked_and_is_not_there_is_out_of_sync() -> None:
    node = with_instances(inventory("a100-sxm4-40gb"), 0, "1g.5gb@0")
    pci = node.gpus[0].pci
    ids = {p.name: p.id for p in node.family(node.gpus[0]).profiles}
    (row,) = rows(node, [kept(pci, ("3g.20gb", ids["3g.20gb"]))]).migs
    assert row.status == OUT_OF_SYNC
    assert next(p for p in row.profiles if p.name == "3g.20gb").requested == 1
    (off,) = rows(inventory("a100-sxm4-40gb")).migs
    assert (off.enabled, off.status) == (False, DISABLED)
    assert all(p.available == p.total for p in off.profiles)
    (wanted,) = rows(inventory("a100-sxm4-40gb"), [kept(pci)]).migs
    assert wanted.status == OUT_OF_SYNC, "MIG mode is requested and disabled"


def test_a_gpu_in_use_as_a_whole_says_by_whom() -> None:
    node = inventory("a100-sxm4-40gb")
    busy = replace(node, gpus=(replace(node.gpus[0], holders=(Holder("process", "7", "python3"),)),))
    assert rows(busy).migs[0].why_not == "it is in use as a whole by process 7 (python3)"
    lost = replace(node, gpus=(replace(node.gpus[0], lost=True),))
    assert "bus" in rows(lost).migs[0].why_not


# -- compared with the command line, on simulated nodes


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = str(tmp_path_factory.mktemp("state"))
    yield path
    control.stop(path)


def typed(state_dir: str, *words: str) -> dict[str, Any]:
    done = forkserver.run(
        [sys.executable, "-m", "aliquot", *words, "-o", "json"],
        env={**environ, "ALIQUOT_STATE_DIR": state_dir, "ALIQUOT_BACKEND": "direct"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=dict[str, Any])


def read(state_dir: str, name: str) -> Inventory:
    with connect(name, state_dir=state_dir, backend="direct") as connection:
        return connection.backend.read()


@pytest.mark.parametrize(
    ("template", "requested"),
    [
        ("a2:mdev", "--vgpu A2-4Q*2"),
        ("l40s:vfio", "--vgpu L40S-8Q"),
        ("tesla-t4:mdev", "--vgpu T4-4Q"),
        ("a100-sxm4-40gb:mdev", "--mig 3g.20gb,1g.5gb"),
    ],
)
def test_rows_say_what_the_command_line_says(state_dir: str, template: str, requested: str) -> None:
    name = control.start(state_dir, template, None)
    if not template.startswith("tesla"):
        typed(state_dir, "vgpu", "enable", "0", "--sim", name)
    typed(state_dir, "apply", "--gpu", "0", *requested.split(), "--sim", name)
    found = rows(read(state_dir, name))
    types = typed(state_dir, "vgpu", "types", "--sim", name)["gpus"][0]["types"]
    creatable = {shares.short(t["name"]) for t in types if t["creatable"]}
    assert creatable
    free = [r for r in found.vgpus if not r.enabled]
    assert all(set(r.types) == creatable for r in free)
    listed = typed(state_dir, "vgpu", "list", "--sim", name)["gpus"][0]
    there = {(v["function"], v["uuid"], shares.short(v["type"])) for v in listed["vgpus"]}
    assert {(r.address, r.uuid, r.type) for r in found.vgpus if r.enabled} == there
    assert [r.functions for r in found.sriov] in ([listed["functions"]], [])
    control.stop(state_dir, name)
