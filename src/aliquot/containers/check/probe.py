"""Probe of runtimes, settings and files. It changes nothing, and every program that it runs has a time limit."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from aliquot.containers.check.facts import (
    ContainerFacts,
    ContainerToolkit,
    DaemonJson,
    RuntimeFacts,
    SpecFacts,
    version,
)
from aliquot.containers.runtime.cdi_names import Documents
from aliquot.containers.runtime.errors import RuntimeUnavailableError
from aliquot.containers.runtime.inspect import mapping
from aliquot.containers.runtime.runtimes import NAMES, ContainerRuntime

DAEMON_JSON = "/etc/docker/daemon.json"
_TOOLKIT_SETTINGS = "/etc/nvidia-container-runtime/config.toml"
_PATIENCE_S = 5.0


Reader = Callable[[str], Iterable[tuple[str, Mapping[str, Any]]]]
"""Reads the CDI documents of a directory, with their paths."""


def gather(
    read: Reader, directories: Sequence[str] = (), names: Sequence[str] = (), daemon: str = DAEMON_JSON
) -> tuple[ContainerFacts, Documents]:
    """Return the facts, and the CDI documents of every directory that a runtime reads (or of ``directories``, if
    given). ``names`` are the runtimes to check, all if empty; ``daemon`` is Docker's settings file.
    """
    runtimes = tuple(runtime_facts(ContainerRuntime(name, patience_s=_PATIENCE_S)) for name in names or NAMES)
    facts = ContainerFacts(
        runtimes=runtimes,
        daemon=daemon_json(daemon),
        toolkit=toolkit(),
        specs=(),
        directories=tuple(d.rstrip("/") for d in directories),
        hybrid=os.path.ismount("/sys/fs/cgroup/unified"),
    )
    where = dict.fromkeys(d for each in runtimes for d in facts.searched(each))
    documents = tuple(found for directory in where for found in read(directory))
    return msgspec.structs.replace(facts, specs=tuple(spec_facts(path, each) for path, each in documents)), documents


def runtime_facts(client: ContainerRuntime) -> RuntimeFacts:
    """Return the facts that a runtime's client and daemon report."""
    if not client.installed:
        return RuntimeFacts(client.name)
    try:
        version_text = client.version()
        found = RuntimeFacts(client.name, True, client=version(version_text), remote_address=client.remote_address)
        if client.name == "docker" and "podman" in version_text.lower():
            return msgspec.structs.replace(found, emulated=True)
        info = client.info()
    except RuntimeUnavailableError as error:
        return RuntimeFacts(client.name, True, error=error.brief, remote_address=client.remote_address)
    if client.name == "podman":
        host = mapping(info.get("host"))
        oci = str(mapping(host.get("ociRuntime")).get("name", ""))
        return msgspec.structs.replace(found, server=version(mapping(info.get("version")).get("Version")), oci=oci)
    return msgspec.structs.replace(
        found,
        server=version(info.get("ServerVersion")),
        cdi_dirs=tuple(map(str, info.get("CDISpecDirs") or ())) if client.name == "docker" else None,
        runtimes=tuple(sorted(mapping(info.get("Runtimes")))),
    )


def daemon_json(path: str) -> DaemonJson:
    """Return Docker's settings. A missing file counts as no settings."""
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read() or b"{}")
    except FileNotFoundError:
        return DaemonJson(path)
    except OSError as error:
        return DaemonJson(path, True, error.strerror or str(error))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return DaemonJson(path, True, str(error))
    if not isinstance(found, dict):
        return DaemonJson(path, True, "it is not a JSON object")
    cdi = mapping(found.get("features")).get("cdi")
    if cdi is not None and not isinstance(cdi, bool):
        return DaemonJson(path, True, f"features.cdi is {cdi!r}, not true or false")
    return DaemonJson(path, True, cdi=cdi)


def toolkit() -> ContainerToolkit:
    """Return NVIDIA's container toolkit: its programs found in PATH, and its settings."""
    settings, error = _settings(_TOOLKIT_SETTINGS)
    ctk = shutil.which("nvidia-ctk")
    return ContainerToolkit(
        version=version(_program_output(ctk, "--version")) if ctk else (),
        runtime=shutil.which("nvidia-container-runtime") or "",
        hook=shutil.which("nvidia-container-runtime-hook") or "",
        cdi_hook=shutil.which("nvidia-cdi-hook") or "",
        settings=settings,
        error=error,
    )


def _settings(path: str) -> tuple[dict[str, Any], str]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file), ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return {}, f"{path}: {error}"


def _program_output(program: str, *words: str) -> str:
    from aliquot.foundation import bounded_process

    try:
        done = bounded_process.run([program, *words], _PATIENCE_S)
    except OSError:  # a TimeoutError too
        return ""
    return done.out + done.err


def spec_facts(path: str, document: Mapping[str, Any]) -> SpecFacts:
    """Return the facts of one CDI file, with the host paths that it needs and that do not exist."""
    every = [document.get("containerEdits"), *(mapping(d).get("containerEdits") for d in document.get("devices", ()))]
    wanted: list[str] = []
    for edits in every:
        wanted += [str(mapping(m).get("hostPath", "")) for m in mapping(edits).get("mounts") or ()]
        wanted += [str(mapping(h).get("path", "")) for h in mapping(edits).get("hooks") or ()]
    missing = tuple(p for p in dict.fromkeys(wanted) if p and not os.path.lexists(p))
    return SpecFacts(path, version(document.get("cdiVersion")), missing)
