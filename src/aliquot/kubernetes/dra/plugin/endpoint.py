"""Endpoint of a DRA driver: its two sockets, which kubelet finds by looking into its directory of plugins.

The endpoint is level-triggered, as for device plugins. Every second it checks that both socket files are its own, and
serves again if they are not. Kubelet then finds the new registration socket, and asks what it is. So a kubelet that
restarts, that is installed later, or whose directory was emptied needs no special case.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from grpclib.exceptions import GRPCError

from aliquot.foundation.event_wait import wait_for_event
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError
from aliquot.kubernetes.device_plugin.grpc_sockets import PATH_LIMIT, NoReplyError, SocketServer, call_socket
from aliquot.kubernetes.dra.plugin.claim_service import ClaimService, DeviceState
from aliquot.kubernetes.dra.plugin.errors import OtherDriverError
from aliquot.kubernetes.dra.plugin.protos.registration_grpc import RegistrationStub
from aliquot.kubernetes.dra.plugin.protos.registration_pb2 import InfoRequest, PluginInfo
from aliquot.kubernetes.dra.plugin.services import (
    ClaimsService,
    ClaimsServiceV1Beta1,
    HealthService,
    RegistrationService,
)

REGISTRY = "plugins_registry"
POLL_S = 1.0
ANSWER_S = 3.0
"""Seconds that another driver has to say which one it is."""


class EndpointPaths(msgspec.Struct, frozen=True):
    """The two sockets of a driver below kubelet's directory."""

    registration: str
    claims: str

    @classmethod
    def below(cls, kubelet_dir: str, driver: str, pod_uid: str = "") -> EndpointPaths:
        """Return the paths. With the uid of a pod, the pods before and after an update have sockets of their own."""
        part = f"-{pod_uid}" if pod_uid else ""
        registry = os.path.join(kubelet_dir, REGISTRY)
        return cls(
            _within_limit(registry, f"{driver}{part}-reg.sock", "-reg.sock"),
            _within_limit(os.path.join(kubelet_dir, "plugins", driver), f"dra{part}.sock", ".sock"),
        )


class DriverEndpoint:
    """Serves a driver and keeps its sockets in place. Belongs to one event loop.

    ``problem`` is the reason why kubelet does not have the driver now; empty if it has.
    """

    def __init__(self, driver: str, paths: EndpointPaths, poll_s: float = POLL_S) -> None:
        self.health = HealthService()
        self._driver = driver
        self._paths = paths
        self._poll_s = poll_s
        self._wake = asyncio.Event()
        self._registration = RegistrationService(driver, paths.claims, self._wake.set)
        self._registry = SocketServer(paths.registration, [self._registration])
        self._claims: SocketServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._unserved = ""
        self._logged = ""

    @property
    def problem(self) -> str:
        return self._unserved or self._registration.problem

    async def start(self, service: ClaimService) -> None:
        """Serve until ``close``, and keep the sockets in place. Raises OtherDriverError."""
        handlers = [ClaimsService(service), ClaimsServiceV1Beta1(service), self.health]
        self._claims = SocketServer(self._paths.claims, handlers)
        await self._serve(self._claims)
        self._task = asyncio.create_task(self._run(self._claims))

    def report_health(self, states: Mapping[tuple[str, str], DeviceState]) -> None:
        """Replace what kubelet knows of the health of devices, by pool and name."""
        self.health.publish(states)

    async def close(self) -> None:
        """Stop serving, first the registration, so that kubelet makes no new calls."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._registry.close()
        if self._claims is not None:
            await self._claims.close()

    async def _serve(self, claims: SocketServer) -> None:
        """Serve where a socket is missing or replaced.

        The claims' socket comes first: kubelet connects to it as soon as it finds the other one. Raises
        OtherDriverError if a driver of this name already serves the node.
        """
        try:
            if not claims.owns_path:
                await self._refuse_other()
                os.makedirs(os.path.dirname(self._paths.claims), mode=0o750, exist_ok=True)
                await claims.listen()
            if not self._registry.owns_path:
                await self._refuse_other()
                await self._registry.listen()
        except KubeletUnavailableError as error:
            self._unserved = error.one_line
        except OSError as error:
            self._unserved = f"cannot make {os.path.dirname(self._paths.claims)}: {error.strerror}"
        else:
            self._unserved = ""

    async def _run(self, claims: SocketServer) -> None:
        """Keep the driver registered until cancelled. What is wrong is logged when it begins, changes or ends."""
        while True:
            self._wake.clear()
            try:
                await self._serve(claims)
            except OtherDriverError as error:
                self._unserved = error.one_line
            if self.problem != self._logged:
                self._logged = self.problem
                if self._logged:
                    log.warning("%s", self._logged)
                else:
                    log.info("kubelet has the DRA driver %s", self._driver)
            await wait_for_event(self._wake, self._poll_s)

    async def _refuse_other(self) -> None:
        own = self._paths.registration if self._registry.owns_path else ""
        other = await find_other_driver(os.path.dirname(self._paths.registration), self._driver, own)
        if other:
            raise OtherDriverError(
                f"another DRA driver named {self._driver} serves this node, on {other}: both would give the same GPUs",
                next_step="remove it from this node: kubectl get pods --all-namespaces -o wide | grep dra-driver",
            )


async def find_other_driver(registry: str, driver: str, own: str = "") -> str:
    """Return the registration socket of a living driver with this name, other than our own; empty if there is none."""
    try:
        names = sorted(name for name in os.listdir(registry) if name.endswith(".sock"))
    except OSError:
        return ""
    for name in names:
        path = os.path.join(registry, name)
        info = await _plugin_info(path) if path != own else None
        if info is not None and (info.type, info.name) == ("DRAPlugin", driver):
            return path
    return ""


async def _plugin_info(path: str) -> PluginInfo | None:
    """Return what a plugin says that it is; None if it does not answer."""
    with suppress(NoReplyError, GRPCError):
        return await call_socket(
            path, ANSWER_S, lambda channel: RegistrationStub(channel).GetInfo(InfoRequest(), timeout=ANSWER_S)
        )
    return None


def _within_limit(directory: str, name: str, ending: str) -> str:
    """Return the path of a socket. A name that is too long for a Unix socket is replaced by its digest."""
    path = os.path.join(directory, name)
    if len(os.fsencode(path)) <= PATH_LIMIT:
        return path
    digest = base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()[:12]).decode()
    return os.path.join(directory, f"dra-{digest}{ending}")
