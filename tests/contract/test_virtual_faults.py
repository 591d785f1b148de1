"""Failures on the kernel's side: late functions, a busy lock, refused writes, kills, a damaged owner map."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from aliquot.core.model.inventory import Gpu
from aliquot.errors import AliquotError, HardwareError, InUseError, PermissionDeniedError, StorageError
from aliquot.hardware.kernel import sriov_switch as switching
from aliquot.hardware.kernel.sriov_manage import NoTools
from aliquot.hardware.kernel.vgpu_owners import OwnerMapFile
from aliquot.hardware.kernel_files import KernelFiles
from aliquot.hardware.node_backend import NodeBackend, NodeGpuDriver
from contract.virtual_bench import KINDS, Bench, Start, bench, carrier, end, gpu, make, ready, types, uuid

__all__ = ["bench"]

TEMPLATES = {"tesla-t4:mdev": "T4-4Q", "a2:mdev": "A2-4Q", "a2:vfio": "A2-4Q"}
every = pytest.mark.parametrize("template", TEMPLATES)
twin = pytest.mark.parametrize("kind", ["twin"])
both = pytest.mark.parametrize("kind", KINDS)


class KilledError(BaseException):
    """A stand-in for SIGKILL, which no code may catch."""


class Cut:
    """The kernel's files for a process that is killed before or after its n-th write (from 1)."""

    def __init__(self, files: KernelFiles, nth: int, before: bool) -> None:
        self._files = files
        self._left = nth
        self._before = before

    def read(self, path: str) -> str:
        return self._files.read(path)

    def write(self, path: str, text: str) -> None:
        self._left -= 1
        if self._left == 0 and self._before:
            raise KilledError
        self._files.write(path, text)
        if self._left == 0:
            raise KilledError

    def names(self, path: str) -> tuple[str, ...]:
        return self._files.names(path)

    def link(self, path: str) -> str:
        return self._files.link(path)

    def real(self, path: str) -> str:
        return self._files.real(path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def claimed(self, path: str) -> bool:
        return self._files.claimed(path)


class Blind(Cut):
    """Files of a process that may not inspect the processes of VMs."""

    def __init__(self, files: KernelFiles) -> None:
        super().__init__(files, 0, True)

    def names(self, path: str) -> tuple[str, ...]:
        if path.endswith("/fd") and path != "/proc/1/fd":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().names(path)


def create(node: Bench, backend: NodeBackend[NodeGpuDriver], found: Gpu, short: str, number: int = 0) -> None:
    kind = types(node).by_name[short]
    assert kind.id is not None
    backend.create_vgpu(found.pci, carrier(found, number), kind.id, uuid(number))


def owners(node: Bench) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(Path(node.directory, "vgpu-owners.json").read_text())["content"][
        "vgpus"
    ]
    return found


# -- virtual functions


@both
def test_functions_that_come_late(bench: Start, kind: str) -> None:
    node = bench("a2:vfio", kind)
    node.control("fault", kind="vf-delay", seconds=1.0)
    found = ready(node)
    assert found.virtual is not None
    assert len(found.virtual.functions) == 16
    assert all(f.driver == "nvidia" for f in found.virtual.functions)


@twin
def test_functions_that_do_not_come(bench: Start, kind: str) -> None:
    node = bench("a2:vfio", kind)
    node.control("fault", kind="vf-delay", seconds=switching.DEADLINE_S * 2)
    with pytest.raises(HardwareError, match=r"of 16 virtual functions of .* were ready after 120 s") as caught:
        ready(node)
    assert "exist" in caught.value.details[0]
    assert node.messages, "it reports its progress while it waits"
    assert all(" of 16 virtual functions are ready" in line for line in node.messages)


@both
def test_the_lock_is_asked_for_again(bench: Start, kind: str) -> None:
    node = bench("a2:vfio", kind)
    node.control("fault", kind="unbind-lock", gpu=0, calls=3)
    assert len(getattr(ready(node).virtual, "functions", ())) == 16


@twin
def test_the_lock_is_not_to_be_had(bench: Start, kind: str) -> None:
    node = bench("a2:vfio", kind)
    before = gpu(node)
    node.control("fault", kind="unbind-lock", gpu=0, calls=1000)
    with pytest.raises(InUseError, match="client") as caught:
        node.backend.set_functions(before.pci, 16)
    assert any("unbindLock" in line for line in caught.value.details)
    with pytest.raises(InUseError, match="in use"):
        node.backend.set_passthrough(before.pci, True)
    assert gpu(node) == before


@twin
def test_without_the_program(bench: Start, kind: str) -> None:
    # Only a program can switch them under NVIDIA's driver: the refusal names the missing one.
    node = bench("a2:vfio", kind)
    backend = node.open(tools=NoTools())
    found = gpu(node)
    with pytest.raises(AliquotError, match="sriov-manage"):
        backend.set_functions(found.pci, 16)
    assert gpu(node) == found


class HalfWay:
    """A ``sriov-manage`` that ends after it has unbound the GPU from its driver."""

    sriov_manage = "/usr/lib/nvidia/sriov-manage"

    def __init__(self, files: KernelFiles) -> None:
        self._files = files

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        self._files.write(f"/sys/bus/pci/devices/{pci}/driver/unbind", pci)
        return 1, "/usr/lib/nvidia/sriov-manage: line 77: echo: write error"


@twin
def test_a_program_that_stops_half_way(bench: Start, kind: str) -> None:
    # NVML does not list a GPU without a driver, so that no undo could reach it. The GPU gets its driver back
    # immediately.
    node = bench("a2:vfio*2", kind)
    before = node.backend.read().gpus
    backend = node.open(tools=HalfWay(node.files))
    with pytest.raises(HardwareError, match="failed") as caught:
        backend.set_functions(before[1].pci, 16)
    assert any("line 77" in line for line in caught.value.details)
    assert node.backend.read().gpus == before


@twin
def test_a_kill_while_functions_are_switched(bench: Start, kind: str) -> None:
    # The end of a pod also ends the program. The GPU, which NVML does not list any more, is listed and bound again.
    node = bench("a2:vfio*2", kind)
    before = node.backend.read().gpus
    pci = before[1].pci
    with pytest.raises(KilledError):
        node.open(Cut(node.files, 1, True), HalfWay(node.files)).set_functions(pci, 16)
    node.backend.nvml.renumber()
    inventory = node.backend.read()
    assert [(g.pci, g.uuid, g.index) for g in inventory.gpus] == [(g.pci, g.uuid, g.index) for g in before]
    assert [note for note in inventory.notes if pci in note and "no driver" in note]
    node.backend.set_passthrough(pci, False)
    assert node.backend.read().gpus == before
    node.backend.set_functions(pci, 16)
    assert json.loads(Path(node.directory, "vgpu-owners.json").read_text())["content"]["handed"] == []


@twin
def test_the_right_number_is_left_alone(bench: Start, kind: str) -> None:
    # Enabling them again would destroy GPU instances and mixed-size mode.
    node = bench("l40s:vfio", kind)
    found = ready(node)
    vgpu = make(node, found, "L40S-8Q")
    node.backend.set_functions(found.pci, 32)
    assert gpu(node).vgpus == (vgpu,)
    assert [c["call"] for c in node.calls()].count("SriovManage") == 1


# -- refused writes


@every
@both
@pytest.mark.parametrize("number", [errno.EIO, errno.EBUSY, errno.EPERM, errno.ENOSPC])
def test_a_creation_that_is_refused(bench: Start, template: str, kind: str, number: int) -> None:
    node = bench(template, kind)
    found = ready(node)
    make(node, found, TEMPLATES[template], 0)
    before = gpu(node)
    node.control("fault", kind="fail", call="SysfsWrite", code=number, calls=1)
    with pytest.raises(AliquotError) as caught:
        create(node, node.backend, found, TEMPLATES[template], 1)
    assert errno.errorcode[number] in " ".join(caught.value.details)
    assert caught.value.next_step
    assert ("0x56" in " ".join(caught.value.details)) == (number == errno.EIO)
    assert isinstance(caught.value, InUseError) == (number == errno.EBUSY)
    assert gpu(node) == before
    assert [o["uuid"] for o in owners(node)] == [uuid(0)], "a refused vGPU has no owner"
    make(node, found, TEMPLATES[template], 1)


@every
@both
def test_an_end_that_is_refused(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    found = ready(node)
    vgpu = make(node, found, TEMPLATES[template])
    node.control("fault", kind="fail", call="SysfsWrite", code=errno.EIO, calls=1)
    with pytest.raises(HardwareError):
        end(node, found, vgpu)
    assert gpu(node).vgpus == (vgpu,), "its owner still has it"
    end(node, found, vgpu)


@twin
def test_without_the_right(bench: Start, kind: str) -> None:
    node = bench("a2:vfio", kind)
    found = ready(node)
    node.control("fault", kind="unprivileged")
    with pytest.raises(PermissionDeniedError):
        make(node, found, "A2-4Q")
    assert gpu(node) == found


# -- kills


@every
@twin
@pytest.mark.parametrize("before", [True, False], ids=["before the act", "after the act"])
def test_a_kill_between_record_and_act(bench: Start, template: str, kind: str, before: bool) -> None:
    node = bench(template, kind)
    found = ready(node)
    with pytest.raises(KilledError):
        create(node, node.open(Cut(node.files, 1, before)), found, TEMPLATES[template])
    recorded = owners(node)
    assert [o["uuid"] for o in recorded] == [uuid(0)], "the record is on disk before the change"
    after = gpu(node)
    assert after.virtual is not None
    assert after.virtual.recorded_vgpus == (), (
        "a change that a kill prevented does not count as a vGPU of an earlier boot"
    )
    if before:
        assert after == found
        other = make(node, found, TEMPLATES[template], 1)
        assert [o["uuid"] for o in owners(node)] == [other.uuid], (
            "the next change removes the record of a vGPU that never existed"
        )
    else:
        (made,) = after.vgpus
        assert made.ownership_token == recorded[0]["claim"], "it belongs to Aliquot, and the next run can end it"
        end(node, found, made)
        assert gpu(node) == found


@every
@twin
@pytest.mark.parametrize("before", [True, False], ids=["before the act", "after the act"])
def test_a_kill_while_ending(bench: Start, template: str, kind: str, before: bool) -> None:
    node = bench(template, kind)
    found = ready(node)
    vgpu = make(node, found, TEMPLATES[template])
    with pytest.raises(KilledError):
        node.open(Cut(node.files, 1, before)).destroy_vgpu(
            found.pci, vgpu.function, vgpu.type_id, vgpu.uuid, vgpu.ownership_token
        )
    after = gpu(node)
    assert after.vgpus == ((vgpu,) if before else ())
    again = make(node, found, TEMPLATES[template], 1)
    assert {o["uuid"] for o in owners(node)} == {v.uuid for v in gpu(node).vgpus}
    assert again.uuid == uuid(1)


@twin
@pytest.mark.parametrize("nth", range(1, 5))
@pytest.mark.parametrize("before", [True, False])
def test_a_kill_while_passing_through(bench: Start, kind: str, nth: int, before: bool) -> None:
    # Steps: the unbind lock, the override, the unbinding, the probe. After a stop at any of them the GPU is listed and
    # can be passed through or taken back.
    node = bench("a2:mdev*2", kind)
    whole = node.backend.read().gpus
    pci = whole[1].pci
    with pytest.raises(KilledError):
        node.open(Cut(node.files, nth, before)).set_passthrough(pci, True)
    node.backend.nvml.renumber()
    inventory = node.backend.read()
    assert [(g.pci, g.uuid, g.product, g.index) for g in inventory.gpus] == [
        (g.pci, g.uuid, g.product, g.index) for g in whole
    ]
    hanging = inventory.gpus[1].virtual is not None and inventory.gpus[1].virtual.driver == ""
    assert any("was interrupted" in note for note in inventory.notes) == hanging
    node.backend.set_passthrough(pci, True)
    assert node.backend.read().gpus[1].passthrough
    node.backend.set_passthrough(pci, False)
    assert node.backend.read().gpus == whole


@twin
@pytest.mark.parametrize("nth", range(1, 5))
def test_a_kill_while_taking_back(bench: Start, kind: str, nth: int) -> None:
    node = bench("a2:mdev*2", kind)
    whole = node.backend.read().gpus
    pci = whole[0].pci
    node.backend.set_passthrough(pci, True)
    with pytest.raises(KilledError):
        node.open(Cut(node.files, nth, False)).set_passthrough(pci, False)
    node.backend.nvml.renumber()
    assert [(g.pci, g.uuid) for g in node.backend.read().gpus] == [(g.pci, g.uuid) for g in whole]
    node.backend.set_passthrough(pci, False)
    assert node.backend.read().gpus == whole


# -- the owner map


@every
@twin
@pytest.mark.parametrize("body", [b"", b'{"version":1,"vgpus":[{"func', b"\x00\xff", b'{"vgpus": 7}', b"[" * 100_000])
def test_a_damaged_map(bench: Start, template: str, kind: str, body: bytes) -> None:
    node = bench(template, kind)
    found = ready(node)
    vgpu = make(node, found, TEMPLATES[template])
    Path(node.directory, "vgpu-owners.json").write_bytes(body)
    inventory = node.backend.read()
    assert [note for note in inventory.notes if "damaged" in note]
    (adopted,) = inventory.gpus[0].vgpus
    assert (adopted.function, adopted.type_id, adopted.ownership_token) == (vgpu.function, vgpu.type_id, "")
    for claimed in (vgpu, adopted):
        with pytest.raises(StorageError, match="damaged") as caught:
            end(node, found, claimed)
        assert caught.value.next_step, "its owner is unknown: nothing is ended"
    make(node, found, TEMPLATES[template], 1)
    assert Path(node.directory, "vgpu-owners.json.unreadable").read_bytes() == body
    assert node.backend.read().notes == ()
    assert len(owners(node)) == 2, "the running vGPU was adopted"
    end(node, found, next(v for v in gpu(node).vgpus if v.function == adopted.function and not v.ownership_token))


@twin
def test_a_map_that_cannot_be_written(bench: Start, kind: str, tmp_path: Path) -> None:
    # No change without its record.
    node = bench("a2:vfio", kind)
    found = ready(node)
    backend = node.open()
    backend.kernel.owners = OwnerMapFile(str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(AliquotError) as caught:
        create(node, backend, found, "A2-4Q")
    assert caught.value.exit_code == 20
    assert gpu(node) == found


@twin
def test_workers_write_one_map(bench: Start, kind: str) -> None:
    node = bench("a2:vfio*4", kind)
    gpus = node.backend.read().gpus
    for each in gpus:
        node.backend.set_functions(each.pci, 16)
    ready_gpus = node.backend.read().gpus
    kind_id = types(node).by_name["A2-8Q"].id or 0
    wrong: list[BaseException] = []

    def worker(number: int, found: Gpu) -> None:
        try:
            for k in (0, 1):
                node.backend.create_vgpu(found.pci, carrier(found, k), kind_id, f"{uuid(number)[:-2]}{number}{k}")
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            wrong.append(error)

    threads = [threading.Thread(target=worker, args=(n, g)) for n, g in enumerate(ready_gpus)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    made = [v for g in node.backend.read().gpus for v in g.vgpus]
    assert len(made) == 8
    assert len({v.ownership_token for v in made} - {""}) == 8
    assert len(owners(node)) == 8


# -- holders


@every
@twin
def test_a_process_that_cannot_look_does_not_destroy(bench: Start, template: str, kind: str) -> None:
    node = bench(template, kind)
    found = ready(node)
    vgpu = make(node, found, TEMPLATES[template])
    other = vgpu.uuid if template.endswith("mdev") else vgpu.function
    blind = node.open(Blind(node.files))
    assert blind.read().gpus[0].vgpus[0].holders == (), "no process, and nothing is hidden"
    pid = node.control("vm-start", name="web", devices=[other])["pid"]
    (seen,) = blind.read().gpus[0].vgpus
    (holder,) = seen.holders
    assert (holder.kind, holder.id) == ("process", "unknown")
    assert str(pid) in holder.name
    assert "EACCES" in holder.name
    with pytest.raises(InUseError, match="unknown"):
        blind.destroy_vgpu(found.pci, vgpu.function, vgpu.type_id, vgpu.uuid, vgpu.ownership_token)
    assert gpu(node).vgpus[0].ownership_token == vgpu.ownership_token


# -- an error on one GPU


@twin
def test_a_gpu_whose_files_cannot_be_read_hides_no_other(bench: Start, kind: str) -> None:
    node = bench("a2:vfio*3", kind)
    whole = node.backend.read()
    sick = whole.gpus[1].pci

    class Sick(Blind):
        def read(self, path: str) -> str:
            if sick in path and "sriov_" in path:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return super().read(path)

    backend = node.open(Sick(node.files))
    found = backend.read()
    assert [g.virtual is None for g in found.gpus] == [False, True, False]
    assert [(g.pci, g.uuid) for g in found.gpus] == [(g.pci, g.uuid) for g in whole.gpus]
    (note,) = found.notes
    assert sick in note
    assert "EIO" in note
    with pytest.raises(HardwareError):
        backend.read_gpu(sick)
    assert backend.read_gpu(whole.gpus[0].pci) == whole.gpus[0]
