"""Process of the controller: its options, its pages and its shutdown."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from aliquot.foundation.http_server import HttpServer
from aliquot.foundation.logfmt import controller_log, start
from aliquot.foundation.signals import stop_on_signal
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.controller.controller import Controller
from aliquot.kubernetes.dra.extender.options import ExtenderOptions
from aliquot.kubernetes.virtual_machines.webhook.options import WebhookOptions


class ControllerOptions(msgspec.Struct, frozen=True):
    """Options of the command line."""

    kubeconfig: str | None = None
    namespace: str | None = None
    identity: str | None = None
    port: int = 8080
    """-1 serves nothing."""
    debug: bool = False
    kubevirt_namespace: str = ""
    """Namespace of KubeVirt's settings; empty if the controller ignores VMs."""
    webhook: WebhookOptions = WebhookOptions()
    extender: ExtenderOptions = ExtenderOptions()


def run(options: ControllerOptions) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP. Raises AliquotError if the start fails."""
    start(controller_log, debug=options.debug)
    return asyncio.run(_main(options))


async def _main(options: ControllerOptions) -> int:
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as held:
        held.enter_context(stop_on_signal(stop.set, asyncio.get_running_loop()))
        api = await held.enter_async_context(Api.connect(options.kubeconfig, namespace=options.namespace))
        controller = Controller(
            api,
            identity=options.identity,
            kubevirt_namespace=options.kubevirt_namespace,
            webhook=options.webhook,
            extender=options.extender,
        )
        if options.port >= 0:
            server = HttpServer(controller.pages, "", options.port, "aliquot controller --port PORT")
            held.callback(server.close)
            server.attach(asyncio.get_running_loop())
        work = asyncio.create_task(controller.run())
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        for task in (work, waiting):
            task.cancel()
        results = await asyncio.gather(work, waiting, return_exceptions=True)
    if isinstance(results[0], Exception):
        raise results[0]
    return 0
