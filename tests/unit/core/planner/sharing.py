"""Requests to the planner for GPUs that are shared with VMs; used by several test files."""

from __future__ import annotations

import msgspec

import support.vgpufactory as factory
from aliquot.core.model.actions import Action
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu, HostVirtualization
from aliquot.core.model.plan import Blocker, Plan, Policy
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from aliquot.core.planner.verify import verify

replace = msgspec.structs.replace
A2, L40S, H100, A100 = "NVIDIA A2", "NVIDIA L40S", "NVIDIA H100 PCIe", "NVIDIA A100-PCIE-40GB"
RTX, T4, A30 = "NVIDIA RTX PRO 6000 Blackwell Server Edition", "Tesla T4", "NVIDIA A30"
BARE = DesiredGpu(factory.PCI, mig=None, instances=None)


def asked(
    of: Gpu, desired_gpu: DesiredGpu, policy: Policy | None = None, host: HostVirtualization | None = None
) -> Plan:
    return plan(factory.node(of, host=host), Desired(gpus=(desired_gpu,), name="x"), policy)


def vgpus(of: Gpu, counts: dict[str, int], mixed: bool | None = None, policy: Policy | None = None) -> Plan:
    return plan(factory.node(of), factory.desired_state(of, counts, mixed), policy)


def blocker(got: Plan) -> Blocker:
    assert got.actions == ()
    assert len(got.blockers) == 1
    return got.blockers[0]


def done(of: Gpu, got: Plan) -> Gpu:
    inventory = factory.node(of)
    for action in got.actions:
        inventory = step(inventory, action)
    assert verify(inventory, got.desired) == ()
    return inventory.gpus[0]


def kinds(got: Plan) -> list[type[Action]]:
    return [type(a) for a in got.actions]


def kind(name: str, short: str) -> tuple[str, int]:
    return factory.kind(name, short).name, factory.kind(name, short).id or 0
