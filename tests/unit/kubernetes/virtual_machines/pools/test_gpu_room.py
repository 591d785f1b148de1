"""Pools on GPUs in mixed-size mode: they count what the placements of each size leave."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from aliquot.kubernetes.kinds.harvester_names import PLACEMENTS_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.admission.vgpu_capacity import explain_misfit
from support.selection import parts
from unit.kubernetes.virtual_machines.pools.pool_cluster import EIGHT_Q, FOUR_Q, Cluster

GPU, PCI, TWO_Q = "n1-000001000", "0000:01:00.0", "NVIDIA A2-2Q"


def mixed(directory: Path, template: str = "a2:vfio", **more: str) -> Cluster:
    """Return a cluster whose first GPU is in mixed-size mode."""
    cluster = Cluster(directory, n1=template, **more)
    one = cluster.nodes["n1"].kubectl("SRIOVGPUDevice", GPU, enabled=True)
    one.node.backend.set_mixed_size(PCI, True)
    one.settle()
    return cluster


def test_sizes_share_a_gpu_in_mixed_size_mode(tmp_path: Path) -> None:
    cluster = mixed(tmp_path)
    cluster.pool("big", EIGHT_Q, 1)
    cluster.pool("small", FOUR_Q, 3)
    cluster.settle()
    assert cluster.types() == {"n1": Counter({EIGHT_Q: 1, FOUR_Q: 2})}
    assert cluster.ready("small") == ("False", "Insufficient")
    assert "2 of 3 vGPUs of type NVIDIA A2-4Q fit: n1-000001000 has no free placement" in cluster.message("small")


def test_no_more_are_promised_than_there_are_placements(tmp_path: Path) -> None:
    # 12 would fit in equal-size mode.
    cluster = mixed(tmp_path, "l40s:vfio", n2="l40s:vfio")
    cluster.pool("desk", "NVIDIA L40S-4Q", 12)
    cluster.settle()
    assert cluster.types() == {"n1": Counter({"NVIDIA L40S-4Q": 8}), "n2": Counter({"NVIDIA L40S-4Q": 4})}


@pytest.mark.parametrize("on", [True, False])
def test_the_webhook_knows_the_mode(tmp_path: Path, on: bool) -> None:
    cluster = mixed(tmp_path)
    cluster.pool("big", EIGHT_Q, 1)
    cluster.settle()
    if not on:
        one = cluster.nodes["n1"]
        one.node.backend.memory.control("reboot", boot_id="boot-2")
        one.reboot(3).settle()
    gpu = cluster.gpu("n1")["metadata"].get("annotations", {})
    assert gpu.get(PLACEMENTS_ANNOTATION) == ("0000:01:00.4=NVIDIA A2-8Q@0" if on else None)
    snapshot = cluster.snapshot()
    free = next(device for device in snapshot.vgpus.values() if not device.spec.enabled)
    for type_name, fits in ((FOUR_Q, on), (EIGHT_Q, True)):
        spec = msgspec.structs.replace(free.spec, enabled=True, type_name=type_name)
        assert (explain_misfit(snapshot, msgspec.structs.replace(free, spec=spec)) is None) == fits


@pytest.mark.parametrize("seed", parts(2))
def test_what_pools_request_in_mixed_size_mode_is_never_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    cluster = mixed(tmp_path)
    for type_name in (TWO_Q, FOUR_Q, EIGHT_Q):
        cluster.pool(type_name[-2:].lower(), type_name, count=chance.randint(0, 2))
    for step in range(8):
        pool = cluster.pools[chance.choice(list(cluster.pools))]
        pool["spec"]["count"] = chance.randint(0, 16 // int(pool["spec"]["vGPUTypeName"][-2]))
        cluster.settle()
        for name, each in cluster.pools.items():
            reason = cluster.ready(name)[1]
            assert reason in ("Configured", "Insufficient"), (seed, step, each)
            assert each["status"]["ready"] == len(cluster.devices(name)), (seed, step, each)
            offered = any(
                each["spec"]["vGPUTypeName"] in device["status"].get("availableTypes", {})
                for device in cluster.nodes["n1"].store.of("VGPUDevice").values()
            )
            assert reason == "Configured" or not offered, (seed, step, each)
