"""Pools as ``aliquot dra show`` prints them: who has what, what fits, and why not."""

from __future__ import annotations

import msgspec

import support.vgpufactory as vgpus
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.objects import DeviceTaint, ResourceSlice
from aliquot.kubernetes.dra.model.offer import offered_devices
from aliquot.kubernetes.dra.model.publication import Publication
from aliquot.kubernetes.dra.model.slices import build_slices
from aliquot.kubernetes.dra.model.vm_service import VmService
from aliquot.kubernetes.dra.view.pools import NOT_PUBLISHED, WHOLE, WHOLE_FOR_VM, DraGpuView, FitView, gpu_pools
from aliquot.kubernetes.kinds.claim_status import (
    AllocationResult,
    ClaimAllocationStatus,
    ClaimConsumer,
    DeviceResults,
    ResourceClaimStatus,
)
from support import factory
from unit.kubernetes.dra.model.nodes import A100, NAMING, desired, holding, offered

POOL = NAMING.pool("n1")


def published(inventory: object = None, allocated: tuple[str, ...] = ()) -> tuple[ResourceSlice, ...]:
    found = desired(inventory or factory.inventory(A100, enabled=True), allocated)  # type: ignore[arg-type]
    return build_slices(Publication(found.devices, found.counter_sets), NAMING, "n1")


def claim(name: str, *devices: str, pods: tuple[str, ...] = (), admin: bool = False) -> ResourceClaim:
    results = tuple(AllocationResult("r", NAMING.driver, POOL, device, admin) for device in devices)
    reserved = tuple(ClaimConsumer("pods", pod) for pod in pods)
    status = ResourceClaimStatus(ClaimAllocationStatus(DeviceResults(results)), reserved)
    return ResourceClaim(ObjectMeta(name=name, namespace="team", uid=name), status)


def only_gpu(slices: tuple[ResourceSlice, ...], *claims: ResourceClaim) -> DraGpuView:
    (pool,) = gpu_pools(slices, claims)
    assert (pool.node, pool.driver, pool.pool, pool.problems) == ("n1", NAMING.driver, POOL, ())
    (gpu,) = pool.gpus
    return gpu


def fit(gpu: DraGpuView, profile: str) -> FitView:
    return next(each for each in gpu.fits if each.profile == profile)


def test_an_empty_gpu_fits_everything_that_is_published() -> None:
    gpu = only_gpu(published())
    assert gpu.product == "NVIDIA A100-SXM4-40GB"
    assert not gpu.allocated
    assert fit(gpu, "7g.40gb") == FitView("7g.40gb", 1)
    assert fit(gpu, "3g.20gb") == FitView("3g.20gb", 2)


def test_placements_that_are_not_published_yet_may_fit_too() -> None:
    (pool,) = gpu_pools(published(factory.inventory(f"{A100}*2", enabled=True)), ())
    found = [fit(gpu, "1g.5gb") for gpu in pool.gpus]
    assert [(each.count, each.more) for each in found] == [(7, False), (1, True)]


def test_a_claim_and_its_pods_are_named_and_what_they_exclude() -> None:
    name = "gpu-0-mig-3g20gb-9-4"
    gpu = only_gpu(published(allocated=(name,)), claim("train", name, pods=("a", "b")))
    (device,) = gpu.allocated
    assert (device.claim, device.pods, device.profile) == ("team/train", ("team/a", "team/b"), "3g.20gb")
    assert (device.start, device.size) == (4, 4)
    assert fit(gpu, "3g.20gb").count == 1
    assert fit(gpu, "7g.40gb") == FitView("7g.40gb", 0, "claim team/train has room that it needs")


def test_compute_slices_that_are_used_up_name_their_claims() -> None:
    names = "gpu-0-mig-4g20gb-5-0", "gpu-0-mig-3g20gb-9-4"
    gpu = only_gpu(published(allocated=names), claim("a", names[0]), claim("b", names[1]))
    assert fit(gpu, "1g.5gb").reason == "claim team/b has room that it needs"
    assert fit(gpu, "7g.40gb").reason == "claim team/a and claim team/b have room that it needs"


