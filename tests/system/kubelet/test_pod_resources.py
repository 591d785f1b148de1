"""Devices of pods, with kubelets that are unavailable, silent, verbose or busy."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from aliquot.kubernetes.device_plugin import pod_resources
from aliquot.kubernetes.device_plugin.errors import KubeletUnavailableError
from aliquot.kubernetes.device_plugin.pod_resources import PodResourceUse, allocatable, list_uses
from aliquot.kubernetes.device_plugin.protos import podresources_pb2 as pb
from aliquot.kubernetes.gpu.claimed_device import ClaimedDevice
from system.kubelet.kubeletdouble.wire import POD_RESOURCES, serve

GPU = "nvidia.com/gpu"


def answering(root: Path, act: Callable[[Any], Any]) -> Any:
    methods = {
        "List": (act, pb.ListPodResourcesRequest),
        "GetAllocatableResources": (act, pb.AllocatableResourcesRequest),
    }
    return serve(str(root / "kubelet.sock"), POD_RESOURCES, methods)


def ask(root: Path) -> tuple[PodResourceUse, ...]:
    return asyncio.run(list_uses(str(root / "kubelet.sock"), timeout_s=5))


def test_no_socket(root: Path) -> None:
    with pytest.raises(KubeletUnavailableError, match="No such file") as caught:
        ask(root)
    assert caught.value.next_step == "systemctl status kubelet"


def test_an_unserved_socket(root: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(root / "kubelet.sock"))
    dead.close()
    with pytest.raises(KubeletUnavailableError, match="refused"):
        ask(root)


def test_a_socket_that_says_nothing(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(root / "kubelet.sock"))
        silent.listen()
        with pytest.raises(KubeletUnavailableError, match="timed out"):
            asyncio.run(list_uses(str(root / "kubelet.sock"), timeout_s=0.3))


def test_a_socket_that_speaks_something_else(root: Path) -> None:
    async def scenario() -> None:
        async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_unix_server(babble, str(root / "kubelet.sock"))
        with pytest.raises(KubeletUnavailableError):
            await list_uses(str(root / "kubelet.sock"), timeout_s=5)
        server.close()

    asyncio.run(scenario())


def pods(count: int, devices: int) -> pb.ListPodResourcesResponse:
    out = pb.ListPodResourcesResponse()
    for n in range(count):
        container = out.pod_resources.add(name=f"p{n:06}", namespace="ns").containers.add(name="c")
        ids = [f"MIG-{n:08x}-0000-0000-0000-{k:012x}" for k in range(devices)]
        container.devices.add(resource_name=GPU, device_ids=ids)
    return out


def test_an_answer_of_many_megabytes(root: Path) -> None:
    """Go's clients stop at 4 MiB, which is also this library's flow-control window."""
    whole = pods(30_000, 16)
    assert whole.ByteSize() > 20 << 20
    server = answering(root, lambda _: whole)
    found = ask(root)
    server.stop(None)
    assert len(found) == 30_000
    assert all(len(u.devices) == 16 for u in found)


def test_an_answer_that_is_too_large_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_resources, "MAX_ANSWER_BYTES", 1000)
    server = answering(root, lambda _: pods(100, 1))
    with pytest.raises(KubeletUnavailableError, match="bytes"):
        ask(root)
    server.stop(None)


def test_parts_of_a_container_are_put_together(root: Path) -> None:
    # The kubelet lists a resource once per NUMA node, and a device of two nodes twice.
    answer = pb.ListPodResourcesResponse()
    pod = answer.pod_resources.add(name="p", namespace="ns")
    for name in ("b", "a"):
        container = pod.containers.add(name=name)
        for node, ids in ((0, ["x", "y"]), (1, ["y", "z"])):
            container.devices.add(resource_name=GPU, device_ids=ids).topology.nodes.add(ID=node)
    answer.pod_resources.add(name="idle", namespace="ns").containers.add(name="c")
    server = answering(root, lambda _: answer)
    assert ask(root) == tuple(PodResourceUse("ns", "p", name, GPU, ("x", "y", "z")) for name in ("a", "b"))
    server.stop(None)


def test_devices_of_claims(root: Path) -> None:
    answer = pb.ListPodResourcesResponse()
    container = answer.pod_resources.add(name="p", namespace="ns").containers.add(name="c")
    claim = container.dynamic_resources.add(claim_name="half", claim_namespace="ns")
    device = claim.claim_resources.add(driver_name="gpu.nvidia.com", pool_name="node-1", device_name="gpu-0")
    device.cdi_devices.add(name="k8s.gpu.nvidia.com/claim=GPU-1")
    server = answering(root, lambda _: answer)
    expected = ClaimedDevice("ns/half", "gpu.nvidia.com", "node-1", "gpu-0", ("k8s.gpu.nvidia.com/claim=GPU-1",))
    assert ask(root) == (PodResourceUse("ns", "p", "c", "", claim=expected),)
    server.stop(None)


def test_what_kubelet_can_give(root: Path) -> None:
    answer = pb.AllocatableResourcesResponse()
    for each in ("a", "b", "a"):
        answer.devices.add(resource_name=GPU, device_ids=[each])
    server = answering(root, lambda _: answer)
    assert asyncio.run(allocatable(str(root / "kubelet.sock"))) == {GPU: ("a", "b")}
    server.stop(None)


def test_a_kubelet_that_is_asked_too_often(root: Path) -> None:
    # It answers RESOURCE_EXHAUSTED after 100 requests in a second.
    server = grpc.server(ThreadPoolExecutor(1))

    def busy(_request: object, context: Any) -> None:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    handler = {"List": grpc.unary_unary_rpc_method_handler(busy)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(POD_RESOURCES, handler),))
    server.add_insecure_port(f"unix:{root / 'kubelet.sock'}")
    server.start()
    with pytest.raises(KubeletUnavailableError, match="rate limit") as caught:
        ask(root)
    assert "try again" in str(caught.value.next_step)
    server.stop(None)


def test_a_kubelet_that_does_not_know_the_question(root: Path) -> None:
    server = serve(str(root / "kubelet.sock"), POD_RESOURCES, {})
    with pytest.raises(KubeletUnavailableError, match="Method not found"):
        ask(root)
    server.stop(None)
