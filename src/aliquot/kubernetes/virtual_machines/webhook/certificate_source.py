"""The sources of the server's certificate: a Secret that the leader renews, or a mounted folder that others renew."""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from aliquot.errors import UsageError
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ConflictError, NotFoundError
from aliquot.kubernetes.client.object_base import KubeObject, ResourceType
from aliquot.kubernetes.manifests.values import WEBHOOK
from aliquot.kubernetes.virtual_machines.webhook.certificates import CertificateBundle, CertificatePair, renewed_bundle


class Secret(KubeObject, frozen=True):
    """A Secret, with base64 values in ``data``."""

    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "secrets", "Secret")

    data: dict[str, str] = msgspec.field(default_factory=dict)


class ServedCertificate(msgspec.Struct, frozen=True):
    """The server's certificate and key."""

    key_pair: CertificatePair
    """The certificates (PEM) of the authorities that the API server should trust."""
    trusted: bytes


def service_dns_names(namespace: str, service: str = WEBHOOK) -> tuple[str, ...]:
    """Return the DNS names by which the API server calls a Service's webhooks."""
    return f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"


class OwnCertificate:
    """A certificate in a Secret of our namespace, which all replicas serve. The replica that ``leads`` writes it."""

    def __init__(
        self, api: Api, leads: Callable[[], bool], names: tuple[str, ...], now: Callable[[], dt.datetime]
    ) -> None:
        self._api, self._leads, self._names, self._now = api, leads, names, now

    async def load(self) -> ServedCertificate | None:
        """Return the certificate to serve; None if there is none yet. Raise ApiError if the Secret cannot be read."""
        try:
            secret = await self._api.get(Secret, WEBHOOK)
        except NotFoundError:
            secret = None
        found = _secret_bundle(secret)
        if self._leads():
            found = await self._renew(secret, found)
        return None if found is None else ServedCertificate(found.server, found.trusted)

    async def _renew(self, secret: Secret | None, found: CertificateBundle | None) -> CertificateBundle | None:
        wanted = await asyncio.to_thread(renewed_bundle, found, self._names, self._now())
        if wanted is None:
            return found
        body: dict[str, Any] = {"data": _secret_data(wanted)}
        try:
            if secret is None:
                meta = {"name": WEBHOOK, "labels": {"app.kubernetes.io/name": "aliquot"}}
                await self._api.create(Secret, {"metadata": meta, "type": "kubernetes.io/tls", **body})
            else:
                body["metadata"] = {"resourceVersion": secret.metadata.resource_version}
                await self._api.patch(Secret, WEBHOOK, body)
        except ConflictError:
            return found  # another replica was faster: the next load reads its Secret
        log.info("created a certificate for %s in Secret %s", self._names[0], WEBHOOK)
        return wanted


class MountedCertificate:
    """A folder with ``tls.crt``, ``tls.key`` and, for the webhook configurations, ``ca.crt``.

    cert-manager's Secrets are mounted in this form. The files may change at any time.
    """

    def __init__(self, folder: str, option: str = "--webhook-cert-dir") -> None:
        self._folder, self._option = Path(folder), option

    async def load(self) -> ServedCertificate | None:
        """Return the certificate to serve. Raise UsageError if a file cannot be read."""
        return self.read()

    def read(self) -> ServedCertificate:
        """Return the certificate to serve, without waiting. Raise UsageError if a file cannot be read."""
        try:
            certificate, key = ((self._folder / name).read_bytes() for name in ("tls.crt", "tls.key"))
        except OSError as error:
            step = f"mount a Secret of the type kubernetes.io/tls there, or omit {self._option}"
            raise UsageError(f"{error.filename}: {error.strerror}", next_step=step) from error
        authority = self._folder / "ca.crt"
        return ServedCertificate(
            CertificatePair(certificate, key), authority.read_bytes() if authority.exists() else b""
        )


def _secret_bundle(secret: Secret | None) -> CertificateBundle | None:
    """Return the bundle in a Secret; None if the Secret is foreign or damaged: the leader then writes a new one."""
    try:
        found = {} if secret is None else {k: base64.b64decode(v, validate=True) for k, v in secret.data.items()}
        # The Secret's type requires tls.*; ca.crt begins with the authority that ca.key belongs to.
        first = found["ca.crt"].partition(_END)
        return CertificateBundle(
            CertificatePair(first[0] + first[1], found["ca.key"]),
            CertificatePair(found["tls.crt"], found["tls.key"]),
            found["ca.crt"],
        )
    except (KeyError, binascii.Error):
        return None


_END = b"-----END CERTIFICATE-----\n"


def _secret_data(bundle: CertificateBundle) -> dict[str, str]:
    parts = {
        "ca.crt": bundle.trusted,
        "ca.key": bundle.authority.key,
        "tls.crt": bundle.server.certificate,
        "tls.key": bundle.server.key,
    }
    return {name: base64.b64encode(text).decode() for name, text in parts.items()}
