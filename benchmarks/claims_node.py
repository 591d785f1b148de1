"""A node with the claim agent, a kubelet that calls it on an open connection, and an echo for comparison."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from time import perf_counter
from types import TracebackType
from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.server import Stream

from aliquot.kubernetes.device_plugin.grpc_sockets import SocketServer
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference
from aliquot.kubernetes.dra.plugin.protos import dra_pb2
from aliquot.kubernetes.dra.plugin.protos.dra_grpc import DRAPluginBase
from aliquot.sim.host import SimHost
from support.agents import Agent
from support.drakubelet import DraKubelet
from system.kubelet.kubeletdouble import Kubelet

DRIVER = "gpu.nvidia.com"
API = "/apis/resource.k8s.io/v1"
PREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
UNPREPARE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources"


class ClaimNode:
    """A node whose claims are played: the scheduler by hand, kubelet by gRPC. Not thread-safe."""

    def __init__(self, agent: Agent, folder: Path) -> None:
        self.agent = agent
        self.host = SimHost(agent.sim)
        self._kubelet = DraKubelet(folder / "kubelet")
        self._pods = Kubelet(folder / "kubelet")
        self._loop = asyncio.new_event_loop()
        self._channel: Channel | None = None
        (folder / "kubelet/plugins_registry").mkdir(parents=True)
        agent.environment = {"DRA_DRIVER": DRIVER, "DRA_MODE_CHANGES": "any"}
        agent.arguments = ["--kubelet-dir", str(folder / "kubelet"), "--cdi-dir", str(folder / "cdi")]

    def __enter__(self) -> ClaimNode:
        self._pods.start()
        self.agent.start()
        registry = self._kubelet.directory / "plugins_registry"
        self.agent.until(lambda: list(registry.glob("*.sock")), "the socket", 60)
        self.agent.until(lambda: self.agent.call("GET", f"{API}/resourceslices")["items"], "the slices", 60)
        plugins = self._loop.run_until_complete(self._kubelet.look())
        self._channel = Channel(path=plugins[DRIVER].endpoint, loop=self._loop)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._channel is not None:
            self._channel.close()
        self._loop.close()
        self._pods.stop()

    # -- the scheduler

    def allocate(self, name: str, gpu: int, start: int) -> ClaimReference:
        """Create a claim, and give it the 1g.5gb of a GPU at a memory slice."""
        path = f"{API}/namespaces/default/resourceclaims"
        request = {"name": "gpu", "exactly": {"deviceClassName": "mig.nvidia.com"}}
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
        made = self.agent.call("POST", path, {**body, "spec": {"devices": {"requests": [request]}}})
        device = f"gpu-{gpu}-mig-1g5gb-19-{start}"
        result = {"request": "gpu", "driver": DRIVER, "pool": f"{self.agent.name}-aliquot", "device": device}
        field = {"key": "metadata.name", "operator": "In", "values": [self.agent.name]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        status = {"status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}}}
        self.agent.call("PATCH", f"{path}/{name}/status", status, "application/merge-patch+json")
        return ClaimReference(made["metadata"]["uid"], "default", name)

    def delete(self, claim: ClaimReference) -> None:
        self.agent.call("DELETE", f"{API}/namespaces/default/resourceclaims/{claim.name}")

    def clear(self, claims: Sequence[ClaimReference]) -> None:
        """Release and delete claims, and destroy their instances, so that the next claims create them again."""
        for claim in claims:
            self.unprepare(claim)
            self.delete(claim)
        for number, gpu in enumerate(self.agent.sim.show()["gpus"]):
            for instance in gpu["instances"]:
                self.agent.sim.destroy(number, instance["id"])

    def settle(self) -> None:
        """Wait until nothing was written for two seconds."""
        cluster = self.agent.cluster
        seen: list[tuple[int | None, float]] = [(None, 0.0)]

        def quiet() -> bool:
            if cluster.revision != seen[0][0]:
                seen[0] = cluster.revision, perf_counter()
            return perf_counter() - seen[0][1] > 2.0

        self.agent.until(quiet, "an idle agent", 60)

    # -- kubelet

    def prepare_bytes(self, claim: ClaimReference) -> tuple[bytes, bytes]:
        """Prepare a claim, and return the request and its answer."""
        request = _prepare([claim])
        answer = self._call(PREPARE, request, dra_pb2.NodePrepareResourcesResponse)
        return request.SerializeToString(), answer.SerializeToString()

    def timed_prepare(self, claim: ClaimReference) -> float:
        began = perf_counter()
        answer = self._call(PREPARE, _prepare([claim]), dra_pb2.NodePrepareResourcesResponse)
        took = perf_counter() - began
        assert not answer.claims[claim.uid].error, answer.claims[claim.uid].error
        return took

    def prepare_all(self, claims: Sequence[ClaimReference], *, together: bool = False) -> list[str]:
        """Prepare claims by a call for each, all at once, or ``together`` by one call. Return their errors."""
        groups = [claims] if together else [[claim] for claim in claims]

        async def calls() -> list[Any]:
            jobs = (self._ask(PREPARE, _prepare(group), dra_pb2.NodePrepareResourcesResponse) for group in groups)
            return await asyncio.gather(*jobs)

        answers = self._loop.run_until_complete(calls())
        return [each.error for answer in answers for each in answer.claims.values()]

    def unprepare(self, claim: ClaimReference) -> str:
        one = dra_pb2.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)
        request = dra_pb2.NodeUnprepareResourcesRequest(claims=[one])
        answer = self._call(UNPREPARE, request, dra_pb2.NodeUnprepareResourcesResponse)
        return str(answer.claims[claim.uid].error)

    def _call(self, path: str, request: Any, reply: type[Any]) -> Any:
        return self._loop.run_until_complete(self._ask(path, request, reply))

    async def _ask(self, path: str, request: Any, reply: type[Any]) -> Any:
        assert self._channel is not None
        return await UnaryUnaryMethod(self._channel, path, type(request), reply)(request)


def _prepare(claims: Sequence[ClaimReference]) -> dra_pb2.NodePrepareResourcesRequest:
    found = [dra_pb2.Claim(namespace=c.namespace, uid=c.uid, name=c.name) for c in claims]
    return dra_pb2.NodePrepareResourcesRequest(claims=found)


class _Echo(DRAPluginBase):
    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def NodePrepareResources(  # noqa: N802 -- gRPC's name
        self, stream: Stream[dra_pb2.NodePrepareResourcesRequest, dra_pb2.NodePrepareResourcesResponse]
    ) -> None:
        await stream.recv_message()
        await stream.send_message(dra_pb2.NodePrepareResourcesResponse.FromString(self._answer))

    async def NodeUnprepareResources(  # noqa: N802 -- gRPC's name
        self, stream: Stream[dra_pb2.NodeUnprepareResourcesRequest, dra_pb2.NodeUnprepareResourcesResponse]
    ) -> None:
        raise NotImplementedError


@contextmanager
def echo(answer: bytes, request: bytes) -> Iterator[Callable[[], float]]:
    """Serve an answer in a process of its own. Yields a function that returns the seconds of one call."""
    loop = asyncio.new_event_loop()
    with TemporaryDirectory(prefix="aliquot-bench-") as folder:
        path = os.path.join(folder, "echo.sock")
        code = f"from benchmarks.claims_node import serve; serve({path!r}, {answer!r})"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with Popen([sys.executable, "-c", code], stdout=PIPE, env=environment) as process:
            assert process.stdout is not None
            process.stdout.readline()
            channel = Channel(path=path, loop=loop)
            message = dra_pb2.NodePrepareResourcesRequest.FromString(request)
            reply = dra_pb2.NodePrepareResourcesResponse
            method = UnaryUnaryMethod(channel, PREPARE, type(message), reply)

            def ask() -> float:
                began = perf_counter()
                loop.run_until_complete(method(message))
                return perf_counter() - began

            yield ask
            channel.close()
            process.terminate()
    loop.close()


def serve(path: str, answer: bytes) -> None:
    """Serve until killed."""

    async def forever() -> None:
        await SocketServer(path, [_Echo(answer)]).listen()
        print("ready", flush=True)
        await asyncio.Event().wait()

    asyncio.run(forever())
