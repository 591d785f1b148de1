"""The scheduler extender of a controller replica. Every replica answers, since none writes for it."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.informer import KIND_TIMING
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.dra.extender.fleet import PublishedFleet
from aliquot.kubernetes.dra.extender.options import ExtenderOptions
from aliquot.kubernetes.dra.extender.prioritizer import PATH, Prioritizer, RatingListener
from aliquot.kubernetes.manifests.values import EXTENDER
from aliquot.kubernetes.virtual_machines.webhook.certificate_source import MountedCertificate, service_dns_names
from aliquot.kubernetes.virtual_machines.webhook.certificates import CertificatePair, renewed_server
from aliquot.kubernetes.virtual_machines.webhook.server import HttpsServer, received_body


class Extender:
    """The HTTPS server of the extender."""

    def __init__(
        self,
        api: Api,
        options: ExtenderOptions,
        timing: WatchTiming = KIND_TIMING,
        on_rating: RatingListener = lambda outcome: None,
    ) -> None:
        """Listen. Raise UsageError if the mounted certificate cannot be used or the port is taken."""
        self._api, self._options = api, options
        self.clock: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
        self.fleet = PublishedFleet(timing)
        self._prioritizer = Prioritizer(self.fleet, options.score, on_rating)
        app = Starlette(
            routes=[
                Route(PATH, self._prioritize, methods=["POST"]),
                Route("/healthz", _healthz, methods=["GET"]),
            ]
        )
        self._mounted = (
            MountedCertificate(options.certificates, "--dra-extender-cert-dir") if options.certificates else None
        )
        self.server = HttpsServer(app, options.port, "--dra-extender-port")
        self._served: CertificatePair | None = None
        self._warnings = NewWarnings(log)
        try:
            self._certify()
        except AliquotError:
            self.server.close()
            raise

    async def run(self) -> None:
        """Follow the cluster and serve, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fleet.run(self._api))
            group.create_task(self.server.serve())
            group.create_task(self._keep_certified())

    async def _prioritize(self, request: Request) -> Response:
        body = await received_body(request)
        if isinstance(body, Response):
            return body
        answer = await self._prioritizer.answer(body)
        return Response(answer.body, answer.status, media_type=answer.content_type)

    async def _keep_certified(self) -> None:
        while True:
            await asyncio.sleep(self._options.check_s)
            try:
                self._certify()
            except AliquotError as error:
                self._warnings.update((error.brief,))  # also while the files are being replaced
            else:
                self._warnings.update(())

    def _certify(self) -> None:
        """Serve the mounted certificate, or else one of this process.

        That one encrypts and proves nothing: its authority is kept nowhere.
        """
        if self._mounted is not None:
            found = self._mounted.read().key_pair
        else:
            hosts = service_dns_names(self._api.namespace, EXTENDER)
            found = renewed_server(self._served, hosts, self.clock())
        if found != self._served:
            self.server.certify(found.certificate, found.key)
        self._served = found


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")
