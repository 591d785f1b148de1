"""The webhooks of one controller replica: every replica answers, the one that leads keeps certificate and authority."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Callable, Mapping

from aliquot.errors import AliquotError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.admission_review import Request, Verdict
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ForbiddenError
from aliquot.kubernetes.manifests import webhooks
from aliquot.kubernetes.manifests.values import Values
from aliquot.kubernetes.virtual_machines.controller.informers import World
from aliquot.kubernetes.virtual_machines.harvester.admission import review as devices
from aliquot.kubernetes.virtual_machines.kubevirt.admission import review as machines
from aliquot.kubernetes.virtual_machines.webhook.admission_state import Known
from aliquot.kubernetes.virtual_machines.webhook.certificate_source import (
    MountedCertificate,
    OwnCertificate,
    Served,
    hosts,
)
from aliquot.kubernetes.virtual_machines.webhook.certificates import ends
from aliquot.kubernetes.virtual_machines.webhook.options import Page, WebhookOptions
from aliquot.kubernetes.virtual_machines.webhook.registration import register
from aliquot.kubernetes.virtual_machines.webhook.server import HttpsServer, NotReadyError, Reviewed, application

GRACE_S = 5.0
SOON_S, LATER_S = 1.0, 10.0
"""How soon it is looked again while a certificate or the registration is missing."""


class Webhook:
    """``pages`` are served beside the reviews. ``missing`` is why reviews are not answered yet, "" if they are.
    ``reviewed`` is told each answer, ``expires`` is when the certificate ends (seconds of wall time, None without one).
    """

    def __init__(
        self,
        api: Api,
        watched: World,
        options: WebhookOptions,
        leads: Callable[[], bool],
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        """Raises UsageError for a mounted certificate that cannot be used, and where the port is taken."""
        self._api, self._options, self._leads = api, options, leads
        accounts = webhooks.accounts(Values(namespace=api.namespace))
        self.known = Known(watched, frozenset((*accounts, *options.accounts)))
        names = (*hosts(api.namespace, options.service), *options.hosts)
        self._certificate: MountedCertificate | OwnCertificate = (
            MountedCertificate(options.certificates)
            if options.certificates
            else OwnCertificate(api, leads, names, lambda: dt.datetime.now(dt.UTC))
        )
        judges = {
            webhooks.VALIDATE_DEVICES: self.devices,
            webhooks.VALIDATE_MACHINES: self.machines,
            webhooks.MUTATE_MACHINES: self.fill,
        }
        self.reviewed: Reviewed = lambda path, allowed: None
        self.expires: float | None = None
        served = {"/healthz": _healthz, **(pages or {})}
        app = application(judges, served, lambda path, allowed: self.reviewed(path, allowed))
        self.server = HttpsServer(app, options.port)
        self._served: Served | None = None
        self._said: tuple[str, ...] = ()
        self._certified = asyncio.Event()
        self._look = asyncio.Event()
        if isinstance(self._certificate, MountedCertificate):
            self._mounted(self._certificate)

    def _mounted(self, certificate: MountedCertificate) -> None:
        """Raises UsageError."""
        try:
            self._use(certificate.read())
        except AliquotError:
            self.server.close()
            raise

    @property
    def missing(self) -> str:
        if self._served is None:
            return "the webhooks have no certificate yet"
        return self.known.missing

    def led(self) -> None:
        """This replica began or ceased to lead: the certificate is its business now, or not."""
        self._look.set()

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.known.follow(self._api))
            group.create_task(self._keep())
            group.create_task(self._serve())

    async def _serve(self) -> None:
        """What is being answered when we are told to end is answered."""
        try:
            await self._certified.wait()
            serving = asyncio.create_task(self.server.serve())
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                self.server.stop()
                await asyncio.wait({serving}, timeout=GRACE_S)
                raise
        finally:
            self.server.close()

    async def _keep(self) -> None:
        soon, failures = Backoff(SOON_S, min(LATER_S, self._options.look_s)), 0
        while True:
            failures = failures + 1 if self.missing or self._said else 0
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(soon.pause(failures) or self._options.look_s):
                    await self._look.wait()
            self._look.clear()
            try:
                await self._kept()
            except AliquotError as error:
                self._say((error.brief,))  # mounted files that are just being exchanged, too

    async def _kept(self) -> None:
        found = await self._certificate.look()
        if found is None:
            return
        self._use(found)
        registers = self._leads() and found.trusted and not self.missing
        self._say(await self._registered(found.trusted) if registers else ())

    async def _registered(self, trusted: bytes) -> tuple[str, ...]:
        """Who mounts the certificate may register its authority, too: then there is no right to do it here."""
        try:
            return await register(self._api, trusted)
        except ForbiddenError:
            if isinstance(self._certificate, OwnCertificate):
                raise
            return ()

    def _use(self, found: Served) -> None:
        """Raises UsageError for what is no certificate with its key."""
        if self._served is None or found.pair != self._served.pair:
            self.server.certify(found.pair.certificate, found.pair.key)
            self.expires = ends(found.pair.certificate)
        self._served = found
        self._certified.set()

    def _say(self, sentences: tuple[str, ...]) -> None:
        for sentence in sentences:
            if sentence not in self._said:
                log.warning("%s", sentence)
        self._said = sentences

    # -- reviews

    async def devices(self, request: Request) -> Verdict:
        """About Harvester's objects. What would take a device away is let through only after the machines were read
        from the API server itself: what a watch told may be a moment old. Raises ApiError.
        """
        self._must_know()
        verdict = devices.judge(request, self.known.world())
        if verdict.allowed and devices.takes_away(request):
            return devices.judge(request, await self.known.asked(self._api))
        return verdict

    async def machines(self, request: Request) -> Verdict:
        """About virtual machines. An admitted one counts at once for the next."""
        self._must_know()
        verdict = machines.validate(request, self.known.cluster())
        asked = machines.demand(request) if verdict.allowed else None
        if asked is not None:
            self.known.reserve(asked)
        return verdict

    async def fill(self, request: Request) -> Verdict:
        """What is filled in for a virtual machine."""
        self._must_know()
        return machines.mutate(request, self.known.cluster())

    def _must_know(self) -> None:
        if missing := self.known.missing:
            raise NotReadyError(f"not ready: {missing}")


def _healthz(query: Mapping[str, str]) -> tuple[int, str, bytes]:
    return 200, "text/plain", b"ok\n"
