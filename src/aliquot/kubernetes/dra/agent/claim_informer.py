"""The claims that have devices of a node, from the API server.

A claim has no field for its node, so the agent watches all claims and keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.dra.agent.claim_types import AllocatedClaim, AllocatedDevice, ClaimMismatchError
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.device_config import check_claim
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference
from aliquot.kubernetes.kinds.claim_status import AllocationResult

POD_CLAIM_ANNOTATION = "resource.kubernetes.io/pod-claim-name"


class ClaimInformer:
    """Implements ``claim_types.ClaimSource``.

    ``is_own_pool`` tells whether a pool belongs to this node. ``claims`` must be followed by the owner.
    """

    def __init__(
        self, api: Api, driver: str, is_own_pool: Callable[[str], bool], changed: Callable[[], None] = lambda: None
    ) -> None:
        self._api = api
        self._driver = driver
        self.is_own_pool = is_own_pool
        self.claims = Informer(
            ResourceClaim,
            lambda _: changed(),
            namespace=ALL_NAMESPACES,
            is_own=lambda item: any(map(self._is_ours, item.results)),
            relevant_part=lambda item: (item.metadata.uid, item.results),
            log=log,
        )

    @property
    def current(self) -> bool:
        """True if the claims are read, and changes of them arrive."""
        return self.claims.synced and not self.claims.absent and not self.claims.unavailable

    @property
    def allocated(self) -> frozenset[str] | None:
        """Names of the allocated devices of this node, other than by admin access; None if they are not known now."""
        if not self.current:
            return None
        found = (result for claim in self.claims.items for result in claim.results if self._is_ours(result))
        return frozenset(result.device for result in found if not result.admin_access)

    @property
    def uids(self) -> frozenset[str] | None:
        """The uids of the claims that have devices of this node; None if they are not known now."""
        return frozenset(claim.metadata.uid for claim in self.claims.items) if self.current else None

    async def allocation(self, reference: ClaimReference) -> AllocatedClaim:
        """Read a claim from the API server. A cached one may be older than what kubelet has read.

        Raises also what ``check_claim`` raises, for a configuration that Aliquot does not serve.
        """
        step = f"kubectl -n {reference.namespace} get resourceclaim {reference.name} -o yaml"
        try:
            claim = await self._api.get(ResourceClaim, reference.name, reference.namespace)
        except NotFoundError as error:
            raise ClaimMismatchError(f"{reference} does not exist any more", next_step=step) from error
        if claim.metadata.uid != reference.uid:
            raise ClaimMismatchError(
                f"{reference} was deleted and created again: it has uid {claim.metadata.uid}, "
                f"and kubelet asks for {reference.uid}",
                next_step=step,
            )
        found = self._allocated(claim)
        if not found.devices:
            raise ClaimMismatchError(f"{reference} has no device of {self._driver} on this node", next_step=step)
        check_claim(claim, self._driver, monitoring=True)
        return found

    def is_known_to_differ(self, claim: AllocatedClaim) -> bool:
        """Report whether the cached claim of this uid has other devices."""
        reference = claim.reference
        found = self.claims.get(reference.name, reference.namespace)
        return found is not None and found.metadata.uid == reference.uid and self._allocated(found) != claim

    def _is_ours(self, result: AllocationResult) -> bool:
        return result.driver == self._driver and self.is_own_pool(result.pool)

    def _allocated(self, claim: ResourceClaim) -> AllocatedClaim:
        """Return the devices of this node. One device may be allocated for several requests."""
        requests: dict[tuple[str, str], list[str]] = {}
        shared: dict[tuple[str, str], bool] = {}
        for result in filter(self._is_ours, claim.results):
            key = result.pool, result.device
            requests.setdefault(key, []).append(result.request)
            shared[key] = shared.get(key, True) and result.admin_access
        meta = claim.metadata
        return AllocatedClaim(
            ClaimReference(meta.uid, meta.namespace, meta.name),
            tuple(AllocatedDevice(tuple(names), *key, shared[key]) for key, names in requests.items()),
            meta.annotations.get(POD_CLAIM_ANNOTATION, ""),
        )
