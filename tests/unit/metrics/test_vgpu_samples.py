"""Metrics of running vGPUs: what the driver reports, and nothing in place of what it does not."""

from __future__ import annotations

import msgspec
from prometheus_client import CollectorRegistry

from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.metrics.gpu_samples import GpuCollector
from unit.metrics.snapshots import A2_4Q, everything

SEEN = everything()
A2 = "0000:99:00.0"


def values(*usages: VgpuUsage, vgpus: int = 1) -> dict[str, tuple[dict[str, str], float]]:
    """Return labels and value by name of what the page has about vGPUs."""
    assert SEEN.inventory is not None
    first, shared = SEEN.inventory.gpus
    again = [msgspec.structs.replace(shared.vgpus[0], function=f"0000:99:00.{n}") for n in range(4, 4 + vgpus)]
    gpus = (first, msgspec.structs.replace(shared, vgpus=tuple(again)))
    snapshot = msgspec.structs.replace(
        SEEN,
        inventory=msgspec.structs.replace(SEEN.inventory, gpus=gpus),
        details=msgspec.structs.replace(SEEN.details, vgpus=usages),
    )
    registry = CollectorRegistry()
    registry.register(GpuCollector(lambda: (snapshot,)))
    found = [s for metric in registry.collect() for s in metric.samples if s.name.startswith("aliquot_vgpu_")]
    return {each.name.removeprefix("aliquot_vgpu_"): (each.labels, each.value) for each in found}


def test_a_vgpu_has_its_shares_memory_and_license() -> None:
    found = values(VgpuUsage(A2, A2_4Q, "u", "", "vm-uuid", 0.5, 0.2, 0.1, 0.0, 1024, "licensed", 4e9))
    assert {name: value for name, (_, value) in found.items()} == {
        "compute_utilization_ratio": 0.5,
        "memory_utilization_ratio": 0.2,
        "encoder_utilization_ratio": 0.1,
        "decoder_utilization_ratio": 0.0,
        "memory_used_bytes": 1 << 30,
        "memory_size_bytes": 4 << 30,
        "licensed": 1,
        "license_expiry_timestamp_seconds": 4e9,
    }
    labels = found["licensed"][0]
    assert (labels["type"], labels["vgpu"], labels["vm"]) == ("NVIDIA A2-4Q", "u", "vm-uuid")
    assert labels["function"] == "0000:99:00.4"
    assert "v" not in labels.values(), "the name of a VM is private"


def test_what_the_driver_does_not_report_has_no_sample() -> None:
    assert set(values(VgpuUsage(A2, A2_4Q, "u", license="uninitialized"))) == {"memory_size_bytes"}
    assert values(VgpuUsage(A2, A2_4Q, "u", license="unlicensed-restricted"))["licensed"][1] == 0


def test_of_two_vgpus_without_a_name_none_is_chosen() -> None:
    labels = values(VgpuUsage(A2, A2_4Q, "u", "", "vm-uuid"), vgpus=2)["memory_size_bytes"][0]
    assert (labels["function"], labels["vm"]) == ("", "vm-uuid")


def test_a_type_that_the_gpu_has_no_longer_has_no_metrics() -> None:
    assert values(VgpuUsage(A2, A2_4Q + 1000, "u", compute=0.5)) == {}


def test_a_vgpu_whose_vm_ended_during_the_sample_has_no_series() -> None:
    ended = VgpuUsage(A2, A2_4Q, memory_used_mib=1024)
    assert values(ended, ended) == {}, "two of them would be one series with two values"
