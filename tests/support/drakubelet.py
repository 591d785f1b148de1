"""Kubelet's side of DRA, by real gRPC: it finds drivers in its directory, registers them, and calls them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod

from aliquot.kubernetes.device_plugin.grpc_sockets import call_socket
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference
from aliquot.kubernetes.dra.plugin.protos import dra_pb2, health_pb2
from aliquot.kubernetes.dra.plugin.protos.registration_grpc import RegistrationStub
from aliquot.kubernetes.dra.plugin.protos.registration_pb2 import InfoRequest, PluginInfo, RegistrationStatus

TIMEOUT_S = 45.0
"""Kubelet's timeout of a call about claims."""


class DraKubelet:
    """Kubelet with its directory. Kubelet tries the versions of the API newest first, and so does this."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.plugins: dict[str, PluginInfo] = {}

    async def look(self, refusal: str = "") -> dict[str, PluginInfo]:
        """Find and register the drivers, as kubelet does at its start and for each new socket."""
        self.plugins = {}
        registry = self.directory / "plugins_registry"
        for path in sorted(registry.glob("*.sock")):
            info = await self._call(str(path), lambda c: RegistrationStub(c).GetInfo(InfoRequest()))
            status = RegistrationStatus(plugin_registered=not refusal, error=refusal)
            await self._call(str(path), partial(_notify, status))
            if not refusal:
                self.plugins[info.name] = info
        return self.plugins

    async def prepare(
        self, driver: str, claims: Sequence[ClaimReference], version: str = ""
    ) -> dict[str, dra_pb2.NodePrepareResourceResponse]:
        request = dra_pb2.NodePrepareResourcesRequest(claims=_claims(claims))
        method = self._method(driver, "NodePrepareResources", dra_pb2.NodePrepareResourcesResponse, version)
        return dict((await self._call(self.plugins[driver].endpoint, lambda c: method(c)(request))).claims)

    async def unprepare(
        self, driver: str, claims: Sequence[ClaimReference], version: str = ""
    ) -> dict[str, dra_pb2.NodeUnprepareResourceResponse]:
        request = dra_pb2.NodeUnprepareResourcesRequest(claims=_claims(claims))
        method = self._method(driver, "NodeUnprepareResources", dra_pb2.NodeUnprepareResourcesResponse, version)
        return dict((await self._call(self.plugins[driver].endpoint, lambda c: method(c)(request))).claims)

    async def health(self, driver: str, heard: Callable[[list[health_pb2.DeviceHealth]], bool]) -> None:
        """Listen to the driver's stream until ``heard`` returns True."""

        async def listen(channel: Channel) -> None:
            method = UnaryStreamMethod(
                channel,
                "/v1alpha1.DRAResourceHealth/NodeWatchResources",
                health_pb2.NodeWatchResourcesRequest,
                health_pb2.NodeWatchResourcesResponse,
            )
            async with method.open() as stream:
                await stream.send_message(health_pb2.NodeWatchResourcesRequest(), end=True)
                async for message in stream:
                    if heard(list(message.devices)):
                        await stream.cancel()
                        return

        await self._call(self.plugins[driver].endpoint, listen)

    def _method(self, driver: str, name: str, reply: type[Any], version: str) -> Callable[[Channel], Any]:
        chosen = version or self.plugins[driver].supported_versions[0]
        path = f"/k8s.io.kubelet.pkg.apis.dra.{chosen}/{name}"
        request = getattr(dra_pb2, f"{name}Request")
        return lambda channel: UnaryUnaryMethod(channel, path, request, reply)

    async def _call(self, path: str, call: Callable[[Channel], Awaitable[Any]]) -> Any:
        assert os.path.isabs(path), path
        return await call_socket(path, TIMEOUT_S, call)


async def _notify(status: RegistrationStatus, channel: Channel) -> None:
    await RegistrationStub(channel).NotifyRegistrationStatus(status)


def _claims(claims: Sequence[ClaimReference]) -> list[dra_pb2.Claim]:
    return [dra_pb2.Claim(namespace=c.namespace, uid=c.uid, name=c.name) for c in claims]
