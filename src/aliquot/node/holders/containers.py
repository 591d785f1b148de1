"""Which device nodes each container of this machine has, whoever started it: read from ``/proc``, no runtime is asked.

A container is a mount namespace whose control group names it: Docker, Podman, containerd and CRI-O put the container's
64 hexadecimal digits there. What nodes its ``/dev`` has is what a runtime gave it, by CDI, by NVIDIA's hook or one by
one. Pods are left out: kubelet says what they have. So are containers with ``nvidia-cap1`` or ``nvidia-cap2`` (among
them every ``--privileged`` one): they administer GPUs and watch them, and would otherwise hold everything.

Looking into another user's processes needs root; others see their own containers at most.
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
"""Where a container has the folder of the simulated node that its devices are of."""


class RunningContainer(msgspec.Struct, frozen=True):
    """A running container. ``engine`` is docker or podman where its control group tells, else "". ``gpus`` are the
    minors of its GPU nodes, ``caps`` those of its capability nodes.
    """

    id: str
    engine: str
    gpus: frozenset[int]
    caps: frozenset[int]

    @property
    def administers(self) -> bool:
        return bool(self.caps & _ADMINISTRATION)


def running_containers(simulated: str = "", proc: str = "/proc") -> tuple[RunningContainer, ...]:
    """The containers with GPU nodes. ``simulated`` is the folder of a simulated node: only containers with its devices
    count then, and without it only those with devices of the machine.
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
    """Whether any container runs here that could have devices, of whatever node."""
    return next(_containers(proc), None) is not None


def devices_of(container: RunningContainer, gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """The UUIDs of what a container can open: MIG devices with both their capabilities, GPUs that are not in MIG mode.
    Nothing for one that administers.
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
    """Containers with one process of each: their id, engine, and the process. A process that ends meanwhile is nobody
    any more.
    """
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
    """A container's id and engine from a process's ``/proc/PID/cgroup``; None for what is no container, or a pod's."""
    found = _ID.search(groups)
    if found is None or "kubepods" in groups:
        return None
    engine = next((engine for mark, engine in _ENGINES if f"{mark}{found.group(1)}" in groups), "")
    return found.group(1), engine


def _belongs(root: str, simulated: str) -> bool:
    """Whether the container's devices are those of this node: a simulated one is known by its folder."""
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
    """The minors of the character devices of a folder whose name says the same minor."""
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