def test_access_for_administration_takes_nothing() -> None:
    gpu = only_gpu(published(), claim("monitor", "gpu-0-mig-7g40gb-0-0", admin=True))
    assert gpu.allocated[0].admin
    assert fit(gpu, "7g.40gb").count == 1


def test_room_that_is_taken_without_a_claim_is_not_published() -> None:
    inventory = holding(factory.with_instances(factory.inventory(A100, enabled=True), 0, "3g.20gb@0"))
    gpu = only_gpu(published(inventory))
    assert fit(gpu, "7g.40gb") == FitView("7g.40gb", 0, NOT_PUBLISHED)
    assert fit(gpu, "3g.20gb").count == 1


def test_devices_with_a_taint_differ_from_those_left_out() -> None:
    (counters, devices) = published()
    whole = [d for d in devices.spec.devices if "7g40gb" in d.name]
    rest = tuple(d for d in devices.spec.devices if d not in whole)

    def fits(*shown: object) -> FitView:
        spec = msgspec.structs.replace(devices.spec, devices=(*rest, *shown))
        return fit(only_gpu((counters, msgspec.structs.replace(devices, spec=spec))), "7g.40gb")

    assert fits() == FitView("7g.40gb", 0, NOT_PUBLISHED)
    taint = DeviceTaint("aliquot.dev/hidden", "NoSchedule")
    assert fits(*(msgspec.structs.replace(d, taints=(taint,)) for d in whole)).reason.endswith("aliquot.dev/hidden")


def test_a_pool_that_the_scheduler_skips_or_overcommits_is_a_problem() -> None:
    slices = published()
    (missing,) = gpu_pools(slices[1:], ())
    assert missing.problems == ("incomplete: 1 of 2 slices of generation 1, so the scheduler skips the pool",)
    (lost,) = gpu_pools(slices, (claim("train", "gpu-0-mig-9g"),))
    assert lost.problems == (
        "gpu-0-mig-9g is allocated and not published: the scheduler can give its room to another claim",
    )


def test_a_gpu_without_mig_is_free_or_allocated() -> None:
    found = offered(factory.inventory("a2"))
    slices = build_slices(Publication(found.devices, found.counter_sets), NAMING, "n1")
    assert only_gpu(slices).fits == (FitView(WHOLE, 1),)
    gpu = only_gpu(slices, claim("train", found.devices[0].name))
    assert gpu.fits == (FitView(WHOLE, 0, "claim team/train has room that it needs"),)


def test_a_pool_name_that_two_drivers_use_is_a_problem_of_both() -> None:
    mine = published()
    other = tuple(
        msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, driver="gpu.aliquot.dev"))
        for each in mine
    )
    by_driver = {pool.driver: pool.problems for pool in gpu_pools((*mine, *other), ())}
    assert by_driver == {
        driver: (f"{rival} has a pool of this name: a claim on both can get a GPU twice",)
        for driver, rival in ((NAMING.driver, "gpu.aliquot.dev"), ("gpu.aliquot.dev", NAMING.driver))
    }


def test_a_gpu_that_serves_vms_is_shown_by_vgpu_types() -> None:
    node = vgpus.node(vgpus.gpu("NVIDIA L40S"))
    found = offered_devices(node, NAMING, vms={vgpus.PCI: VmService("L40S-1Q")})
    slices = build_slices(Publication(found.devices, found.counter_sets), NAMING, "n1", layout=SliceLayout(1))
    gpu = only_gpu(slices)
    assert fit(gpu, "L40S-1Q") == FitView("L40S-1Q", 32)
    assert fit(gpu, WHOLE_FOR_VM) == FitView(WHOLE_FOR_VM, 1)
    names = [device.name for device in found.devices if device.vgpu]
    taken = only_gpu(slices, *(claim(f"vm{number}", name) for number, name in enumerate(names[:31])))
    assert fit(taken, "L40S-1Q").count == 1
    assert "claim team/vm30" in fit(taken, WHOLE_FOR_VM).reason
    assert taken.allocated[0].profile == "L40S-1Q"
    whole = only_gpu(slices, claim("big", found.devices[0].name))
    assert fit(whole, "L40S-1Q").reason == "claim team/big has room that it needs"
