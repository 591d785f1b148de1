"""Claims for VMs on a simulated vGPU host: each gets its function or vGPU, and nothing of others is destroyed."""

from __future__ import annotations

from pathlib import Path

import pytest

import support.vgpufactory as factory
from aliquot.core.model.claims import Claim
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredVgpu
from aliquot.core.model.inventory import Gpu, Holder
from aliquot.kubernetes.dra.agent.node_devices import NodeDevices
from aliquot.kubernetes.dra.agent.vm_files import NoVfioFileError
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.naming import DriverNaming, vm_device_name
from aliquot.kubernetes.dra.model.ranking import PublishPolicy
from aliquot.kubernetes.dra.model.vm_service import read_vm_policy
from aliquot.node.holders.prepared_claims import RecordedDevice
from unit.kubernetes.dra.agent.bench import Bench, claim, run


def bench(folder: Path, template: str, vgpus: str) -> Bench:
    """Return a node whose only GPU serves VMs."""
    policy = PublishPolicy(layout=SliceLayout(gpus_per_slice=1))
    vms = read_vm_policy(f"all={vgpus}")
    devices = NodeDevices("n", DriverNaming(), policy, "any", vms)
    return Bench(folder, template, mig=False, find=devices.find)


def device(made: Bench, *parts: str | int) -> str:
    return vm_device_name(made.gpus.gpu(), *parts)


def recorded(made: Bench, name: str) -> RecordedDevice:
    return next(c for c in made.recorded().claims if c.name == name).devices[0]


def types(gpu: Gpu) -> list[str]:
    return sorted(vgpu.type.rpartition(" ")[2] for vgpu in gpu.vgpus)


def test_a_time_sliced_vgpu_of_vendor_vfio_is_a_function(tmp_path: Path) -> None:
    made = bench(tmp_path, "l40s:vfio", "L40S-12Q")
    name = device(made, "L40S-12Q", 2)
    run(made.one(claim("a", name)))
    gpu = made.gpus.gpu()
    vgpu = gpu.vgpus[0]
    assert types(gpu) == ["L40S-12Q"]
    assert [str(each) for each in vgpu.holders] == ["claim team/a"]
    found = recorded(made, "a")
    assert (found.vm, found.function, found.uuid) == ("L40S-12Q", vgpu.function, vgpu.uuid)
    assert gpu.virtual is not None
    group = next(each.iommu_group for each in gpu.virtual.functions if each.pci == vgpu.function)
    assert {"/dev/vfio/vfio", f"/dev/vfio/{group}"} <= set(found.vfio_files)


@pytest.mark.parametrize(("template", "kind"), [("a2:mdev", "A2-4Q"), ("tesla-t4:mdev", "T4-4Q")])
def test_a_time_sliced_mdev_is_named_by_its_uuid(tmp_path: Path, template: str, kind: str) -> None:
    made = bench(tmp_path, template, kind)
    run(made.one(claim("a", device(made, kind, 0))))
    found = recorded(made, "a")
    assert (found.function, found.uuid) == ("", made.gpus.gpu().vgpus[0].uuid)
    assert len(found.vfio_files) >= 2


def test_vgpus_of_several_claims_stand_beside_each_other(tmp_path: Path) -> None:
    made = bench(tmp_path, "a2:mdev", "A2-4Q")
    names = [device(made, "A2-4Q", number) for number in range(4)]

    async def story() -> None:
        await made.one(claim("a", names[3]))
        await made.prepare(*(claim(name, names[number]) for number, name in enumerate("bcd")))
        assert types(made.gpus.gpu()) == ["A2-4Q"] * 4
        before = {vgpu.uuid for vgpu in made.gpus.gpu().vgpus}
        assert (await made.refused(claim("e", names[0]))).code == "HELD"
        assert (await made.refused(claim("e", device(made, "vfio")))).code == "HELD"
        await made.unprepare(claim("b", names[0]))
        calls = len(made.gpus.calls)
        await made.one(claim("e", names[0]))
        assert len(made.gpus.calls) == calls  # the vGPU of the earlier claim waited for it
        assert {vgpu.uuid for vgpu in made.gpus.gpu().vgpus} == before

    run(story())


