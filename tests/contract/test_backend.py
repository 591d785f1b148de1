"""The Backend contract, over every backend that can run here (``tests/system/hardware`` reads a real GPU)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from aliquot.core.engine.ports import GpuDriver
from aliquot.core.model.inventory import Gpu
from aliquot.errors import AliquotError, GpuLostError, HardwareError, InUseError, NoDriverError, PermissionDeniedError
from aliquot.foundation.threads import ThreadWorkers
from aliquot.sim.client import SimClient
from contract.conftest import EVERY, Machine

Start = Callable[[str], Machine]

pytestmark = pytest.mark.parametrize("kind", EVERY)


def gpu_of(backend: GpuDriver, index: int = 0) -> Gpu:
    return backend.read().gpus[index]


def layout(gpu: Gpu) -> list[tuple[str, str, list[tuple[str, str]]]]:
    return [(i.profile, i.placement, [(c.profile, c.placement) for c in i.compute_instances]) for i in gpu.instances]


def mig_gpu(backend: GpuDriver, index: int = 0) -> str:
    """Enable MIG mode on a GPU and return its address."""
    pci = gpu_of(backend, index).pci
    assert backend.set_mode(pci, True)
    return pci


def test_identity(machine: Start, kind: str) -> None:
    backend = machine("a100-sxm4-40gb,tesla-t4,h100-80gb-hbm3").open(kind)
    inventory = backend.read()
    a100, t4, h100 = inventory.gpus
    assert inventory.driver
    assert inventory.nvml
    assert inventory.notes == ()
    assert inventory.tables == ()
    assert [g.index for g in inventory.gpus] == [0, 1, 2]
    assert [g.family for g in inventory.gpus] == ["a100-40gb", None, "h100-80gb-sxm"]
    assert [g.mig.capable for g in inventory.gpus] == [True, False, True]
    assert a100.product == "NVIDIA A100-SXM4-40GB"
    assert a100.pci_device == "0x20B010DE"
    assert t4.subsystem == "0x12A210DE"
    assert len({g.pci for g in inventory.gpus}) == len({g.uuid for g in inventory.gpus}) == 3
    assert all(g.pci.startswith("0000:") and g.uuid.startswith("GPU-") for g in inventory.gpus)
    assert h100.resettable


def test_reading_writes_nothing_and_repeats(machine: Start, kind: str) -> None:
    node = machine("dgx-a100")
    backend = node.open(kind)
    first = backend.read()
    assert backend.read() == first
    assert backend.read_gpu(first.gpus[3].pci) == first.gpus[3]
    assert first.fingerprint == backend.read().fingerprint
    assert node.writes() == []


@pytest.mark.parametrize("product", ["a100-sxm4-40gb", "h100-80gb-hbm3", "a30"])
def test_mode_on_and_off(machine: Start, kind: str, product: str) -> None:
    backend = machine(product).open(kind)
    pci = gpu_of(backend).pci
    assert backend.set_mode(pci, True) is True
    mig = backend.read_gpu(pci).mig
    assert (mig.current, mig.pending) == ("enabled", "enabled")
    assert backend.set_mode(pci, True) is True
    assert backend.set_mode(pci, False) is True
    assert not backend.read_gpu(pci).mig.enabled


def test_a_mode_change_waits_while_another_client_is_there(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    backend = node.open(kind)
    pci = gpu_of(backend).pci
    node.node.hold(0)
    assert backend.set_mode(pci, True) is False
    mig = backend.read_gpu(pci).mig
    assert (mig.current, mig.pending) == ("disabled", "enabled")


def test_mode_of_a_gpu_without_mig(machine: Start, kind: str) -> None:
    backend = machine("tesla-t4").open(kind)
    with pytest.raises(HardwareError) as caught:
        backend.set_mode(gpu_of(backend).pci, True)
    assert caught.value.nvml_code == 3


def test_create_read_destroy(machine: Start, kind: str) -> None:
    backend = machine("a100-sxm4-40gb").open(kind)
    pci = mig_gpu(backend)
    half = backend.create_gpu_instance(pci, 9, 4, 4)
    assert half == 2, "the id encodes the placement: the upper half"
    small = backend.create_gpu_instance(pci, 19, 0, 1)
    assert small == 7
    assert backend.create_compute_instance(pci, half, 2, None, 3) == 0
    assert backend.create_compute_instance(pci, small, 0, None, 1) == 0
    gpu = backend.read_gpu(pci)
    assert layout(gpu) == [("3g.20gb", "4:4", [("3g.20gb", "0:3")]), ("1g.5gb", "0:1", [("1g.5gb", "0:1")])]
    uuids = [c.uuid for i in gpu.instances for c in i.compute_instances]
    assert len(set(uuids)) == 2
    assert all(u.startswith("MIG-") for u in uuids)
    assert gpu.slots_mirrored is False
    minors = [(i.capability_minor, i.compute_instances[0].capability_minor) for i in gpu.instances]
    base = 3 + 135 * gpu.minor
    assert minors == [(base + 18, base + 19), (base + 63, base + 64)]
    for instance in (half, small):
        backend.destroy_compute_instance(pci, instance, 0)
        backend.destroy_gpu_instance(pci, instance)
    assert backend.read_gpu(pci).instances == ()


def test_compute_instances_inside(machine: Start, kind: str) -> None:
    backend = machine("a100-sxm4-40gb").open(kind)
    pci = mig_gpu(backend)
    instance = backend.create_gpu_instance(pci, 9, 0, 4)
    assert backend.create_compute_instance(pci, instance, 0, 2, 1) == 0
    assert backend.create_compute_instance(pci, instance, 1, 0, 2) == 1
    (found,) = backend.read_gpu(pci).instances
    assert [(c.id, c.profile, c.placement) for c in found.compute_instances] == [
        (0, "1c.3g.20gb", "2:1"),
        (1, "2c.3g.20gb", "0:2"),
    ]
    with pytest.raises(HardwareError) as caught:
        backend.create_compute_instance(pci, instance, 0, None, 1)
    assert caught.value.nvml_code == 23
    backend.destroy_compute_instance(pci, instance, 0)
    assert [c.id for c in backend.read_gpu(pci).instances[0].compute_instances] == [1]


def test_an_orphan_is_seen(machine: Start, kind: str) -> None:
    backend = machine("h100-80gb-hbm3").open(kind)
    pci = mig_gpu(backend)
    backend.create_gpu_instance(pci, 14, 2, 2)
    assert layout(backend.read_gpu(pci)) == [("2g.20gb", "2:2", [])]


def test_what_the_hardware_refuses(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*2")
    backend = node.open(kind)
    pci, off = mig_gpu(backend), gpu_of(backend, 1).pci
    instance = backend.create_gpu_instance(pci, 9, 0, 4)
    backend.create_compute_instance(pci, instance, 2, None, 3)

    def refused(act: Callable[[], object]) -> AliquotError:
        before = backend.read()
        with pytest.raises(AliquotError) as caught:
            act()
        assert backend.read() == before
        assert caught.value.next_step
        return caught.value

    def code(act: Callable[[], object]) -> int | None:
        error = refused(act)
        assert isinstance(error, HardwareError)
        return error.nvml_code

    assert code(lambda: backend.create_gpu_instance(off, 9, 0, 4)) == 3, "MIG mode is off"
    assert code(lambda: backend.create_gpu_instance(pci, 9, 2, 4)) == 2, "not a placement"
    assert code(lambda: backend.create_gpu_instance(pci, 19, 1, 1)) == 23, "occupied"
    assert code(lambda: backend.create_gpu_instance(pci, 12345, 0, 1)) in (2, 3), "no such profile"
    assert code(lambda: backend.destroy_gpu_instance(pci, 9)) == 6, "no such instance"
    assert code(lambda: backend.destroy_compute_instance(pci, instance, 3)) == 6
    assert isinstance(refused(lambda: backend.destroy_gpu_instance(pci, instance)), InUseError), (
        "has a compute instance"
    )


def test_holders(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*2")
    backend = node.open(kind)
    pci = mig_gpu(backend)
    ids = [backend.create_gpu_instance(pci, 19, start, 1) for start in (0, 3)]
    for each in ids:
        backend.create_compute_instance(pci, each, 0, None, 1)
    pid = node.node.hold(0, ids[1])
    other = node.node.hold(1)
    gpu = backend.read_gpu(pci)
    idle, held = gpu.instances
    assert (idle.held, idle.holders, gpu.holders) == (False, (), ())
    assert held.held
    assert [(h.kind, h.id) for h in held.holders] == [("process", str(pid))]
    assert held.compute_instances[0].holders == held.holders
    assert held.holders[0].name == "python3"
    assert [h.id for h in gpu_of(backend, 1).holders] == [str(other)]
    with pytest.raises(InUseError):
        backend.destroy_compute_instance(pci, held.id, 0)
    node.node.release(0, ids[1])
    assert not any(i.held for i in backend.read_gpu(pci).instances)
    backend.destroy_compute_instance(pci, held.id, 0)


def test_holders_do_not_move_the_fingerprint(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    backend = node.open(kind)
    pci = mig_gpu(backend)
    instance = backend.create_gpu_instance(pci, 0, 0, 8)
    backend.create_compute_instance(pci, instance, 4, None, 7)
    before = backend.read().fingerprint
    node.node.hold(0, instance)
    assert backend.read().fingerprint == before
    assert backend.read().gpus[0].instances[0].held


def test_a_hand_made_change_is_seen_at_once(machine: Start, kind: str) -> None:
    node = machine("h100-80gb-hbm3")
    backend = node.open(kind)
    pci = mig_gpu(backend)
    before = backend.read()
    made = node.node.create(0, "1g.10gb", 5)
    after = backend.read()
    assert [i.id for i in after.gpus[0].instances] == [made]
    assert after.fingerprint != before.fingerprint
    node.node.destroy(0, made)
    assert backend.read_gpu(pci).instances == ()
    assert backend.read() == before


def test_a_swapped_board_shows_in_its_instances(machine: Start, kind: str) -> None:
    backend = machine("a100-sxm4-40gb:swapped").open(kind)
    pci = mig_gpu(backend)
    assert backend.create_gpu_instance(pci, 19, 0, 1) == 11
    assert backend.read_gpu(pci).slots_mirrored is True


def test_a_lost_gpu_hides_no_other(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*3")
    backend = node.open(kind)
    before = backend.read()
    mig_gpu(backend, 1)
    node.node.inject_fault("lost", gpu=1)
    newcomer = node.open(kind)
    for reader in (backend, newcomer):
        found = reader.read()
        assert [g.lost for g in found.gpus] == [False, True, False]
        assert [g.pci for g in found.gpus] == [g.pci for g in before.gpus]
        assert found.gpus[0] == before.gpus[0]
    newcomer.close()
    lost = before.gpus[1].pci
    with pytest.raises(GpuLostError):
        backend.read_gpu(lost)
    with pytest.raises(GpuLostError):
        backend.create_gpu_instance(lost, 19, 0, 1)
    assert backend.set_mode(before.gpus[2].pci, True)


def test_without_the_right_to_change(machine: Start, kind: str) -> None:
    node = machine("h100-80gb-hbm3")
    backend = node.open(kind)
    pci = mig_gpu(backend)
    node.node.inject_fault("unprivileged")
    with pytest.raises(PermissionDeniedError):
        backend.create_gpu_instance(pci, 19, 0, 1)
    with pytest.raises(PermissionDeniedError):
        backend.set_mode(pci, False)
    node.node.inject_fault("none")
    assert backend.read_gpu(pci).instances == ()


def test_our_own_session_refuses_a_reset_until_it_is_suspended(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*2")
    backend = node.open(kind)
    pci = mig_gpu(backend)
    before = backend.read()
    if kind != "smi":  # between two commands no session is open
        with pytest.raises(InUseError):
            node.node.reset(pci)
    with backend.suspend():
        node.node.reset(pci)
    assert backend.read() == before
    assert backend.set_mode(pci, False)


def test_two_workers_suspend_at_once_and_a_third_waits(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*3")
    backend = node.open(kind)
    pcis = [g.pci for g in backend.read().gpus]
    together = threading.Barrier(3, timeout=20)

    def reset(pci: str) -> str:
        with backend.suspend():
            together.wait()
            with closing(SimClient(node.state_dir, node.name)) as own:
                own.reset(pci)
        return backend.read_gpu(pci).pci

    def read(pci: str) -> str:
        together.wait()
        return backend.read_gpu(pci).pci

    jobs = [partial(reset, pcis[0]), partial(reset, pcis[1]), partial(read, pcis[2])]
    assert ThreadWorkers().run(jobs) == pcis


def test_workers_for_different_gpus_run_at_once(machine: Start, kind: str) -> None:
    backend = machine("h100-80gb-hbm3*4").open(kind)
    pcis = [mig_gpu(backend, n) for n in range(4)]

    def worker(pci: str) -> int:
        for start in range(7):
            made = backend.create_gpu_instance(pci, 19, start, 1)
            backend.create_compute_instance(pci, made, 0, None, 1)
            backend.read_gpu(pci)
        return len(backend.read_gpu(pci).instances)

    assert ThreadWorkers().run([partial(worker, pci) for pci in pcis]) == [7] * 4
    for gpu in backend.read().gpus:
        assert [i.placement for i in gpu.instances] == [f"{n}:1" for n in range(7)]


def test_a_guest_cannot_reset(machine: Start, kind: str) -> None:
    backend = machine("h100-80gb-hbm3:guest,h100-80gb-hbm3").open(kind)
    assert [g.resettable for g in backend.read().gpus] == [False, True]


def test_a_reboot_is_survived_by_a_new_backend(machine: Start, kind: str) -> None:
    node = machine("h100-80gb-hbm3")
    backend = node.open(kind)
    pci = mig_gpu(backend)
    backend.create_gpu_instance(pci, 19, 0, 1)
    backend.close()
    node.node.reboot()
    after = node.open(kind).read()
    assert not after.gpus[0].mig.enabled, "Hopper forgets MIG mode"
    assert after.gpus[0].instances == ()


def test_a_driver_below_the_floor(machine: Start, kind: str) -> None:
    with pytest.raises(NoDriverError) as caught:
        machine("a100-sxm4-40gb@450.80.02").open(kind).read()
    assert "450.80.02" in caught.value.brief


def test_535_lists_no_profiles_while_mig_mode_is_off(machine: Start, kind: str) -> None:
    backend = machine("a30@535.183.01").open(kind)
    assert backend.read().gpus[0].family == "a30-24gb"
    pci = mig_gpu(backend)
    assert backend.create_gpu_instance(pci, 14, 0, 1) == 3


def test_closing_twice(machine: Start, kind: str) -> None:
    backend = machine("tesla-t4").open(kind)
    backend.close()
    backend.close()
