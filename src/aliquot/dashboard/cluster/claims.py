"""Conversion of resource slices and claims to what the page shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aliquot.dashboard.claim_views import ClaimableGpu, ClaimableProfile, ClaimRow, ClaimsView
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.device import DraDevice
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.view.allocated import ClaimDevice, allocated_devices
from aliquot.kubernetes.dra.view.pools import WHOLE, gpu_pools

UNPUBLISHED = "no slice has this device any more, so the scheduler can give its room to another claim"


class ClusterClaims:
    """The claims of a cluster, converted once for each ``revision`` of what was observed."""

    def __init__(self, slices: Informer[ResourceSlice], claims: Informer[ResourceClaim]) -> None:
        self._slices, self._claims = slices, claims
        self._revision = -1
        self._all = ClaimsView()
        self._rooms: dict[str, tuple[ClaimableGpu, ...]] = {}

    def view(self, node: str, revision: int) -> ClaimsView:
        """Return all claims on GPUs; with the name of a node its own, and what is left of its GPUs."""
        if self._revision != revision:
            self._revision, self._rooms = revision, {}
            self._all = _all_claims(self._slices, self._claims)
        if not node:
            return self._all
        if node not in self._rooms:
            self._rooms[node] = _room(self._slices.items, self._claims.items, node)
        return ClaimsView(tuple(row for row in self._all.rows if row.node == node), self._rooms[node])


def _all_claims(slices: Informer[ResourceSlice], claims: Informer[ResourceClaim]) -> ClaimsView:
    rows = (_row(each) for each in allocated_devices(slices.items, claims.items))
    ordered = sorted(rows, key=lambda row: (row.namespace, row.claim, row.device))
    return ClaimsView(tuple(ordered), missing=tuple(_missing(slices, claims)))


def _room(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim], node: str) -> tuple[ClaimableGpu, ...]:
    pools = gpu_pools([each for each in slices if each.spec.node_name == node], tuple(claims))
    return tuple(
        ClaimableGpu(
            pool.driver,
            pool.pool,
            gpu.pci,
            gpu.product,
            tuple(ClaimableProfile(each.profile, each.count, each.reason, each.more) for each in gpu.fits),
            pool.problems,
        )
        for pool in pools
        for gpu in pool.gpus
    )


def _missing(slices: Informer[ResourceSlice], claims: Informer[ResourceClaim]) -> Iterator[str]:
    if slices.absent or claims.absent:
        yield (
            "This cluster does not serve resource.k8s.io/v1: claims need Kubernetes 1.34. "
            "Next: aliquot dra check"
        )  # fmt: skip
        return
    for informer in (slices, claims):
        if informer.unavailable:
            yield (
                f"Claims cannot be read now: {informer.unavailable}. "
                "Next: kubectl get resourceclaims,resourceslices --all-namespaces"
            )
            return
    if not (slices.synced and claims.synced):
        yield "Claims are still being read."


def _row(found: ClaimDevice) -> ClaimRow:
    claim, result, device = found.claim, found.result, found.device
    product = device.attributes.get("productName") if device is not None else None
    return ClaimRow(
        namespace=claim.metadata.namespace,
        claim=claim.name,
        node=found.node,
        gpu=device.pci if device is not None else "",
        product=(product.string_value or "") if product is not None else "",
        device=result.device,
        what=_what(device) if device is not None else "",
        pods=claim.pods,
        admin=result.admin_access,
        problem=_not_ready(claim, result.driver, result.pool, result.device) or (UNPUBLISHED if device is None else ""),
    )


def _what(device: DraDevice) -> str:
    if not device.profile:
        return WHOLE
    return f"{device.profile} at {device.start}:{device.size}" if device.size else device.profile


def _not_ready(claim: ResourceClaim, driver: str, pool: str, device: str) -> str:
    """Return what the driver reports about a device that does not work. Foreign drivers write these entries too."""
    for entry in claim.status.devices:
        if (entry.get("driver"), entry.get("pool"), entry.get("device")) == (driver, pool, device):
            return next((_text(each) for each in _conditions(entry) if _says_not_ready(each)), "")
    return ""


def _conditions(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from (each for each in entry.get("conditions") or () if isinstance(each, dict))


def _says_not_ready(condition: Mapping[str, Any]) -> bool:
    return condition.get("type") == "Ready" and condition.get("status") == "False"


def _text(condition: Mapping[str, Any]) -> str:
    return str(condition.get("message") or condition.get("reason") or "the driver says that it is not ready")
