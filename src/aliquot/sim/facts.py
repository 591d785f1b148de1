"""The facts of a simulated node for labels and device plugins, in plain values: the answer to the call ``Facts``."""

from __future__ import annotations

from aliquot.core.model.facts import BRANDS
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver import sensor_values as sensors
from aliquot.sim.driver.compute import SimInstance
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.nvml_calls import cuda_version, engines
from aliquot.sim.driver.topology import VGA, fabric, numa_node, pci_class
from aliquot.sim.node import SimNode
from aliquot.sim.template import mig_uuid

_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


def facts(node: SimNode) -> dict[str, object]:
    """Return the facts of all GPUs that are still on the bus, and of their MIG devices."""
    present = [gpu for gpu in node.visible if not gpu.state.lost]
    cuda = cuda_version(node)
    return {
        "driver": node.state.driver,
        "cuda": [cuda // 1000, cuda % 1000 // 10],
        "gpus": [_gpu(gpu) for gpu in present],
        "mig_devices": [
            _mig(gpu, n, gi, ci) for gpu in present if gpu.state.mig for n, (gi, ci) in enumerate(gpu.mig_devices())
        ],
    }


def _gpu(gpu: SimGpu) -> dict[str, object]:
    return {
        "pci": gpu.state.pci,
        "memory_mib": gpu.state.memory_mib,
        "brand": BRANDS[sensors.brand(gpu.state.product)],
        "compute_capability": sensors.compute_capability(gpu.state.product, gpu.state.architecture),
        "numa_node": numa_node(gpu),
        "display": pci_class(gpu) == VGA,
        "clique": _clique(gpu),
    }


def _clique(gpu: SimGpu) -> str:
    try:
        answer = fabric(gpu)
    except NvmlRefusalError:
        return ""
    return "" if answer.cluster == _NO_CLUSTER else f"{answer.cluster}.{answer.clique}"


def _mig(gpu: SimGpu, index: int, gi: int, ci: int) -> dict[str, object]:
    instance = SimInstance(gpu, gi)
    family, profile = gpu.family_table.family, instance.profile
    compute = instance.compute_profile(instance.one(ci).profile)
    copy, decoder, encoder, jpeg, ofa = engines(profile)
    return {
        "uuid": mig_uuid(gpu.state, gi, ci, gpu.driver_major),
        "gpu": gpu.state.pci,
        "instance": gi,
        "compute_instance": ci,
        "index": index,
        "profile": compute.name,
        "memory_mib": sensors.instance_memory_mib(family, profile, gpu.state.memory_mib),
        "multiprocessors": sensors.compute_sm(family, profile, compute),
        "gi_slices": profile.compute_slices,
        "ci_slices": compute.compute_slices,
        "copy": copy,
        "decoder": decoder,
        "encoder": encoder,
        "jpeg": jpeg,
        "ofa": ofa,
    }
