"""The webhooks of a controller replica. Every replica answers; the leader renews certificate and authority."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Mapping

from aliquot.errors import AliquotError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.event_wait import wait_for_event
from aliquot.foundation.http_server import Page, answer_ok
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.admission_review import AdmissionRequest, AdmissionVerdict
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ForbiddenError
from aliquot.kubernetes.manifests import webhooks
from aliquot.kubernetes.manifests.values import Values
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers
from aliquot.kubernetes.virtual_machines.harvester.admission import review as devices
from aliquot.kubernetes.virtual_machines.kubevirt.admission import review as machines
from aliquot.kubernetes.virtual_machines.webhook.admission_state import AdmissionState
from aliquot.kubernetes.virtual_machines.webhook.certificate_source import (
    MountedCertificate,
    OwnCertificate,
    ServedCertificate,
    service_dns_names,
)
from aliquot.kubernetes.virtual_machines.webhook.certificates import expiry
from aliquot.kubernetes.virtual_machines.webhook.options import WebhookOptions
from aliquot.kubernetes.virtual_machines.webhook.registration import register
from aliquot.kubernetes.virtual_machines.webhook.server import HttpsServer, NotReadyError, ReviewListener, application

SOON_S, LATER_S = 1.0, 10.0
"""Bounds of the retry interval while a certificate or the registration is missing, in seconds."""


class Webhook:
    """The webhook server of a replica. It serves ``pages`` beside the reviews."""

    def __init__(
        self,
        api: Api,
        informers: VmClusterInformers,
        options: WebhookOptions,
        leads: Callable[[], bool],
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        """Raise UsageError if the mounted certificate cannot be used or the port is taken."""
        self._api, self._options, self._leads = api, options, leads
        accounts = webhooks.accounts(Values(namespace=api.namespace))
        self.state = AdmissionState(informers, frozenset((*accounts, *options.accounts)))
        names = (*service_dns_names(api.namespace, options.service), *options.hosts)
        self._certificate: MountedCertificate | OwnCertificate = (
            MountedCertificate(options.certificates)
            if options.certificates
            else OwnCertificate(api, leads, names, lambda: dt.datetime.now(dt.UTC))
        )
        judges = {
            webhooks.VALIDATE_DEVICES: self.review_devices,
            webhooks.VALIDATE_MACHINES: self.review_vms,
            webhooks.MUTATE_MACHINES: self.mutate_vms,
        }
        self.on_review: ReviewListener = lambda path, allowed: None
        """Called after each review with its path and whether it was allowed."""
        self.expires_at: float | None = None
        """When the certificate expires, in seconds of wall time; None without one."""
        served = {"/healthz": answer_ok, **(pages or {})}
        app = application(judges, served, lambda path, allowed: self.on_review(path, allowed))
        self.server = HttpsServer(app, options.port)
        self._served: ServedCertificate | None = None
        self._warnings = NewWarnings(log)
        self._certified = asyncio.Event()
        self._wake = asyncio.Event()
        if isinstance(self._certificate, MountedCertificate):
            self._use_mounted(self._certificate)

    def _use_mounted(self, certificate: MountedCertificate) -> None:
        """Serve the mounted certificate. Raise UsageError if it cannot be used."""
        try:
            self._use_certificate(certificate.read())
        except AliquotError:
            self.server.close()
            raise

    @property
    def missing(self) -> str:
        """The reason why reviews are not answered yet; "" if they are."""
        if self._served is None:
            return "the webhooks have no certificate yet"
        return self.state.missing

    def leadership_changed(self) -> None:
        """React to a change of leadership: only the leader renews the certificate."""
        self._wake.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_updated())
            group.create_task(self._serve())

    async def _serve(self) -> None:
        """Serve once a certificate is there, until cancelled."""
        try:
            await self._certified.wait()
        except asyncio.CancelledError:
            self.server.close()
            raise
        await self.server.serve()

    async def _keep_updated(self) -> None:
        soon, failures = Backoff(SOON_S, min(LATER_S, self._options.check_s)), 0
        while True:
            failures = failures + 1 if self.missing or self._warnings.current else 0
            await wait_for_event(self._wake, soon.pause(failures) or self._options.check_s)
            self._wake.clear()
            try:
                await self._update()
            except AliquotError as error:
                self._warnings.update((error.brief,))  # also while mounted files are being replaced

    async def _update(self) -> None:
        found = await self._certificate.load()
        if found is None:
            return
        self._use_certificate(found)
        registers = self._leads() and found.trusted and not self.missing
        self._warnings.update(await self._register(found.trusted) if registers else ())

    async def _register(self, trusted: bytes) -> tuple[str, ...]:
        """Register the webhooks with the authority, and return what is missing.

        The provider of a mounted certificate may register its authority instead: the controller then lacks the right
        to.
        """
        try:
            return await register(self._api, trusted)
        except ForbiddenError:
            if isinstance(self._certificate, OwnCertificate):
                raise
            return ()

    def _use_certificate(self, found: ServedCertificate) -> None:
        """Serve a certificate. Raise UsageError if certificate and key cannot be used."""
        if self._served is None or found.key_pair != self._served.key_pair:
            self.server.certify(found.key_pair.certificate, found.key_pair.key)
            self.expires_at = expiry(found.key_pair.certificate)
        self._served = found
        self._certified.set()

    # -- reviews

    async def review_devices(self, request: AdmissionRequest) -> AdmissionVerdict:
        """Review a write of a Harvester object. Raise ApiError if the VMs cannot be read.

        A write that withdraws a device is allowed only after reading the VMs from the API server: a watch may be
        behind.
        """
        self._require_synced()
        verdict = devices.judge(request, self.state.snapshot())
        if verdict.allowed and devices.withdraws_device(request):
            return devices.judge(request, await self.state.fresh_snapshot(self._api))
        return verdict

    async def review_vms(self, request: AdmissionRequest) -> AdmissionVerdict:
        """Review a write of a VM. An admitted VM counts immediately for the next review."""
        self._require_synced()
        verdict = machines.validate(request, self.state.cluster())
        demand = machines.demand(request) if verdict.allowed else None
        if demand is not None:
            self.state.reserve(demand)
        return verdict

    async def mutate_vms(self, request: AdmissionRequest) -> AdmissionVerdict:
        """Complete the devices of a VM."""
        self._require_synced()
        return machines.mutate(request, self.state.cluster())

    def _require_synced(self) -> None:
        if missing := self.state.missing:
            raise NotReadyError(f"not ready: {missing}")
