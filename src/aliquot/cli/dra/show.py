"""``aliquot dra show``: what the nodes of a cluster publish, which claims have it, and what else fits."""

from __future__ import annotations

import asyncio

from aliquot.cli.dra import pools_view
from aliquot.cli.dra.cluster_objects import NoSlicesError, read_objects
from aliquot.cli.framework import output
from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.parser import Args


def run(args: Args) -> int:
    try:
        from aliquot.kubernetes.dra.view.pools import gpu_pools

        pools = gpu_pools(*asyncio.run(read_objects(args.kubeconfig)))
    except ModuleNotFoundError as error:
        raise missing_library(error, "agent", "dra show") from error
    shown = tuple(pool for pool in pools if not args.nodes or pool.node in args.nodes)
    missing = sorted(set(args.nodes or ()) - {pool.node for pool in pools})
    if missing or not shown:
        where = f"node {', '.join(missing)}" if missing else "this cluster"
        raise NoSlicesError(f"no resource slice of {where} has a GPU", next_step="kubectl get resourceslices")
    output.emit(output.build("DraPools", pools=shown), args.output, pools_view.text(shown))
    return 0
