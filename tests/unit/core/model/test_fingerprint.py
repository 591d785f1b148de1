"""Node fingerprints: they differ if a plan for one state must not be applied to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.inventory import (
    ComputeInstance,
    Gpu,
    GpuVirtualization,
    Holder,
    Inventory,
    Mig,
    Vgpu,
    VirtualFunction,
)
from laws.oracle import mig_nodes

A100 = catalog.family("a100-40gb")
FUNCTION = "0000:07:00.4"
replace = msgspec.structs.replace
VGPU = Vgpu(FUNCTION, 563, "A100-4C", "uuid-1", gpu_instance=None, placement=0, ownership_token="claim-1")


def _node() -> Inventory:
    gpu = mig_nodes.gpu(A100, [("3g.20gb", 0), ("2g.10gb", 4)])
    virtual = GpuVirtualization(total=2, functions=(VirtualFunction(FUNCTION, 0),), mixed_size=False)
    return mig_nodes.node(replace(gpu, vgpus=(VGPU,), virtual=virtual))


def _with(**fields: Any) -> Inventory:
    found = _node()
    return replace(found, gpus=(replace(found.gpus[0], **fields),))


def _instance(**fields: Any) -> Inventory:
    first, *rest = _node().gpus[0].instances
    return _with(instances=(replace(first, **fields), *rest))


def _compute(**fields: Any) -> Inventory:
    (inside,) = _node().gpus[0].instances[0].compute_instances
    return _instance(compute_instances=(replace(inside, **fields),))


def _vgpu(**fields: Any) -> Inventory:
    return _with(vgpus=(replace(VGPU, **fields),))


def _virtual(**fields: Any) -> Inventory:
    virtual = _node().gpus[0].virtual
    assert virtual is not None
    return _with(virtual=replace(virtual, **fields))


OTHER: dict[str, Callable[[], Inventory]] = {
    "driver": lambda: replace(_node(), driver="570.1"),
    "a GPU more": lambda: replace(_node(), gpus=(*_node().gpus, mig_nodes.gpu(A100, (), pci="0000:08:00.0"))),
    "PCI address": lambda: _with(pci="0000:09:00.0"),
    "UUID": lambda: _with(uuid="GPU-other"),
    "product": lambda: _with(product="NVIDIA A30"),
    "MIG mode": lambda: _with(mig=Mig(True, "disabled", "enabled")),
    "pending MIG mode": lambda: _with(mig=Mig(True, "enabled", "disabled")),
    "no instance": lambda: _with(instances=()),
    "instance id": lambda: _instance(id=99),
    "profile": lambda: _instance(profile_id=99),
    "placement": lambda: _instance(placement="4:4"),
    "no compute instance": lambda: _instance(compute_instances=()),
    "compute instance more": lambda: _instance(
        compute_instances=(*_node().gpus[0].instances[0].compute_instances, ComputeInstance(1, "1c", 0, "2:1"))
    ),
    "compute instance id": lambda: _compute(id=5),
    "compute profile": lambda: _compute(profile_id=5),
    "compute placement": lambda: _compute(placement="1:1"),
    "passthrough": lambda: _with(passthrough=True),
    "virtual functions": lambda: _virtual(functions=()),
    "mixed-size mode": lambda: _virtual(mixed_size=True),
    "scheduler of a GPU instance": lambda: _instance(scheduler="equal-share"),
    "no vGPU": lambda: _with(vgpus=()),
    "vGPU's function": lambda: _vgpu(function="0000:07:00.5"),
    "vGPU type": lambda: _vgpu(type_id=564),
    "vGPU's UUID": lambda: _vgpu(uuid="uuid-2"),
    "vGPU's GPU instance": lambda: _vgpu(gpu_instance=3),
    "vGPU's placement": lambda: _vgpu(placement=4),
    "vGPU's ownership token": lambda: _vgpu(ownership_token="claim-2"),
}


@pytest.mark.parametrize("other", OTHER, ids=lambda other: other.replace(" ", "-"))
def test_it_differs(other: str) -> None:
    assert OTHER[other]().fingerprint != _node().fingerprint


def test_it_is_the_same_for_the_same_state() -> None:
    assert _node().fingerprint == _node().fingerprint
    assert len(_node().fingerprint) == 16


def test_holders_come_and_go() -> None:
    someone = (Holder("process", "1"),)

    def held(gpu: Gpu) -> Gpu:
        instances = tuple(replace(i, held=True, holders=someone) for i in gpu.instances)
        return replace(gpu, holders=someone, instances=instances, vgpus=(replace(VGPU, holders=someone),))

    node = _node()
    assert replace(node, gpus=tuple(map(held, node.gpus))).fingerprint == node.fingerprint
