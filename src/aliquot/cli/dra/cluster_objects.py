"""Slices and claims of a cluster, read once for a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aliquot.errors import BlockedError

if TYPE_CHECKING:
    from aliquot.kubernetes.dra.model.claims import ResourceClaim
    from aliquot.kubernetes.dra.model.objects import ResourceSlice


class NoSlicesError(BlockedError):
    """The cluster has no resource slice with a GPU."""

    code = "NO_DRA_GPUS"


class NoDraApiError(BlockedError):
    """The API server does not serve Dynamic Resource Allocation in a version that Aliquot knows."""

    code = "NO_DRA_API"


async def read_slices(kubeconfig: str | None) -> tuple[ResourceSlice, ...]:
    """Read the slices. Raises ApiError, and NoDraApiError if the cluster does not serve them."""
    from aliquot.kubernetes.client.client import Api
    from aliquot.kubernetes.dra.model.objects import ResourceSlice

    async with Api.connect(kubeconfig) as api:
        with _served(api.server):
            return await api.list(ResourceSlice)


async def read_objects(kubeconfig: str | None) -> tuple[tuple[ResourceSlice, ...], tuple[ResourceClaim, ...]]:
    """Read slices and claims. Raises ApiError, and NoDraApiError if the cluster does not serve them."""
    from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
    from aliquot.kubernetes.dra.model.claims import ResourceClaim
    from aliquot.kubernetes.dra.model.objects import ResourceSlice

    async with Api.connect(kubeconfig) as api:
        with _served(api.server):
            return await api.list(ResourceSlice), await api.list(ResourceClaim, ALL_NAMESPACES)


@contextmanager
def _served(server: str) -> Iterator[None]:
    from aliquot.kubernetes.client.errors import NotFoundError

    try:
        yield
    except NotFoundError as error:
        raise NoDraApiError(
            f"{server} does not serve resource.k8s.io/v1: Dynamic Resource Allocation needs Kubernetes 1.34",
            next_step="kubectl version",
        ) from error
