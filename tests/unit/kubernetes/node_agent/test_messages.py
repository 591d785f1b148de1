"""The agents' sentences about holders, and the commands in them."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.actions import CreateVgpu
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredVgpu
from aliquot.core.model.inventory import Holder
from aliquot.core.model.plan import Blocker, Plan, Policy, make_plan
from aliquot.core.planner.plan import plan
from aliquot.kubernetes.gpu.config_label import DesiredConfig
from aliquot.kubernetes.node_agent import messages
from laws.oracle import mig_nodes
from support.vgpufactory import PCI, gpu, having, kind, node

A100 = catalog.family("a100-40gb")


def _blocked(*holders: Holder) -> Plan:
    made = plan(mig_nodes.node(mig_nodes.gpu(A100, [])), mig_nodes.desired_state(A100, ["1g.5gb"]))
    return msgspec.structs.replace(made, blockers=(Blocker("HELD", "held", holders=holders),))


@pytest.mark.parametrize(
    ("holders", "command"),
    [
        ((), "aliquot show"),
        ((Holder("process", "11"),), "aliquot show"),
        ((Holder("process", "11"), Holder("pod", "ml/train")), "kubectl -n ml describe pod train"),
    ],
    ids=["unknown", "process", "pod"],
)
def test_the_command_shows_the_first_pod(holders: tuple[Holder, ...], command: str) -> None:
    assert messages.describe_command(_blocked(*holders)) == command


def test_each_holder_is_named_once() -> None:
    assert messages.holders(_blocked(Holder("pod", "a/b"), Holder("pod", "a/b"))) == "pod a/b"
    assert messages.holders(_blocked()) == "a client that the driver does not name"


def test_vgpus_are_counted_by_their_short_names() -> None:
    four, eight = kind("NVIDIA A2", "4Q"), kind("NVIDIA A2", "8Q")
    before = node(having(gpu("NVIDIA A2"), (four, 0), (four, 1)))
    wanted = (DesiredVgpu(four.id or 0, four.name), DesiredVgpu(eight.id or 0, eight.name))
    off = node(gpu("NVIDIA A2", on=False))
    request = Desired((DesiredGpu(before.gpus[0].pci, None, None, vgpus=wanted),))
    assert messages.intent(plan(off, Desired((DesiredGpu(PCI, None, None, vgpus=wanted[:1]),)))) == (
        "to set virtual functions enabled on 1 GPU, to create 1x A2-4Q"
    )
    held = DesiredConfig("two", request)
    assert messages.geometry(before, held) == "GPU 0: A2-4Q:2"
    assert messages.geometry(off, held) == "GPU 0: no vGPU"
    kept = Desired((DesiredGpu(PCI, None, None, vgpus=wanted[:1]),))
    assert messages.result(plan(before, kept)) == "destroyed 1x A2-4Q, 1 vGPU kept"


@pytest.mark.parametrize(
    ("vgpus", "made", "unchanged", "text"),
    [
        (0, 0, 2, "2 instances kept"),
        (2, 0, 4, "2 instances and 2 vGPUs kept"),
        (2, 1, 2, "created 1x A2-4Q, 1 instance and 1 vGPU kept"),
        (2, 0, 2, "2 vGPUs kept"),
    ],
    ids=["instances", "both", "one", "vgpus"],
)
def test_instances_under_vgpus_are_not_counted_as_vgpus(vgpus: int, made: int, unchanged: int, text: str) -> None:
    four = kind("NVIDIA A2", "4Q")
    wanted = (DesiredVgpu(four.id or 0, four.name),) * vgpus
    desired = Desired((DesiredGpu(PCI, None, None, vgpus=wanted),))
    create = CreateVgpu(gpu=PCI, reason="", function=PCI, type_id=four.id or 0, type=four.name, uuid="")
    changed = make_plan("n", "", desired, (create,) * made, policy=Policy(), unchanged=unchanged)
    assert messages.result(changed) == text