def test_the_function_and_back(tmp_path: Path) -> None:
    made = bench(tmp_path, "l40s:vfio", "L40S-12Q")
    whole, part = device(made, "vfio"), device(made, "L40S-12Q", 0)

    async def story() -> None:
        await made.one(claim("a", whole))
        gpu = made.gpus.gpu()
        assert gpu.passthrough
        assert (recorded(made, "a").vm, recorded(made, "a").function) == ("vfio", gpu.pci)
        assert [str(each) for each in gpu.holders] == ["claim team/a"]
        assert (await made.refused(claim("b", part))).code == "HELD"
        await made.unprepare(claim("a", whole))
        assert made.gpus.gpu().passthrough  # until its room is needed
        await made.one(claim("b", part))
        assert not made.gpus.gpu().passthrough
        await made.unprepare(claim("b", part))
        await made.one(claim("c", whole))
        assert made.gpus.gpu().passthrough
        assert made.gpus.gpu().vgpus == ()

    run(story())


def test_mig_backed_vgpus_get_the_placements_that_were_allocated(tmp_path: Path) -> None:
    made = bench(tmp_path, "a30:vfio", "mig-backed+A30-6C")
    places = {"a": ("A30-1-6C", 14, 2), "b": ("A30-1-6C", 14, 3), "c": ("A30-2-12C", 5, 0)}
    claims = [claim(name, device(made, *place)) for name, place in places.items()]

    async def story() -> None:
        assert not any(isinstance(each, Exception) for each in await made.prepare(*claims))
        assert made.gpus.instances() == ["1g.6gb@2", "1g.6gb@3", "2g.12gb@0"]
        assert {name: recorded(made, name).placement for name in "abc"} == {"a": "2:1", "b": "3:1", "c": "0:2"}
        assert (await made.refused(claim("d", device(made, "A30-6C", 0)))).code == "HELD"
        assert (await made.refused(claim("d", device(made, "A30-4-24C", 0, 0)))).code == "HELD"
        await made.unprepare(*claims)
        await made.one(claim("d", device(made, "A30-4-24C", 0, 0)))
        assert made.gpus.instances() == ["4g.24gb@0"]
        await made.unprepare(claim("d", device(made, "A30-4-24C", 0, 0)))
        await made.one(claim("e", device(made, "A30-6C", 3)))
        assert made.gpus.instances() == []
        assert types(made.gpus.gpu()) == ["A30-6C"]

    run(story())


@pytest.mark.parametrize("wanted", [("vfio",), ("L40S-12Q", 0)])
def test_a_vgpu_of_others_is_never_destroyed(tmp_path: Path, wanted: tuple[str | int, ...]) -> None:
    made = bench(tmp_path, "l40s:vfio", "L40S-12Q")
    pci = made.gpus.gpu().pci
    other = DesiredVgpu(factory.kind("NVIDIA L40S", "24Q").id or 0, "NVIDIA L40S-24Q")
    assert made.gpus.node.apply(Desired((DesiredGpu(pci, None, None, vgpus=(other,)),))).status == "done"
    refusal = run(made.refused(claim("a", device(made, *wanted))))
    assert refusal.code in ("FOREIGN_INSTANCE", "EQUAL_SIZE")
    assert types(made.gpus.gpu()) == ["L40S-24Q"]


def test_a_function_that_others_pass_through_stays(tmp_path: Path) -> None:
    made = bench(tmp_path, "a2:mdev", "A2-4Q")
    virtual = made.gpus.gpu().virtual
    assert virtual is not None
    function = virtual.addresses[0]
    desired = DesiredGpu(made.gpus.gpu().pci, None, None, functions=True, vfio_bound=(function,))
    assert made.gpus.node.apply(Desired((desired,))).status == "done"
    refusal = run(made.refused(claim("a", device(made, "vfio"))))
    assert refusal.code == "FOREIGN_INSTANCE"
    assert f"virtual function {function} of GPU {made.gpus.gpu().pci} is in the way" in str(refusal)
    run(made.one(claim("b", device(made, "A2-4Q", 0))))
    virtual = made.gpus.gpu().virtual
    assert virtual is not None
    assert [each.pci for each in virtual.functions if each.driver == "vfio-pci"] == [function]


