"""Claims as the API server has them: the right uid, our driver, this node."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.kubernetes.client.errors import ApiUnavailableError, NotFoundError
from aliquot.kubernetes.client.objects import ObjectMeta
from aliquot.kubernetes.client.watch import FullList
from aliquot.kubernetes.dra.agent.claim_informer import ClaimInformer
from aliquot.kubernetes.dra.agent.claim_types import ClaimMismatchError
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.device_config import SharedAllocationError
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference
from aliquot.kubernetes.kinds.claim_status import (
    AllocationResult,
    ClaimAllocationStatus,
    DeviceResults,
    ResourceClaimStatus,
)
from unit.kubernetes.dra.agent.bench import run

DRIVER = "gpu.aliquot.dev"


def made(*results: tuple[str, str, str], driver: str = DRIVER, uid: str = "u1") -> ResourceClaim:
    """Return a claim with devices: request, pool, device."""
    found = tuple(AllocationResult(request, driver, pool, device) for request, pool, device in results)
    status = ResourceClaimStatus(ClaimAllocationStatus(DeviceResults(found)) if found else None)
    return ResourceClaim(metadata=ObjectMeta(name="train", namespace="team", uid=uid), status=status)


class Server:
    def __init__(self, claim: ResourceClaim | None) -> None:
        self.claim = claim

    async def get(self, kind: object, name: str, namespace: str) -> ResourceClaim:
        if self.claim is None:
            raise NotFoundError("not found")
        return self.claim


def informer(claim: ResourceClaim | None = None) -> ClaimInformer:
    server: Any = Server(claim)
    return ClaimInformer(server, DRIVER, lambda pool: pool == "n1-aliquot")


def test_requests_of_one_device_are_joined() -> None:
    claim = made(("a", "n1-aliquot", "x"), ("b", "n1-aliquot", "x"), ("c", "n1-aliquot", "y"), ("d", "n2-aliquot", "x"))
    found = run(informer(claim).allocation(ClaimReference("u1", "team", "train")))
    assert [(d.requests, d.device) for d in found.devices] == [(("a", "b"), "x"), (("c",), "y")]


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (None, "does not exist any more"),
        (made(("a", "n1-aliquot", "x"), uid="u2"), "has uid u2, and kubelet asks for u1"),
        (made(), "no device of gpu.aliquot.dev"),
        (made(("a", "n2-aliquot", "x")), "no device of gpu.aliquot.dev"),
        (made(("a", "n1-aliquot", "x"), driver="gpu.nvidia.com"), "no device of gpu.aliquot.dev"),
    ],
)
def test_another_claim_is_refused(claim: ResourceClaim | None, text: str) -> None:
    with pytest.raises(ClaimMismatchError, match=text) as caught:
        run(informer(claim).allocation(ClaimReference("u1", "team", "train")))
    assert caught.value.next_step == "kubectl -n team get resourceclaim train -o yaml"


def test_a_share_of_a_device_is_refused() -> None:
    share = AllocationResult("a", DRIVER, "n1-aliquot", "x", share_id="8f2")
    allocation = ClaimAllocationStatus(DeviceResults((share,)))
    claim = ResourceClaim(ObjectMeta(name="train", namespace="team", uid="u1"), ResourceClaimStatus(allocation))
    with pytest.raises(SharedAllocationError, match="has a share of device x"):
        run(informer(claim).allocation(ClaimReference("u1", "team", "train")))


def _known(found: ClaimInformer) -> tuple[object, object]:
    return found.allocated, found.uids


def test_what_is_allocated_is_known_only_while_changes_arrive() -> None:
    found = informer()
    assert _known(found) == (None, None)
    found.claims.apply(FullList((made(("a", "n1-aliquot", "x")),), "1"))
    assert _known(found) == ({"x"}, {"u1"})
    found.claims.note_failure(ApiUnavailableError("no answer"))
    assert _known(found) == (None, None)
    found.claims.note_failure(None)
    assert _known(found) == ({"x"}, {"u1"})


def test_a_cached_claim_shows_that_an_allocation_is_old() -> None:
    claim = made(("a", "n1-aliquot", "x"))
    found = informer(claim)
    old = run(found.allocation(ClaimReference("u1", "team", "train")))
    assert not found.is_known_to_differ(old)
    found.claims.apply(FullList((claim,), "1"))
    assert not found.is_known_to_differ(old)
    found.claims.apply(FullList((made(("a", "n1-aliquot", "y")),), "2"))
    assert found.is_known_to_differ(old)
    found.claims.apply(FullList((made(("a", "n1-aliquot", "y"), uid="u2"),), "3"))
    assert not found.is_known_to_differ(old)
