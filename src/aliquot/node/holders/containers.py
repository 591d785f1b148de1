"""Device nodes of each container on this host, from any runtime: read from ``/proc``, without a call to a runtime.

A container is a mount namespace whose control group names it: Docker, Podman, containerd and CRI-O put the container's
64 hexadecimal digits there. The nodes in its ``/dev`` are those that a runtime gave it, by CDI, by NVIDIA's hook or one
by one. Pods are omitted, because the kubelet reports their devices. So are containers with ``nvidia-cap1`` or
``nvidia-cap2`` (among them every ``--privileged`` one): they administer and monitor GPUs, and would otherwise hold all
of them.

Reading another user's processes needs root. Other users see at most their own containers.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from aliquot.core.model.inventory import Gpu

_ID = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:$|/)", re.MULTILINE)
_ENGINES = (("libpod-", "podman"), ("/docker/", "docker"), ("docker-", "docker"))
_GPU = re.compile(r"nvidia(\d+)")
_CAP = re.compile(r"nvidia-cap(\d+)")
_ADMINISTRATION = frozenset({1, 2})
SIMULATED_AT = "run/aliquot-sim"
"""The mount path in a container for the folder of the simulated node that its devices belong to."""


class RunningContainer(msgspec.Struct, frozen=True):
    """A running container."""

    id: str
    engine: str
    """docker or podman if its control group shows it, else ""."""
    gpus: frozenset[int]
    """Minors of its GPU nodes."""
    caps: frozenset[int]
    """Minors of its capability nodes."""

    @property
    def administers(self) -> bool:
        return bool(self.caps & _ADMINISTRATION)


def running_containers(simulated: str = "", proc: str = "/proc") -> tuple[RunningContainer, ...]:
    """Return the containers that have GPU nodes. ``simulated`` is the folder of a simulated node, to count only
    containers with its devices. Without it, only those with devices of the real host count.
    """
    found: dict[str, RunningContainer] = {}
    for ident, engine, pid in _containers(proc):
        if ident in found:
            continue
        root = os.path.join(proc, pid, "root")
        gpus = frozenset(_minors(os.path.join(root, "dev"), _GPU))
        if gpus and _belongs(root, simulated):
            caps = frozenset(_minors(os.path.join(root, "dev/nvidia-caps"), _CAP))
            found[ident] = RunningContainer(ident, engine, gpus, caps)
    return tuple(found.values())


def any_running(proc: str = "/proc") -> bool:
    """Report whether any container runs here that could have devices, of any node."""
    return next(_containers(proc), None) is not None


def devices_of(container: RunningContainer, gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """Return the UUIDs that a container can open: MIG devices with both their capabilities, and GPUs that are not in
    MIG mode. Return none for a container that administers GPUs.
    """
    if container.administers:
        return ()
    return tuple(uuid for gpu in gpus if gpu.minor in container.gpus for uuid in _openable(container, gpu))


def _openable(container: RunningContainer, gpu: Gpu) -> Iterator[str]:
    if not gpu.mig.enabled:
        yield gpu.uuid
        return
    for instance in gpu.instances:
        if instance.capability_minor in container.caps:
            yield from (c.uuid for c in instance.compute_instances if c.capability_minor in container.caps)


def _containers(proc: str) -> Iterator[tuple[str, str, str]]:
    """Yield containers with one process of each: id, engine, and pid. A process that ends meanwhile is omitted."""
    visited: set[str] = set()
    try:
        own = os.readlink(os.path.join(proc, "self/ns/mnt"))
        pids = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return
    for pid in pids:
        try:
            namespace = os.readlink(f"{proc}/{pid}/ns/mnt")
            if namespace == own or namespace in visited:
                continue
            with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="replace") as file:
                groups = file.read()
        except OSError:
            continue
        visited.add(namespace)
        ident = identity(groups)
        if ident is not None:
            yield (*ident, pid)


def identity(groups: str) -> tuple[str, str] | None:
    """Return a container's id and engine from a process's ``/proc/PID/cgroup``; None for a process outside containers
    or in a pod.
    """
    found = _ID.search(groups)
    if found is None or "kubepods" in groups:
        return None
    engine = next((engine for mark, engine in _ENGINES if f"{mark}{found.group(1)}" in groups), "")
    return found.group(1), engine


def _belongs(root: str, simulated: str) -> bool:
    """Report whether the container's devices are those of this node. A simulated node is recognized by its folder."""
    try:
        inside = os.stat(os.path.join(root, SIMULATED_AT))
    except OSError:
        return not simulated
    if not simulated:
        return False
    try:
        return os.path.samestat(inside, os.stat(simulated))
    except OSError:
        return False


def _minors(folder: str, pattern: re.Pattern[str]) -> Iterator[int]:
    """Yield the minors of a folder's character devices whose name has the same minor."""
    try:
        names: Sequence[str] = os.listdir(folder)
    except OSError:
        return
    for name in names:
        match = pattern.fullmatch(name)
        if match is None:
            continue
        try:
            facts = os.lstat(os.path.join(folder, name))
        except OSError:
            continue
        if stat.S_ISCHR(facts.st_mode) and os.minor(facts.st_rdev) == int(match.group(1)):
            yield os.minor(facts.st_rdev)
