"""Facts about runtimes, their settings and NVIDIA's container toolkit. Values only."""

from __future__ import annotations

import re
from typing import Any

import msgspec

DEFAULT_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
"""Where runtimes search for CDI files unless they are configured otherwise."""


class DaemonJson(msgspec.Struct, frozen=True):
    """Docker's settings file."""

    path: str
    present: bool = False
    error: str = ""
    """Why the file cannot be read, or ""."""
    cdi: bool | None = None
    """``features.cdi``, or None if the file does not set it."""


class RuntimeFacts(msgspec.Struct, frozen=True):
    """A container runtime."""

    name: str
    installed: bool = False
    error: str = ""
    """Why the runtime does not answer, or ""."""
    client: tuple[int, ...] = ()
    server: tuple[int, ...] = ()
    cdi_dirs: tuple[str, ...] | None = None
    """The CDI directories of Docker's daemon, empty if CDI is off; None for a runtime that does not report them."""
    runtimes: tuple[str, ...] = ()
    """Docker's OCI runtimes by name."""
    oci: str = ""
    """The program that Podman starts containers with."""
    remote_address: str = ""
    emulated: bool = False

    @property
    def answers(self) -> bool:
        return self.installed and not self.error


class ContainerToolkit(msgspec.Struct, frozen=True):
    """NVIDIA's container toolkit: version and paths of its programs, () and "" if missing."""

    version: tuple[int, ...] = ()
    runtime: str = ""
    hook: str = ""
    cdi_hook: str = ""
    settings: dict[str, Any] = {}
    """The content of its config.toml."""
    error: str = ""
    """Why config.toml cannot be read, or ""."""

    @property
    def present(self) -> bool:
        return bool(self.runtime or self.hook)


class SpecFacts(msgspec.Struct, frozen=True):
    """A CDI file that names NVIDIA devices."""

    path: str
    version: tuple[int, ...]
    missing: tuple[str, ...] = ()
    """Host paths of mounts and hooks that do not exist."""


class ContainerFacts(msgspec.Struct, frozen=True):
    """All facts that a verdict depends on, except the node's devices."""

    runtimes: tuple[RuntimeFacts, ...]
    daemon: DaemonJson
    toolkit: ContainerToolkit
    specs: tuple[SpecFacts, ...]
    directories: tuple[str, ...] = ()
    """Directories to search for CDI files instead of those of each runtime; empty to use those of each runtime."""
    hybrid: bool = False
    """True if control groups of version 1 and 2 are mounted side by side."""

    def searched(self, runtime: RuntimeFacts) -> tuple[str, ...]:
        """Return the directories where a runtime searches for CDI files."""
        return self.directories or runtime.cdi_dirs or DEFAULT_DIRECTORIES


def version(text: object) -> tuple[int, ...]:
    """Return the first version in a text as numbers, or () if there is none."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", str(text))
    return tuple(int(part) for part in found.groups() if part is not None) if found else ()


def format_version(numbers: tuple[int, ...]) -> str:
    """Return a version as text."""
    return ".".join(map(str, numbers)) or "of an unknown version"
