"""What was found of runtimes, their settings and NVIDIA's container toolkit. Values only."""

from __future__ import annotations

import re
from typing import Any

import msgspec

DEFAULT_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
"""Where every runtime looks that was not told otherwise."""


class DaemonJson(msgspec.Struct, frozen=True):
    """Docker's settings file. ``error`` says why it cannot be read, "" for one that can; ``cdi`` is ``features.cdi``,
    None where it says nothing.
    """

    path: str
    present: bool = False
    error: str = ""
    cdi: bool | None = None


class RuntimeFacts(msgspec.Struct, frozen=True):
    """One runtime. ``error`` is why it does not answer. ``cdi_dirs`` are those that Docker's daemon looks into (none
    where CDI is off), None for a runtime that does not tell. ``runtimes`` are Docker's OCI runtimes by name; ``oci`` is
    the program that Podman starts containers with.
    """

    name: str
    installed: bool = False
    error: str = ""
    client: tuple[int, ...] = ()
    server: tuple[int, ...] = ()
    cdi_dirs: tuple[str, ...] | None = None
    runtimes: tuple[str, ...] = ()
    oci: str = ""
    remote_address: str = ""
    emulated: bool = False

    @property
    def answers(self) -> bool:
        return self.installed and not self.error


class ContainerToolkit(msgspec.Struct, frozen=True):
    """NVIDIA's container toolkit: versions and paths of its programs, () and "" for what is not there. ``settings`` is
    what its config.toml says, ``error`` why that cannot be read.
    """

    version: tuple[int, ...] = ()
    runtime: str = ""
    hook: str = ""
    cdi_hook: str = ""
    settings: dict[str, Any] = {}
    error: str = ""

    @property
    def present(self) -> bool:
        return bool(self.runtime or self.hook)


class SpecFacts(msgspec.Struct, frozen=True):
    """A CDI file that names NVIDIA devices. ``missing`` are host paths of mounts and hooks that are not there."""

    path: str
    version: tuple[int, ...]
    missing: tuple[str, ...] = ()


class ContainerFacts(msgspec.Struct, frozen=True):
    """Everything that a verdict depends on, beside the node's devices. ``directories`` are those to search for CDI
    files, whatever a runtime says (none: where each runtime looks); ``hybrid`` says that control groups of version 1
    and 2 are mounted side by side.
    """

    runtimes: tuple[RuntimeFacts, ...]
    daemon: DaemonJson
    toolkit: ContainerToolkit
    specs: tuple[SpecFacts, ...]
    directories: tuple[str, ...] = ()
    hybrid: bool = False

    def searched(self, runtime: RuntimeFacts) -> tuple[str, ...]:
        """Where a runtime looks for CDI files."""
        return self.directories or runtime.cdi_dirs or DEFAULT_DIRECTORIES


def version(text: object) -> tuple[int, ...]:
    """The first version in a text, as numbers; () where there is none."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", str(text))
    return tuple(int(part) for part in found.groups() if part is not None) if found else ()


def format_version(numbers: tuple[int, ...]) -> str:
    """A version as people write it."""
    return ".".join(map(str, numbers)) or "of an unknown version"