@pytest.mark.parametrize(
    ("holder", "code"),
    [(Holder("pod", "7", "train"), "HELD"), (Holder("job", "7"), "HELD"), (Holder("process", "7", "dcgm"), "")],
    ids=["pod", "job", "monitoring"],
)
def test_a_gpu_that_a_pod_or_a_job_has_gives_no_vgpu(tmp_path: Path, holder: Holder, code: str) -> None:
    # A monitoring program is a process, and runs beside vGPUs.
    made = bench(tmp_path, "tesla-t4:mdev", "T4-4Q")
    made.gpus.claims = [Claim(holder, (made.gpus.gpu().uuid,))]
    wanted = claim("a", device(made, "T4-4Q", 0))
    if code:
        assert run(made.refused(wanted)).code == code
    else:
        run(made.one(wanted))
    assert types(made.gpus.gpu()) == ([] if code else ["T4-4Q"])


def test_after_a_reboot_everything_is_created_again(tmp_path: Path) -> None:
    made = bench(tmp_path, "l40s:vfio*2", "L40S-12Q")
    second = vm_device_name(made.gpus.gpu(1), "vfio")
    names = [device(made, "L40S-12Q", 1), device(made, "L40S-12Q", 3)]

    async def story() -> None:
        await made.prepare(claim("a", names[0]), claim("b", names[1]), claim("c", second))
        before = {vgpu.uuid for vgpu in made.gpus.gpu().vgpus}
        made.gpus.reboot()
        assert made.gpus.gpu().vgpus == ()
        assert not made.gpus.gpu(1).passthrough
        made.restart()
        await made.preparer.restore()
        assert made.preparer.missing == {}
        assert {vgpu.uuid for vgpu in made.gpus.gpu().vgpus} == before
        assert made.gpus.gpu(1).passthrough

    run(story())


def test_killed_at_every_write_and_asked_again(tmp_path: Path) -> None:
    from unit.kubernetes.dra.agent.bench import counted_saves

    async def until_done(made: Bench) -> int:
        kills = 0

        async def next_agent() -> None:
            nonlocal kills
            kills += 1
            made.restart()

        first, second = claim("a", device(made, "L40S-24Q", 0)), claim("b", device(made, "vfio"))
        for call in (lambda: made.prepare(first), lambda: made.unprepare(first), lambda: made.prepare(second)):
            await made.until_answered(call, next_agent)
        return kills

    number, kills = 0, 1
    while kills:
        number += 1
        folder = tmp_path / str(number)
        folder.mkdir()
        made = bench(folder, "l40s:vfio", "L40S-24Q")
        made.gpus.kill_at = number
        with counted_saves(made.gpus):
            kills = run(until_done(made))
        assert made.gpus.gpu().passthrough
        assert [each.name for each in made.recorded().claims] == ["b"]
    assert number > 8


@pytest.mark.parametrize("wanted", [("vfio",), ("L40S-12Q", 0)])
def test_a_device_without_a_vfio_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: tuple[str | int, ...]
) -> None:
    monkeypatch.setattr("aliquot.hardware.kernel.vendor_vfio.vfio_devices", lambda *_: ())
    made = bench(tmp_path, "l40s:vfio", "L40S-12Q")
    (refusal,) = run(made.prepare(claim("a", device(made, *wanted))))
    assert isinstance(refusal, NoVfioFileError)
    gpu = made.gpus.gpu()
    function = gpu.pci if wanted == ("vfio",) else gpu.vgpus[0].function
    assert refusal.brief == f"{function} has no VFIO file, so no VM can open it"
    assert f"/sys/bus/pci/devices/{function}/iommu_group" in refusal.details[0]
    assert made.recorded().claims == ()
