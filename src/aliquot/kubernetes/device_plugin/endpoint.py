"""Endpoint of one resource name: its service, its socket, and its registration with kubelet."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable

import msgspec
from grpclib.exceptions import GRPCError

from aliquot.errors import AliquotError
from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.device_plugin.allocate import AllocationOptions
from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError, OfferError
from aliquot.kubernetes.device_plugin.grpc_sockets import Identity, NoReplyError, SocketServer, call_socket
from aliquot.kubernetes.device_plugin.preferred_allocation import AllocationPolicy
from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as pb
from aliquot.kubernetes.device_plugin.protos.deviceplugin_grpc import RegistrationStub
from aliquot.kubernetes.device_plugin.service import OPTIONS, ResourcePlugin

log = logging.getLogger(__name__)

KUBELET_SOCKET = "kubelet.sock"
API_VERSION = "v1beta1"


class PluginTiming(msgspec.Struct, frozen=True):
    """Timing of device plugins, in seconds."""

    poll: float = 1.0
    """Interval of checks."""
    register: float = 15.0
    """Timeout of a registration, in which kubelet connects to the plugin with a timeout of 10 s."""
    streamless: float = 2.0
    """How long kubelet may have no ListAndWatch stream before the plugin registers again."""
    first_pause: float = 0.5
    """First pause after a failed registration."""
    longest_pause: float = 10.0
    """Longest pause after failed registrations."""


class Endpoint:
    """Serves a resource and keeps it registered.

    ``problem`` is the reason why kubelet does not have the resource now. ``wake`` is called when kubelet drops it.
    """

    def __init__(
        self,
        resource: str,
        directory: str,
        options: AllocationOptions,
        policy: AllocationPolicy,
        timing: PluginTiming,
        wake: Callable[[], None],
    ) -> None:
        self.resource = resource
        self.plugin = ResourcePlugin(resource, options, policy, self._lost)
        self.problem: AliquotError | None = None
        self._directory = directory
        self._name = socket_name(resource)
        self._server = SocketServer(os.path.join(directory, self._name), [self.plugin])
        self._serving = asyncio.Lock()
        self._timing = timing
        self._wake = wake
        self._registered_with: Identity | None = None
        self._tried_with: Identity | None = None
        self._known_at = 0.0
        self._failures = 0
        self._not_before = 0.0

    async def serve(self) -> None:
        """Serve if the socket is missing or replaced (kubelet empties the directory when it starts)."""
        async with self._serving:
            if self._server.owns_path:
                return
            try:
                await self._server.listen()
            except KubeletUnavailableError as error:
                self.problem = error
            else:
                self._registered_with = None

    async def ensure_registered(self, kubelet: Identity) -> None:
        """Register with this kubelet if it does not have the resource, unless a pause is due."""
        now = time.monotonic()
        if not self._server.owns_path or not self._needs_registration(kubelet, now):
            return
        if kubelet == self._tried_with and now < self._not_before:
            return
        self._tried_with = kubelet
        try:
            await register(self._directory, self._name, self.resource, self._timing.register)
        except AliquotError as error:
            self._registered_with, self.problem = None, error
            self._failures += 1
            backoff = Backoff(self._timing.first_pause, self._timing.longest_pause, jitter=(0.5, 1.0))
            self._not_before = time.monotonic() + backoff.pause(self._failures)
        else:
            self._registered_with, self.problem, self._failures = kubelet, None, 0
            self._known_at = time.monotonic()
            log.info("registered %s with kubelet", self.resource)

    async def close(self) -> None:
        await self._server.close()

    def _needs_registration(self, kubelet: Identity, now: float) -> bool:
        if self._registered_with != kubelet:
            return True
        return not self.plugin.watchers and now - self._known_at > self._timing.streamless

    def _lost(self) -> None:
        self._known_at = time.monotonic()
        self._wake()


def socket_name(resource: str) -> str:
    """Return the file name of a resource's socket: ``aliquot-nvidia.com_mig-1g.5gb.sock``."""
    return f"aliquot-{resource.replace('/', '_')}.sock"


async def register(directory: str, endpoint: str, resource: str, timeout_s: float) -> None:
    """Register ``endpoint``, a socket in kubelet's directory, for a resource. Kubelet connects to it before it answers.

    Raises KubeletUnavailableError if kubelet does not answer in time, OfferError if it refuses.
    """
    path = os.path.join(directory, KUBELET_SOCKET)
    request = pb.RegisterRequest(version=API_VERSION, endpoint=endpoint, resource_name=resource, options=OPTIONS)
    try:
        await call_socket(
            path, timeout_s, lambda channel: RegistrationStub(channel).Register(request, timeout=timeout_s)
        )
    except NoReplyError as failure:
        raise KubeletUnavailableError(
            f"kubelet does not answer on {path}: {failure}", next_step="systemctl status kubelet"
        ) from failure
    except GRPCError as failure:
        raise OfferError(
            f"kubelet refused {resource}: {failure.message}", next_step="journalctl -u kubelet | grep device"
        ) from failure
