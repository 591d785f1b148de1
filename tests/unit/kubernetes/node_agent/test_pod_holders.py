"""Holders by the kubelet's report: devices of a plugin, and devices of ResourceClaims."""

from __future__ import annotations

import pytest

from aliquot.core.model.desired import Desired, RuleCode
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Holder, Inventory
from aliquot.core.model.plan import Blocker, Plan
from aliquot.kubernetes.gpu.claimed_device import ClaimedDevice
from aliquot.kubernetes.node_agent.pod_holders import (
    POD,
    PodDeviceUse,
    blocked_by_processes_only,
    held_by_pods,
    uses_of_devices,
)

ONE, TWO = "GPU-11111111-2222-3333-4444-000000000001", "GPU-11111111-2222-3333-4444-000000000002"
FIRST, SECOND = "MIG-aaaaaaaa-0000-0000-0000-000000000001", "MIG-aaaaaaaa-0000-0000-0000-000000000002"


def instance(number: int, placement: str, uuid: str) -> GpuInstance:
    compute = ComputeInstance(0, "1g.10gb", 0, "0:1", uuid)
    return GpuInstance(number, "1g.10gb", 19, placement, compute_instances=(compute,))


HERE = Inventory(
    "n",
    (
        Gpu("0000:01:00.0", ONE, 0, "H100", minor=3, instances=(instance(7, "0:1", FIRST), instance(8, "4:1", SECOND))),
        Gpu("0000:02:00.0", TWO, 1, "H100", minor=1),
    ),
)


def claim(device: str = "", *cdi: str, driver: str = "gpu.nvidia.com") -> PodDeviceUse:
    return PodDeviceUse("default", "train", "main", claim=ClaimedDevice("default/half", driver, "node-1", device, cdi))


def held(use: PodDeviceUse) -> list[str]:
    """Return the UUIDs of held GPUs and MIG devices."""
    gpus = held_by_pods(HERE, [use]).gpus
    return [gpu.uuid for gpu in gpus if gpu.holders] + [
        c.uuid for gpu in gpus for i in gpu.instances if i.held for c in i.compute_instances
    ]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (claim("x", f"k8s.gpu.nvidia.com/device={FIRST}"), [FIRST]),
        (claim("x", f"k8s.gpu.nvidia.com/claim=123-{SECOND.lower()}"), [SECOND]),
        (claim(SECOND.lower()), [SECOND]),
        (claim("x", f"a.b/c={ONE}-{FIRST}"), [FIRST]),
        (claim("x", f"a.b/c={TWO}"), [TWO]),
        (claim("gpu-3-mig-1g10gb-19-4"), [SECOND]),
        (claim("gpu-3-mig-1g10gb-me-20-4"), [SECOND]),
        (claim("gpu-3-mig-1g24gb-meall-65-4"), [SECOND]),
        (claim("gpu-3-mig-19-0-1"), [FIRST]),
        (claim("gpu-1"), [TWO]),
        (claim("gpu-3"), [ONE, FIRST, SECOND]),
        (claim("gpu-3-mig-1g10gb-19-6"), [ONE, FIRST, SECOND]),
        (claim("x", f"a.b/c={FIRST}", driver="mig.example.org"), [FIRST]),
        (claim("gpu-1", driver="net.example.org"), []),
        (claim("channel-0", driver="compute-domain.nvidia.com"), []),
        (claim("gpu-1", driver="nvidia.com.example.org"), []),
    ],
)
def test_a_claimed_device_is_known_by_its_names(use: PodDeviceUse, expected: list[str]) -> None:
    assert held(use) == expected


@pytest.mark.parametrize(
    "use",
    [claim("gpu-7"), claim("what"), claim("gpu-1", driver="other.nvidia.com"), claim("what", driver="nvidia.com")],
)
def test_an_unidentified_nvidia_device_may_be_any(use: PodDeviceUse) -> None:
    assert held(use) == [ONE, TWO, FIRST, SECOND]
    (holder,) = held_by_pods(HERE, [use]).gpus[1].holders
    assert use.claim is not None
    assert str(holder) == (
        f"pod default/train (main, claim default/half of driver {use.claim.driver}, "
        f"whose device {use.claim.device!r} identifies no GPU: it may be any)"
    )


def test_the_claim_is_named() -> None:
    (holder,) = held_by_pods(HERE, [claim("gpu-1")]).gpus[1].holders
    assert str(holder) == "pod default/train (main, claim default/half of driver gpu.nvidia.com)"


@pytest.mark.parametrize(
    "use",
    [
        PodDeviceUse("default", "train", "main", (FIRST,)),
        PodDeviceUse("default", "train", "main", (f"{FIRST}::2",)),
        PodDeviceUse("default", "train", "main", (ONE,)),
        claim("gpu-3-mig-1g10gb-19-0"),
        claim("what"),
    ],
)
def test_who_was_given_a_device_since_the_last_look(use: PodDeviceUse) -> None:
    assert [each.pod for each in uses_of_devices(frozenset({FIRST}), [use], HERE)] == ["train"]
    assert not uses_of_devices(frozenset({TWO}), [PodDeviceUse("default", "train", "main", (FIRST,))], HERE)


@pytest.mark.parametrize(
    ("rules", "holders", "expected"),
    [
        ((), (), False),
        (("HELD",), (Holder("process", "4711"),), True),
        (("HELD",), (Holder("process", "4711"), Holder(POD, "default/train")), False),
        (("HELD", "NO_SUCH_GPU"), (Holder("process", "4711"),), False),
    ],
    ids=["not blocked", "a process", "a process beside a pod", "another rule beside the holder"],
)
def test_processes_may_be_ended_only_while_no_pod_blocks(
    rules: tuple[RuleCode, ...], holders: tuple[Holder, ...], expected: bool
) -> None:
    blockers = tuple(Blocker(rule, "blocked", holders=holders) for rule in rules)
    assert blocked_by_processes_only(Plan("n", "", Desired(()), blockers=blockers)) is expected
