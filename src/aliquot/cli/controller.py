"""``aliquot controller``: the cluster's controller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from aliquot.cli.agent import missing_extra
from aliquot.cli.parse import Args

if TYPE_CHECKING:
    from aliquot.controller.run import Page


def run(args: Args) -> int:
    """Until SIGTERM."""
    try:
        from aliquot.controller import run as controller
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    options = controller.Options(args.kubeconfig, args.namespace, args.identity, args.port, args.debug)
    return controller.run(options, _serve)


async def _serve(pages: Mapping[str, Page], port: int) -> Callable[[], Awaitable[None]]:
    from aliquot.probes import Probes

    probes = Probes(dict(pages))
    await probes.start("", port)
    return probes.close
