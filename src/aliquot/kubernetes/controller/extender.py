"""The scheduler extender of a controller replica. Every replica answers, since none writes for it."""

from __future__ import annotations

import asyncio
import datetime as dt

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
from aliquot.kubernetes.dra.extender.prioritizer import PATH, Prioritizer
from aliquot.kubernetes.manifests.values import EXTENDER
from aliquot.kubernetes.virtual_machines.webhook.certificate_source import MountedCertificate, service_dns_names
from aliquot.kubernetes.virtual_machines.webhook.certificates import CertificatePair, make_authority, make_server
from aliquot.kubernetes.virtual_machines.webhook.server import HttpsServer, received_body

GRACE_S = 5.0


class Extender:
    """The HTTPS server of the extender."""

    def __init__(self, api: Api, options: ExtenderOptions, timing: WatchTiming = KIND_TIMING) -> None:
        """Listen. Raise UsageError if the mounted certificate cannot be used or the port is taken."""
        self._api, self._options = api, options
        self.fleet = PublishedFleet(timing)
        self._prioritizer = Prioritizer(self.fleet, options.score)
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
            self._certify(self._mounted.read().key_pair if self._mounted is not None else self._own_certificate())
        except AliquotError:
            self.server.close()
            raise

    async def run(self) -> None:
        """Follow the cluster and serve, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fleet.run(self._api))
            group.create_task(self._serve())
            group.create_task(self._keep_certified())

    async def _prioritize(self, request: Request) -> Response:
        body = await received_body(request)
        if isinstance(body, Response):
            return body
        answer = await self._prioritizer.answer(body)
        return Response(answer.body, answer.status, media_type=answer.content_type)

    async def _serve(self) -> None:
        try:
            serving = asyncio.create_task(self.server.serve())
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                self.server.stop()
                await asyncio.wait({serving}, timeout=GRACE_S)
                raise
        finally:
            self.server.close()

    async def _keep_certified(self) -> None:
        while self._mounted is not None:
            await asyncio.sleep(self._options.check_s)
            try:
                self._certify(self._mounted.read().key_pair)
            except AliquotError as error:
                self._warnings.update((error.brief,))  # also while the files are being replaced
            else:
                self._warnings.update(())

    def _certify(self, found: CertificatePair) -> None:
        if found != self._served:
            self.server.certify(found.certificate, found.key)
        self._served = found

    def _own_certificate(self) -> CertificatePair:
        """Make a certificate for this process. It encrypts, and proves nothing: its authority is kept nowhere."""
        now = dt.datetime.now(dt.UTC)
        return make_server(make_authority(now), service_dns_names(self._api.namespace, EXTENDER), now)


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")
