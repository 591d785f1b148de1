"""``aliquot dra show``: what the nodes of a cluster publish, which claims have it, and what else fits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aliquot.cli.dra import pools_view
from aliquot.cli.framework import output
from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.parser import Args
from aliquot.errors import BlockedError

if TYPE_CHECKING:
    from aliquot.kubernetes.dra.agent.resource_objects import ResourceClaim
    from aliquot.kubernetes.dra.model.objects import ResourceSlice


class NoSlicesError(BlockedError):
    """The cluster has no resource slice with a GPU."""

    code = "NO_DRA_GPUS"


def run(args: Args) -> int:
    try:
        from aliquot.kubernetes.dra.view.pools import gpu_pools

        pools = gpu_pools(*asyncio.run(_read(args.kubeconfig)))
    except ModuleNotFoundError as error:
        raise missing_library(error, "agent", "dra show") from error
    shown = tuple(pool for pool in pools if not args.nodes or pool.node in args.nodes)
    missing = sorted(set(args.nodes or ()) - {pool.node for pool in pools})
    if missing or not shown:
        where = f"node {', '.join(missing)}" if missing else "this cluster"
        raise NoSlicesError(f"no resource slice of {where} has a GPU", next_step="kubectl get resourceslices")
    output.emit(output.build("DraPools", pools=shown), args.output, pools_view.text(shown))
    return 0


async def _read(kubeconfig: str | None) -> tuple[tuple[ResourceSlice, ...], tuple[ResourceClaim, ...]]:
    """Read slices and claims. Raises ApiError, and NoDraApiError if the cluster does not serve them."""
    from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
    from aliquot.kubernetes.client.errors import NotFoundError
    from aliquot.kubernetes.dra.agent.resource_objects import ResourceClaim
    from aliquot.kubernetes.dra.model.objects import ResourceSlice

    async with Api.connect(kubeconfig) as api:
        try:
            return await api.list(ResourceSlice), await api.list(ResourceClaim, ALL_NAMESPACES)
        except NotFoundError as error:
            raise NoDraApiError(
                f"{api.server} does not serve resource.k8s.io/v1: Dynamic Resource Allocation needs Kubernetes 1.34",
                next_step="kubectl version",
            ) from error


class NoDraApiError(BlockedError):
    """The API server does not serve Dynamic Resource Allocation in a version that Aliquot knows."""

    code = "NO_DRA_API"
