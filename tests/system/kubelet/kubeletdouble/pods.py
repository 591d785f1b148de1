"""Pods in the view of the kubelet double."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4


@dataclass(frozen=True)
class Claimed:
    """A device that a DRA driver prepared for a claim of the pod."""

    claim: str
    device: str
    driver: str = "gpu.nvidia.com"
    cdi: tuple[str, ...] = ()


@dataclass(frozen=True)
class Container:
    name: str
    limits: dict[str, int] = field(default_factory=dict)
    image: str = ""
    command: tuple[str, ...] = ()
    claimed: tuple[Claimed, ...] = ()


@dataclass(frozen=True)
class Pod:
    name: str
    containers: tuple[Container, ...]
    namespace: str = "default"
    uid: str = field(default_factory=lambda: str(uuid4()))


@dataclass(frozen=True)
class RunOptions:
    """The parts of a container that a plugin's answers add."""

    envs: dict[str, str] = field(default_factory=dict)
    mounts: tuple[tuple[str, str, bool], ...] = ()
    devices: tuple[tuple[str, str, str], ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


class Runner(Protocol):
    """A runner that starts the containers of an admitted pod, for tests that need real ones."""

    def start(self, pod: Pod, container: Container, options: RunOptions) -> None: ...

    def stop(self, pod: Pod) -> None: ...


class AdmissionError(Exception):
    """The pod is rejected for good. ``reason`` is the one in its status."""

    reason = "UnexpectedAdmissionError"
