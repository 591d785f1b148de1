"""Credentials that stay fresh: a fixed token, a token file that the kubelet rewrites, or an exec plugin.

Source: ``client.authentication.k8s.io/v1`` (ExecCredential; a token, a client certificate or both).
"""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from aliquot.kubernetes.client.errors import UnauthorizedError
from aliquot.kubernetes.client.kubeconfig import ClusterAccess, ExecPlugin

TOKEN_FILE_AGE_S = 60.0
"""Seconds after which a token file is read again. A refused token is read again at once."""
PLUGIN_TIMEOUT_S = 60.0
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EARLY_S = 10.0


class Credentials(Protocol):
    """Credentials of a client."""

    certificate: tuple[str, str] | None
    """Client certificate and key in PEM if they come from outside the kubeconfig."""

    async def header(self) -> str | None:
        """Return the Authorization header for the next request. Raises UnauthorizedError."""
        ...

    async def renew(self) -> bool:
        """Renew the credentials after a 401. Returns whether a second try may succeed."""
        ...


class StaticCredentials:
    """A token or password from the kubeconfig, only a client certificate, or nothing."""

    def __init__(self, header: str | None) -> None:
        self.certificate: tuple[str, str] | None = None
        self._header = header

    async def header(self) -> str | None:
        return self._header

    async def renew(self) -> bool:
        return False


class TokenFileCredentials:
    """A token file that another program renews. If a read fails, the last token stays in use."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.certificate: tuple[str, str] | None = None
        self._path = path
        self._clock = clock
        self._token = ""
        self._read_at = float("-inf")

    async def header(self) -> str | None:
        if self._clock() - self._read_at >= TOKEN_FILE_AGE_S:
            self._read()
        return f"Bearer {self._token}"

    async def renew(self) -> bool:
        before = self._token
        self._read()
        return self._token != before

    def _read(self) -> None:
        try:
            with open(self._path, encoding="ascii") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._token:
                return
            raise UnauthorizedError(f"the token file {self._path} cannot be read: {error}") from error
        if token:
            self._token, self._read_at = token, self._clock()
        elif not self._token:
            raise UnauthorizedError(f"the token file {self._path} is empty", next_step=f"ls -l {self._path}")


class ExecCredentialStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The ``status`` of an ExecCredential."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    status: ExecCredentialStatus = ExecCredentialStatus()


class ExecPluginCredentials:
    """Runs the exec plugin before the first request, when its credential expires, and when the server refuses it."""

    def __init__(
        self, access: ClusterAccess, plugin: ExecPlugin, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ):
        self.certificate: tuple[str, str] | None = None
        self._access = access
        self._plugin = plugin
        self._clock = clock
        self._status: ExecCredentialStatus | None = None
        self._lock = asyncio.Lock()

    async def header(self) -> str | None:
        async with self._lock:
            status = self._status
            if status is None or self._expired(status):
                status = await self._run()
        return f"Bearer {status.token}" if status.token else None

    async def renew(self) -> bool:
        before = self._status
        async with self._lock:
            if self._status is before:  # else another task has just renewed it
                await self._run()
        return True

    def _expired(self, status: ExecCredentialStatus) -> bool:
        end = status.expiration_timestamp
        return end is not None and (end - self._clock()).total_seconds() <= _EARLY_S

    async def _run(self) -> ExecCredentialStatus:
        plugin = self._plugin
        if plugin.api_version not in _VERSIONS:
            raise self._failed(f"uses {plugin.api_version}; supported are {', '.join(_VERSIONS)}")
        out = await self._output(self._environment())
        try:
            answer = msgspec.json.decode(out, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._failed(f"did not print an ExecCredential: {error}") from error
        status = answer.status
        if answer.api_version != plugin.api_version:
            raise self._failed(f"returned {answer.api_version} instead of {plugin.api_version}")
        if not status.token and not (status.client_certificate_data and status.client_key_data):
            raise self._failed("returned neither a token nor a client certificate with its key")
        self._status = status
        pair = (status.client_certificate_data, status.client_key_data)
        self.certificate = pair if all(pair) else None
        return status

    async def _output(self, env: dict[str, str]) -> str:
        from aliquot.foundation import bounded_process

        words = [self._plugin.command, *(self._plugin.args or ())]
        stop = threading.Event()
        try:
            result = await asyncio.to_thread(bounded_process.run, words, PLUGIN_TIMEOUT_S, env=env, stop=stop)
        except TimeoutError:
            raise self._failed(f"did not end within {PLUGIN_TIMEOUT_S:g} s") from None
        except OSError as error:
            raise self._failed(f"cannot be started: {error.strerror}") from error
        finally:
            stop.set()  # do not leave the plugin running when the request is cancelled
        if result.code:
            raise self._failed(f"ended with status {result.code}", tuple(result.err.strip().splitlines()[-5:]))
        return result.out

    def _environment(self) -> dict[str, str]:
        spec: dict[str, object] = {"interactive": False}
        if self._plugin.provide_cluster_info:
            spec["cluster"] = _cluster_info(self._access)
        info = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        wanted = {entry["name"]: entry.get("value", "") for entry in self._plugin.env or ()}
        return {**os.environ, **wanted, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}

    def _failed(self, reason: str, details: tuple[str, ...] = ()) -> UnauthorizedError:
        hint = self._plugin.install_hint.strip() or f"run {self._plugin.command} by hand"
        return UnauthorizedError(
            f"the credential plugin {self._plugin.command} of {self._access.source} {reason}",
            details=details,
            next_step=hint,
        )


def _cluster_info(access: ClusterAccess) -> dict[str, object]:
    """Build the ``spec.cluster`` of an ExecCredential."""
    cluster = access.cluster
    authority = cluster.certificate_authority_data
    if not authority and cluster.certificate_authority:
        with open(cluster.certificate_authority, "rb") as file:
            authority = base64.b64encode(file.read()).decode()
    info = {
        "server": access.server,
        "tls-server-name": access.server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": authority,
        "proxy-url": access.proxy,
    }
    return {key: value for key, value in info.items() if value}


def credentials(access: ClusterAccess) -> Credentials:
    """Choose the kubeconfig user's credentials in kubectl's order of precedence."""
    user = access.user
    if user.token_file:
        return TokenFileCredentials(user.token_file)
    if user.token:
        return StaticCredentials(f"Bearer {user.token}")
    if user.username:
        pair = f"{user.username}:{user.password or ''}".encode()
        return StaticCredentials(f"Basic {base64.b64encode(pair).decode()}")
    if access.plugin is not None:
        return ExecPluginCredentials(access, access.plugin)
    return StaticCredentials(None)
