"""Mixed-size mode of GPU instances in drift and plans, also where the backend cannot see it."""

from __future__ import annotations

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.model.actions import SetMixedSize
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner.plan import plan
from aliquot.core.planner.verify import verify

PRO = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
UNKNOWN = msgspec.UNSET
Mode = bool | msgspec.UnsetType


def gpu(*modes: Mode) -> Gpu:
    """Return a GPU with a GPU instance of each mode."""
    instances = tuple(GpuInstance(3 + n, "1g.24gb+gfx", 47, f"{3 * n}:3", mixed_size=m) for n, m in enumerate(modes))
    return factory.replace(factory.gpu(PRO, mig=True), instances=instances)


def drift(of: Gpu, wanted: bool | None) -> list[str]:
    desired = Desired((DesiredGpu(of.pci, None, None, mixed_size=wanted),))
    return [d.sentence for d in verify(factory.node(of), desired)]


@pytest.mark.parametrize(
    ("modes", "wanted", "expected"),
    [
        ((True, True), True, []),
        ((True, True), False, ["mixed-size mode is on, but should be off"]),
        ((False,), True, ["mixed-size mode is off, but should be on"]),
        ((True, False), True, ["mixed-size mode is off in some GPU instances, but should be on"]),
        ((True, False), False, ["mixed-size mode is on in some GPU instances, but should be off"]),
        ((UNKNOWN,), True, ["mixed-size mode cannot be read, but should be on"]),
        ((UNKNOWN,), False, []),
        ((True, UNKNOWN), True, ["mixed-size mode cannot be read, but should be on"]),
        ((False, UNKNOWN), False, []),
        ((UNKNOWN,), None, []),
    ],
)
def test_drift_of_the_mode(modes: tuple[Mode, ...], wanted: bool | None, expected: list[str]) -> None:
    assert drift(gpu(*modes), wanted) == expected


@pytest.mark.parametrize(
    ("modes", "wanted", "switched"),
    [((True,), True, False), ((UNKNOWN,), True, True), ((UNKNOWN,), False, False), ((True, UNKNOWN), False, True)],
)
def test_a_plan_follows_from_the_drift(modes: tuple[Mode, ...], wanted: bool, switched: bool) -> None:
    of = gpu(*modes)
    got = plan(factory.node(of), Desired((DesiredGpu(of.pci, None, None, vgpus=(), mixed_size=wanted),)))
    assert [a.on for a in got.actions if isinstance(a, SetMixedSize)] == [wanted] * switched
    assert bool(drift(of, wanted)) == switched


def test_the_mode_is_absent_in_documents_where_it_is_unknown() -> None:
    (instance,) = gpu(UNKNOWN).instances
    assert b"mixed" not in msgspec.json.encode(instance)
    assert msgspec.json.decode(msgspec.json.encode(instance), type=GpuInstance) == instance
