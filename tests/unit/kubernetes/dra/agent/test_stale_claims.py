"""Claims that the cluster has forgotten are released only if nothing can use them."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.errors import BlockedError
from aliquot.kubernetes.dra.agent.stale_claims import StaleClaims
from aliquot.kubernetes.gpu.claimed_device import ClaimedDevice
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from aliquot.node.holders.prepared_claims import RecordedClaim
from unit.kubernetes.dra.agent.bench import run

CLAIM = RecordedClaim("u1", "team", "train", "boot-1", ())


class Kubelet:
    claims: Sequence[str] = ()
    answers = True

    async def uses(self) -> Sequence[PodDeviceUse]:
        if not self.answers:
            raise BlockedError("kubelet does not answer", code="KUBELET_AWAY", next_step="systemctl status kubelet")
        return [PodDeviceUse("team", "pod", "main", claim=ClaimedDevice(name, "x")) for name in self.claims]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_claim_without_pod_is_released_after_a_while() -> None:
    kubelet, clock = Kubelet(), Clock()
    stale = StaleClaims(kubelet.uses, clock)

    def found(known: tuple[str, ...] | None = (), boot: str = "boot-1") -> list[str]:
        return [each.uid for each in run(stale.find((CLAIM,), known, boot))]

    assert found() == []
    clock.now = 59.0
    assert found() == []
    clock.now = 60.0
    assert found() == ["u1"]
    # known again, used by a pod, or unknown to a kubelet that does not answer: the time begins again
    for known, claims, answers in ((("u1",), (), True), ((), ("team/train",), True), ((), (), False), (None, (), True)):
        kubelet.claims, kubelet.answers = claims, answers
        assert found(known) == []
        kubelet.claims, kubelet.answers = (), True
        clock.now += 59.0
        assert found() == []
        clock.now += 60.0
        assert found() == ["u1"]
    # after a reboot no pod can use it
    kubelet.answers = False
    assert found(boot="boot-2") == ["u1"]
    assert found(known=("u1",), boot="boot-2") == []
    assert found(known=None, boot="boot-2") == []


def test_without_a_kubelet_nothing_is_released_in_the_same_boot() -> None:
    clock = Clock()
    stale = StaleClaims(None, clock)
    run(stale.find((CLAIM,), (), "boot-1"))
    clock.now = 1e6
    assert run(stale.find((CLAIM,), (), "boot-1")) == ()


def test_the_time_of_the_next_release_is_known() -> None:
    kubelet, clock = Kubelet(), Clock()
    stale = StaleClaims(kubelet.uses, clock)
    run(stale.find((CLAIM,), ("u1",), "boot-1"))
    assert stale.due_s is None
    run(stale.find((CLAIM,), (), "boot-1"))
    assert stale.due_s == 60.0
    clock.now = 45.0
    run(stale.find((CLAIM,), (), "boot-1"))
    assert stale.due_s == 15.0
    kubelet.claims = ("team/train",)
    run(stale.find((CLAIM,), (), "boot-1"))
    assert stale.due_s is None


def test_a_release_that_fails_is_not_due_again_at_once() -> None:
    # A due time of 0 would make the loop read the GPUs without a pause until the release succeeds.
    stale = StaleClaims(Kubelet().uses, clock := Clock())
    run(stale.find((CLAIM,), (), "boot-1"))
    clock.now = 60.0
    assert run(stale.find((CLAIM,), (), "boot-1"))
    assert stale.due_s is None
    clock.now = 75.0
    assert run(stale.find((CLAIM,), (), "boot-1"))
    assert stale.due_s is None
