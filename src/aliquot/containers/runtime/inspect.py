"""Devices that a container was started with, from its runtime's ``inspect``. Pure.

Docker and nerdctl (in its Docker-compatible form) have ``HostConfig.DeviceRequests``: driver ``cdi`` with full CDI
names, or the NVIDIA runtime's with UUIDs and indices (``--gpus``). Podman keeps CDI names only in the command line that
created the container. NVIDIA_VISIBLE_DEVICES counts wherever NVIDIA's runtime reads it. A MIG UUID in it always counts,
because it has no other use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from aliquot.containers.runtime.models import LABEL, Container, RequestedDevices

_VARIABLE = "NVIDIA_VISIBLE_DEVICES="
_NOTHING = frozenset({"", "none", "void"})
_NODE = re.compile(r"/dev/nvidia(\d+|-caps/nvidia-cap\d+)")
_CDI = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)=(.+)")
_VOLUMES = "/var/run/nvidia-container-devices/"
"""NVIDIA's runtime also accepts volumes: their names below this folder are devices."""


def container(document: Mapping[str, Any], runtime: str) -> Container:
    """Return the container in one element of the output of ``RUNTIME inspect``. Missing fields count as not
    requested.
    """
    config = mapping(document.get("Config"))
    state = mapping(document.get("State"))
    return Container(
        runtime=runtime,
        id=str(document.get("Id", "")),
        name=str(document.get("Name", "")).lstrip("/"),
        state=str(state.get("Status", "")).lower(),
        reservation=str(mapping(config.get("Labels")).get(LABEL, "")),
        requested=requested_devices(document),
    )


def requested_devices(document: Mapping[str, Any]) -> RequestedDevices:
    """Return the devices that a container requested."""
    host, config = mapping(document.get("HostConfig")), mapping(document.get("Config"))
    words = [*_requests(host), *_command(config), *_variable(host, config), *_volumes(document)]
    nodes = [n for n in _nodes(host) if _NODE.fullmatch(n)]
    names = tuple(dict.fromkeys(w for w in words if w not in _NOTHING and w != "all"))
    return RequestedDevices(names, "all" in words, tuple(nodes))


def removed_reservation(line: str) -> str:
    """Return the reservation of the container whose removal a line of ``RUNTIME events`` reports (as JSON); "" for
    other lines.
    """
    try:
        event = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return ""
    found = mapping(event)
    # Docker has "Action" and the labels below "Actor", Podman "Status" and the labels at the top.
    if found.get("Action", found.get("Status")) not in ("destroy", "remove"):
        return ""
    attributes = found.get("Attributes") or mapping(found.get("Actor")).get("Attributes")
    return str(mapping(attributes).get(LABEL, ""))


def _requests(host: Mapping[str, Any]) -> Iterator[str]:
    for request in _sequence(host.get("DeviceRequests")):
        ids = [str(each) for each in _sequence(mapping(request).get("DeviceIDs"))]
        count = mapping(request).get("Count", 0)
        if ids:
            yield from (_plain(each) for each in ids)
        elif isinstance(count, int):
            # A count takes the first GPUs, -1 all of them.
            yield from ("all",) if count < 0 else (str(n) for n in range(count))


def _command(config: Mapping[str, Any]) -> Iterator[str]:
    words = [str(word) for word in _sequence(config.get("CreateCommand"))]
    for n, word in enumerate(words):
        following = words[n + 1] if n + 1 < len(words) else ""
        option, equals, value = word.partition("=")
        if option in ("--device", "--gpus"):
            value = value if equals else following
            found = _CDI.fullmatch(value)
            if found or option == "--gpus":
                yield from (_plain(each) for each in _csv(value))


def _csv(value: str) -> list[str]:
    """Return the devices of ``--gpus``: ``all``, ``device=A,B``; a CDI name is returned as is."""
    if _CDI.fullmatch(value) and not value.startswith("device="):
        return [value]
    return [word for word in value.strip("\"'").removeprefix("device=").split(",") if word]


def _plain(name: str) -> str:
    """Return the part after ``=`` of a full CDI name; other names as they are."""
    found = _CDI.fullmatch(name)
    return found.group(2) if found else name


def _variable(host: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    reads = "nvidia" in str(host.get("Runtime", "")).lower()
    for variable in _sequence(config.get("Env")):
        if str(variable).startswith(_VARIABLE):
            words = str(variable).removeprefix(_VARIABLE).split(",")
            yield from (word for word in words if reads or word.startswith(("MIG-", "GPU-")))


def _volumes(document: Mapping[str, Any]) -> Iterator[str]:
    for mount in _sequence(document.get("Mounts")):
        destination = str(mapping(mount).get("Destination", ""))
        if destination.startswith(_VOLUMES):
            yield destination.removeprefix(_VOLUMES).replace("/", ":")


def _nodes(host: Mapping[str, Any]) -> list[str]:
    return [str(mapping(each).get("PathOnHost", "")) for each in _sequence(host.get("Devices"))]


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one: the output of runtimes is not ours to trust."""
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
