"""Client of kubelet's pod resources API, the source for devices of pods that have not started a process yet.

Kubelet serves it on a separate socket. The response grows with the node (about 500 bytes for a pod with eight devices),
so the usual limit of gRPC clients, 4 MiB, does not apply here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError

from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError
from aliquot.kubernetes.device_plugin.grpc_sockets import NoReplyError, call_socket
from aliquot.kubernetes.device_plugin.protos import podresources_pb2 as pb
from aliquot.kubernetes.device_plugin.protos.podresources_grpc import PodResourcesListerStub
from aliquot.kubernetes.gpu.claimed_device import ClaimedDevice

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of a response in bytes."""

T = TypeVar("T")


class PodResourceUse(msgspec.Struct, frozen=True):
    """A container's devices of one resource name, or one device of a ResourceClaim, without a resource name."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: tuple[str, ...] = ()
    claim: ClaimedDevice | None = None


class _Codec(ProtoCodec):
    def decode(self, data: bytes, message_type: type) -> object:  # type: ignore[override]
        if len(data) > MAX_ANSWER_BYTES:
            raise DecodeError(f"the response has {len(data)} bytes, more than the limit of {MAX_ANSWER_BYTES}")
        return super().decode(data, message_type)


async def list_uses(socket: str = SOCKET, *, timeout_s: float = 10.0) -> tuple[PodResourceUse, ...]:
    """List the devices of all containers by pod and resource, then those of claims.

    Raises KubeletUnavailableError if kubelet does not answer in time.
    """
    answer = await _call(socket, timeout_s, lambda stub: stub.List(pb.ListPodResourcesRequest(), timeout=timeout_s))
    found: dict[tuple[str, str, str, str], list[str]] = {}
    claimed: list[PodResourceUse] = []
    for pod in answer.pod_resources:
        for container in pod.containers:
            for part in container.devices:  # one entry per NUMA node, or in some versions per device
                key = (pod.namespace, pod.name, container.name, part.resource_name)
                found.setdefault(key, []).extend(part.device_ids)
            owner = (pod.namespace, pod.name, container.name, "")
            claimed += [
                PodResourceUse(*owner, claim=each)
                for dynamic in container.dynamic_resources
                for each in _claimed(dynamic)
            ]
    allocated = tuple(PodResourceUse(*key, devices=tuple(dict.fromkeys(ids))) for key, ids in sorted(found.items()))
    return (*allocated, *claimed)


def _claimed(dynamic: pb.DynamicResource) -> tuple[ClaimedDevice, ...]:
    name = f"{dynamic.claim_namespace}/{dynamic.claim_name}"
    return tuple(
        ClaimedDevice(name, d.driver_name, d.pool_name, d.device_name, tuple(cdi.name for cdi in d.cdi_devices))
        for d in dynamic.claim_resources
    )


async def allocatable(socket: str = SOCKET, *, timeout_s: float = 10.0) -> dict[str, tuple[str, ...]]:
    """Return kubelet's device ids by resource name. Raises KubeletUnavailableError."""
    request = pb.AllocatableResourcesRequest()
    answer = await _call(socket, timeout_s, lambda stub: stub.GetAllocatableResources(request, timeout=timeout_s))
    found: dict[str, dict[str, None]] = {}
    for part in answer.devices:
        found.setdefault(part.resource_name, {}).update(dict.fromkeys(part.device_ids))
    return {name: tuple(ids) for name, ids in found.items()}


async def _call(path: str, timeout_s: float, call: Callable[[PodResourcesListerStub], Awaitable[T]]) -> T:
    try:
        return await call_socket(path, timeout_s, lambda channel: call(PodResourcesListerStub(channel)), _Codec())
    except GRPCError as failure:
        raise _unavailable_error(path, failure.message or failure.status.name, failure.status) from failure
    except NoReplyError as failure:
        raise _unavailable_error(path, str(failure)) from failure


def _unavailable_error(path: str, reason: str, status: Status | None = None) -> KubeletUnavailableError:
    rate_limited = status is Status.RESOURCE_EXHAUSTED
    hint = "kubelet limits the rate of these requests: try again" if rate_limited else "systemctl status kubelet"
    return KubeletUnavailableError(f"kubelet's pod resources ({path}) cannot be read: {reason}", next_step=hint)
