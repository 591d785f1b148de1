"""The kubelet's device manager: devices that plugins reported, devices that pods have, and allocation to containers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random

import grpc

from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as dp
from system.kubelet.kubeletdouble import checkpoint
from system.kubelet.kubeletdouble.checkpoint import Entry
from system.kubelet.kubeletdouble.pods import AdmissionError, Container, Pod, RunOptions
from system.kubelet.kubeletdouble.wire import Plugin


class Endpoint:
    """A plugin for one resource. ``plugin`` is None and ``stopped`` a time after it is gone."""

    def __init__(self, plugin: Plugin | None, options: dp.DevicePluginOptions | None) -> None:
        self.plugin = plugin
        self.options = options
        self.stopped: float | None = None if plugin else time.monotonic()


class Manager:
    """A thread-safe device manager. It iterates sets in a random order, as Go does; ``seed`` fixes the order."""

    def __init__(self, directory: Path, grace_s: float, seed: int) -> None:
        self.directory = directory
        self.devices: dict[str, dict[str, dp.Device]] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.endpoints: dict[str, Endpoint] = {}
        self.pushes: list[tuple[str, int]] = []
        self.entries, known = checkpoint.read(directory)
        for resource in known:
            self.healthy[resource], self.unhealthy[resource] = set(), set()
            self.endpoints[resource] = Endpoint(None, None)
        self._grace_s = grace_s
        self._random = Random(seed)
        self._lock = threading.RLock()
        self._turn = threading.Lock()

    # -- reports of plugins

    def connected(self, resource: str, plugin: Plugin, options: dp.DevicePluginOptions) -> None:
        with self._lock:
            self.endpoints[resource] = Endpoint(plugin, options)

    def received(self, resource: str, answer: dp.ListAndWatchResponse) -> None:
        with self._lock:
            self.pushes.append((resource, len(answer.devices)))
            self.devices[resource] = {d.ID: d for d in answer.devices}
            self.healthy[resource] = {d.ID for d in answer.devices if d.health == "Healthy"}
            self.unhealthy[resource] = {d.ID for d in answer.devices if d.health != "Healthy"}
            self._save()

    def disconnected(self, resource: str) -> None:
        with self._lock:
            endpoint = self.endpoints.get(resource)
            if endpoint is not None:
                self.unhealthy.setdefault(resource, set()).update(self.healthy.get(resource, set()))
                self.healthy[resource] = set()
                endpoint.plugin, endpoint.stopped = None, time.monotonic()

    def figures(self) -> tuple[dict[str, int], dict[str, int], list[str]]:
        """Return capacity, allocatable, and the resources that are forgotten with this answer."""
        with self._lock:
            gone = [
                name
                for name, e in self.endpoints.items()
                if e.stopped is not None and time.monotonic() - e.stopped > self._grace_s
            ]
            for name in gone:
                del self.endpoints[name]
                self.healthy.pop(name, None)
                self.unhealthy.pop(name, None)
            if gone:
                self._save()
            allocatable = {name: len(ids) for name, ids in self.healthy.items()}
            capacity = {n: allocatable.get(n, 0) + len(ids) for n, ids in self.unhealthy.items()}
            return capacity, allocatable, gone

    # -- requests of pods

    def admit(self, pod: Pod) -> None:
        """Give each container its devices. Raises AdmissionError."""
        with self._turn:  # the kubelet admits one pod after the other
            for container in pod.containers:
                for resource, count in container.limits.items():
                    if count and (resource in self.healthy or resource in self._allocated()):
                        self._give(pod, container, resource, count)

    def forget(self, uid: str) -> None:
        with self._lock:
            self.entries = [e for e in self.entries if e.uid != uid]
            self._save()

    def options(self, pod: Pod, container: Container) -> RunOptions:
        mine = [e.answer for e in self.entries if (e.uid, e.container) == (pod.uid, container.name)]
        return RunOptions(
            envs={k: v for a in mine for k, v in a.envs.items()},
            mounts=tuple((m.host_path, m.container_path, m.read_only) for a in mine for m in a.mounts),
            devices=tuple((d.host_path, d.container_path, d.permissions) for a in mine for d in a.devices),
            annotations={k: v for a in mine for k, v in a.annotations.items()},
            cdi_devices=tuple(c.name for a in mine for c in a.cdi_devices),
        )

    def _allocated(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for entry in self.entries:
            found.setdefault(entry.resource, set()).update(entry.ids)
        return found

    def _give(self, pod: Pod, container: Container, resource: str, count: int) -> None:
        with self._lock:
            healthy = set(self.healthy.get(resource, set()))
            endpoint = self.endpoints.get(resource)
            free = healthy - self._allocated().get(resource, set())
            if not healthy:
                raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
            if len(free) < count:
                text = f"requested number of devices unavailable for {resource}. Requested: {count}"
                raise AdmissionError(f"{text}, Available: {len(free)}")
            plugin = None if endpoint is None else endpoint.plugin
        if endpoint is None or plugin is None:
            raise AdmissionError(f"endpoint of {resource} has been stopped")
        try:
            chosen = self._choose(endpoint, plugin, free, count)
            answer = plugin.allocate(chosen)
        except grpc.RpcError as failure:
            why = f"rpc error: {failure.details()}"
            raise AdmissionError(f"Allocate failed due to {why}, which is unexpected") from None
        except ValueError as failure:  # the connection was closed meanwhile
            raise AdmissionError(f"Allocate failed due to {failure}, which is unexpected") from None
        with self._lock:
            self.entries.append(Entry(pod.uid, container.name, resource, self._by_node(resource, chosen), answer))
            self._save()

    def _choose(self, endpoint: Endpoint, plugin: Plugin, free: set[str], count: int) -> list[str]:
        shuffled = self._random.sample(sorted(free), len(free))
        requested: list[str] = []
        if endpoint.options is not None and endpoint.options.get_preferred_allocation_available:
            requested = [i for i in plugin.preferred(shuffled, [], count) if i in free]
        return list(dict.fromkeys(requested + shuffled))[:count]

    def _by_node(self, resource: str, ids: list[str]) -> dict[int, tuple[str, ...]]:
        found: dict[int, tuple[str, ...]] = {}
        for each in ids:
            device = self.devices[resource].get(each)
            nodes = [n.ID for n in device.topology.nodes] if device is not None else []
            for node in nodes or [-1]:
                found[node] = (*found.get(node, ()), each)
        return found

    def _save(self) -> None:
        checkpoint.write(self.directory, self.entries, {n: sorted(ids) for n, ids in self.healthy.items()})
