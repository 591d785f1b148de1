"""Kubelet's DevicePlugin service for one resource name, answered from the last snapshot."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping

from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from aliquot.kubernetes.device_plugin.allocate import AllocationOptions, AllocationRefusal, ResourceSnapshot
from aliquot.kubernetes.device_plugin.preferred_allocation import AllocationPolicy, preferred
from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as pb
from aliquot.kubernetes.device_plugin.protos.deviceplugin_grpc import DevicePluginBase

OPTIONS = pb.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)


class ResourcePlugin(DevicePluginBase):
    """Service of one resource name.

    ``watchers`` counts the open ListAndWatch streams: kubelet has the resource while there is one. ``lost`` is called
    when the last one ends.
    """

    def __init__(
        self, resource: str, allocation: AllocationOptions, policy: AllocationPolicy, lost: Callable[[], None]
    ) -> None:
        self.snapshot = ResourceSnapshot(resource)
        self.watchers = 0
        self.allocated_at: dict[str, float] = {}
        self._allocation = allocation
        self._policy = policy
        self._lost = lost
        self._changed = asyncio.Event()

    def publish(self, snapshot: ResourceSnapshot) -> None:
        """Replace the snapshot, and send it to kubelet if it differs."""
        previous, self.snapshot = self.snapshot, snapshot
        self.allocated_at = {each: when for each, when in self.allocated_at.items() if each in snapshot.by_id}
        if snapshot.list_response != previous.list_response:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

    async def GetDevicePluginOptions(self, stream: Stream[pb.Empty, pb.DevicePluginOptions]) -> None:
        await stream.recv_message()
        await stream.send_message(OPTIONS)

    async def ListAndWatch(self, stream: Stream[pb.Empty, pb.ListAndWatchResponse]) -> None:
        await stream.recv_message()
        self.watchers += 1
        try:
            while True:
                changed = self._changed
                await stream.send_message(self.snapshot.list_response)
                await changed.wait()
        finally:
            self.watchers -= 1
            if not self.watchers:
                self._lost()

    async def GetPreferredAllocation(
        self, stream: Stream[pb.PreferredAllocationRequest, pb.PreferredAllocationResponse]
    ) -> None:
        request = await stream.recv_message()
        response = pb.PreferredAllocationResponse()
        for each in [] if request is None else request.container_requests:
            chosen = preferred(
                each.available_deviceIDs,
                each.must_include_deviceIDs,
                each.allocation_size,
                self.snapshot.usable,
                self._policy,
            )
            response.container_responses.add(deviceIDs=chosen)
        await stream.send_message(response)

    async def Allocate(self, stream: Stream[pb.AllocateRequest, pb.AllocateResponse]) -> None:
        request = await stream.recv_message()
        response = pb.AllocateResponse()
        snapshot = self.snapshot
        requested = [list(each.devices_ids) for each in (request or pb.AllocateRequest()).container_requests]
        _refuse(snapshot.refusal([each for ids in requested for each in ids]))
        for ids in requested:
            _change_owners(snapshot.ownerships(ids, self._allocation.dev_root))
        response.container_responses.extend(snapshot.response(ids, self._allocation) for ids in requested)
        # No await between reading the snapshot and this line, so that a later hold finds these ids.
        now = time.monotonic()
        self.allocated_at.update((each, now) for ids in requested for each in ids)
        await stream.send_message(response)

    async def PreStartContainer(
        self, stream: Stream[pb.PreStartContainerRequest, pb.PreStartContainerResponse]
    ) -> None:
        request = await stream.recv_message()
        _refuse(self.snapshot.refusal(list((request or pb.PreStartContainerRequest()).devices_ids)))
        await stream.send_message(pb.PreStartContainerResponse())


def _change_owners(owners: Mapping[str, int]) -> None:
    for path, owner in owners.items():
        try:
            os.chown(path, owner, owner, follow_symlinks=False)
        except OSError as error:
            text = f"{path} cannot be given to user {owner}: {error.strerror}"
            raise GRPCError(Status.FAILED_PRECONDITION, text) from error


def _refuse(refusal: AllocationRefusal | None) -> None:
    if refusal is not None:
        raise GRPCError(refusal.status, refusal.text)
