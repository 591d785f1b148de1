"""Which pods have which devices, as kubelet tells it: the truth about what a pod holds before it has started a process.

Kubelet serves this on a socket of its own. An answer grows with the node (a pod with eight devices takes about 500
bytes), so that the 4 MiB at which other clients stop are no limit here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError

from aliquot.kubernetes.device_plugin.errors import KubeletAwayError
from aliquot.kubernetes.device_plugin.grpc_sockets import Unanswered, ask
from aliquot.kubernetes.device_plugin.protos import podresources_pb2 as pb
from aliquot.kubernetes.device_plugin.protos.podresources_grpc import PodResourcesListerStub
from aliquot.kubernetes.gpu.claimed_device import ClaimedDevice

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
LARGEST = 64 << 20
"""Bytes of the largest answer that is decoded."""

T = TypeVar("T")


class Use(msgspec.Struct, frozen=True):
    """A container's devices of one resource name, or one device that it has by a ResourceClaim: without a resource."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: tuple[str, ...] = ()
    claim: ClaimedDevice | None = None


class _Codec(ProtoCodec):
    def decode(self, data: bytes, message_type: type) -> object:  # type: ignore[override]
        if len(data) > LARGEST:
            raise DecodeError(f"an answer of {len(data)} bytes")
        return super().decode(data, message_type)


async def uses(socket: str = SOCKET, *, timeout_s: float = 10.0) -> tuple[Use, ...]:
    """Every container's devices, by pod and resource, then those of claims. Raises KubeletAwayError where kubelet does
    not answer in time.
    """
    answer = await _ask(socket, timeout_s, lambda stub: stub.List(pb.ListPodResourcesRequest(), timeout=timeout_s))
    found: dict[tuple[str, str, str, str], list[str]] = {}
    claimed: list[Use] = []
    for pod in answer.pod_resources:
        for container in pod.containers:
            for part in container.devices:  # one entry per NUMA node, and from some versions one per device
                key = (pod.namespace, pod.name, container.name, part.resource_name)
                found.setdefault(key, []).extend(part.device_ids)
            whose = (pod.namespace, pod.name, container.name, "")
            claimed += [
                Use(*whose, claim=each) for dynamic in container.dynamic_resources for each in _claimed(dynamic)
            ]
    given = tuple(Use(*key, devices=tuple(dict.fromkeys(ids))) for key, ids in sorted(found.items()))
    return (*given, *claimed)


def _claimed(dynamic: pb.DynamicResource) -> tuple[ClaimedDevice, ...]:
    name = f"{dynamic.claim_namespace}/{dynamic.claim_name}"
    return tuple(
        ClaimedDevice(name, d.driver_name, d.pool_name, d.device_name, tuple(cdi.name for cdi in d.cdi_devices))
        for d in dynamic.claim_resources
    )


async def allocatable(socket: str = SOCKET, *, timeout_s: float = 10.0) -> dict[str, tuple[str, ...]]:
    """The device ids that kubelet knows, by resource name. Raises KubeletAwayError."""
    request = pb.AllocatableResourcesRequest()
    answer = await _ask(socket, timeout_s, lambda stub: stub.GetAllocatableResources(request, timeout=timeout_s))
    found: dict[str, dict[str, None]] = {}
    for part in answer.devices:
        found.setdefault(part.resource_name, {}).update(dict.fromkeys(part.device_ids))
    return {name: tuple(ids) for name, ids in found.items()}


async def _ask(path: str, timeout_s: float, call: Callable[[PodResourcesListerStub], Awaitable[T]]) -> T:
    try:
        return await ask(path, timeout_s, lambda line: call(PodResourcesListerStub(line)), _Codec())
    except GRPCError as failure:
        raise _away(path, failure.message or failure.status.name, failure.status) from failure
    except Unanswered as failure:
        raise _away(path, str(failure)) from failure


def _away(path: str, why: str, status: Status | None = None) -> KubeletAwayError:
    asked_too_often = status is Status.RESOURCE_EXHAUSTED
    hint = "kubelet limits how often it may be asked: ask again" if asked_too_often else "systemctl status kubelet"
    return KubeletAwayError(f"kubelet does not tell which pods have which devices ({path}): {why}", next_step=hint)
