"""The kubelet double: sockets, node status, pods."""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as dp
from aliquot.kubernetes.device_plugin.protos import podresources_pb2 as pr
from system.kubelet.kubeletdouble import checkpoint
from system.kubelet.kubeletdouble.manager import Manager
from system.kubelet.kubeletdouble.pods import Pod, Runner, RunOptions
from system.kubelet.kubeletdouble.wire import POD_RESOURCES, REGISTRATION, Plugin, serve

VERSIONS = ("v1beta1",)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")

Status = Callable[[dict[str, int], dict[str, int]], None]
"""A callback that gets capacity and allocatable of the extended resources whenever they changed, from a thread of its
own.
"""


class Kubelet:
    """A kubelet below ``root``. Its calls block, so use ``asyncio.to_thread`` from asyncio.

    ``status`` gets the node's capacity every ``period_s``; ``grace_s`` is the kubelet's five minutes.
    """

    def __init__(
        self,
        root: Path,
        *,
        status: Status | None = None,
        runner: Runner | None = None,
        period_s: float = 0.1,
        grace_s: float = 300.0,
        seed: int = 0,
    ) -> None:
        self.directory = root / "device-plugins"
        self.pod_resources = root / "pod-resources" / "kubelet.sock"
        self.pods: dict[str, Pod] = {}
        self.forgotten: set[str] = set()
        self.refused: list[str] = []
        self._status, self._runner = status, runner
        self._period_s, self._grace_s, self._seed = period_s, grace_s, seed
        self._servers: list[Any] = []
        self._clients: dict[str, Plugin] = {}
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()

    # -- start and stop

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.pod_resources.parent.mkdir(parents=True, exist_ok=True)
        for path in self.directory.iterdir():
            if path.name != checkpoint.NAME and stat.S_ISSOCK(path.stat().st_mode):
                path.unlink()
        self.manager = Manager(self.directory, self._grace_s, self._seed)
        self._stop = threading.Event()
        self._servers = [
            serve(
                str(self.directory / "kubelet.sock"), REGISTRATION, {"Register": (self._register, dp.RegisterRequest)}
            ),
            serve(
                str(self.pod_resources),
                POD_RESOURCES,
                {
                    "List": (self._list, pr.ListPodResourcesRequest),
                    "GetAllocatableResources": (self._allocatable, pr.AllocatableResourcesRequest),
                    "Get": (self._get, pr.GetPodResourcesRequest),
                },
            ),
        ]
        if self._status is not None:
            self._thread(self._report, self._stop)

    def stop(self) -> None:
        """End the kubelet and its connections. The socket files are removed as well."""
        self._stop.set()
        for server in self._servers:
            server.stop(None).wait()
        for client in list(self._clients.values()):
            client.close()
        for thread in self._threads:
            thread.join(timeout=10)
        self._clients.clear()
        self._threads.clear()

    def restart(self) -> None:
        """Stop and start: the directory is wiped except for the checkpoint, including the plugins' sockets."""
        self.stop()
        self.start()

    # -- the node

    @property
    def capacity(self) -> dict[str, int]:
        return self._figures()[0]

    @property
    def allocatable(self) -> dict[str, int]:
        return self._figures()[1]

    def _figures(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return capacity and allocatable as in the Node's status, where a forgotten resource stays with 0."""
        capacity, allocatable, gone = self.manager.figures()
        self.forgotten = (self.forgotten | set(gone)) - set(capacity)
        zero = dict.fromkeys(self.forgotten, 0)
        return zero | capacity, zero | allocatable

    def _report(self, stop: threading.Event) -> None:
        answer: object = None
        while not stop.wait(self._period_s):
            figures = self._figures()
            if figures != answer and self._status is not None:
                self._status(*figures)
                answer = figures

    # -- pods

    def admit(self, pod: Pod) -> dict[str, RunOptions]:
        """Admit and start a pod, and return what each container gets. Raises AdmissionError."""
        self.manager.admit(pod)
        self.pods[pod.uid] = pod
        options = {c.name: self.manager.options(pod, c) for c in pod.containers}
        if self._runner is not None:
            for container in pod.containers:
                self._runner.start(pod, container, options[container.name])
        return options

    def remove(self, pod: Pod) -> None:
        if self._runner is not None:
            self._runner.stop(pod)
        self.pods.pop(pod.uid, None)
        self.manager.forget(pod.uid)

    # -- registration

    def _register(self, request: dp.RegisterRequest) -> dp.Empty:
        """Register a plugin. Raises ValueError, which becomes the answer's status, for a request that the kubelet
        refuses.
        """
        try:
            self._connect(request)
        except ValueError as wrong:
            self.refused.append(str(wrong))
            raise
        return dp.Empty()

    def _connect(self, request: dp.RegisterRequest) -> None:
        name = request.resource_name
        if request.version not in VERSIONS:
            raise ValueError(f'requested API version "{request.version}" is not supported by kubelet')
        if not _NAME.fullmatch(name) or name.split("/")[0].endswith("kubernetes.io"):
            raise ValueError(f'the ResourceName "{name}" is invalid')
        if "/" in request.endpoint or not (self.directory / request.endpoint).is_socket():
            raise ValueError(f"failed to dial device plugin: no socket {request.endpoint}")
        try:
            plugin = Plugin(str(self.directory / request.endpoint))
            options = plugin.options()
        except (grpc.RpcError, grpc.FutureTimeoutError) as failure:
            raise ValueError(f"failed to dial device plugin: {failure}") from failure
        self.manager.connected(name, plugin, options)
        self._clients[name] = plugin
        self._thread(self._follow, name, plugin)

    def _follow(self, name: str, plugin: Plugin) -> None:
        """Read the stream to its end. Then disconnect the plugin that has the name, even a newer one: the kubelet does
        that too.
        """
        manager = self.manager
        with suppress(grpc.RpcError, ValueError):
            for answer in plugin.watch():
                manager.received(name, answer)
        current = self._clients.pop(name, None)
        if current is not None:
            current.close()
            manager.disconnected(name)

    def _thread(self, act: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=act, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    # -- pod resources

    def _list(self, _request: pr.ListPodResourcesRequest) -> pr.ListPodResourcesResponse:
        return pr.ListPodResourcesResponse(pod_resources=[self._pod(pod) for pod in list(self.pods.values())])

    def _get(self, request: pr.GetPodResourcesRequest) -> pr.GetPodResourcesResponse:
        for pod in list(self.pods.values()):
            if (pod.name, pod.namespace) == (request.pod_name, request.pod_namespace):
                return pr.GetPodResourcesResponse(pod_resources=self._pod(pod))
        raise ValueError(f"pod {request.pod_namespace}/{request.pod_name} not found")

    def _pod(self, pod: Pod) -> pr.PodResources:
        out = pr.PodResources(name=pod.name, namespace=pod.namespace)
        for container in pod.containers:
            mine = out.containers.add(name=container.name)
            for entry in self.manager.entries:
                if (entry.uid, entry.container) == (pod.uid, container.name):
                    for node, ids in entry.devices.items():
                        part = mine.devices.add(resource_name=entry.resource, device_ids=ids)
                        if node >= 0:
                            part.topology.nodes.add(ID=node)
            for each in container.claimed:
                claim = mine.dynamic_resources.add(claim_name=each.claim, claim_namespace=pod.namespace)
                device = claim.claim_resources.add(driver_name=each.driver, pool_name="node", device_name=each.device)
                for name in each.cdi:
                    device.cdi_devices.add(name=name)
        return out

    def _allocatable(self, _request: pr.AllocatableResourcesRequest) -> pr.AllocatableResourcesResponse:
        """Return one entry per device, as the kubelet does if devices have a NUMA node."""
        out = pr.AllocatableResourcesResponse()
        for name, ids in list(self.manager.healthy.items()):
            for each in sorted(ids):
                out.devices.add(resource_name=name, device_ids=[each])
        return out
