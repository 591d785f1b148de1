"""Services of a Compose file with their devices. Pure.

For Docker, CDI names become a reservation with driver ``cdi``, which every Compose forwards (``devices`` accepts CDI
names only since Compose 2.30). For Podman they become ``devices``, the only form that its Compose supports. The legacy
form is a reservation with driver ``nvidia``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from aliquot.containers.runtime.models import LABEL, ContainerDevice
from aliquot.errors import AliquotError, UsageError

_SERVICE = re.compile(r"[a-zA-Z0-9._-]+")


class Service(msgspec.Struct, frozen=True):
    """A service of the Compose file."""

    name: str
    devices: tuple[ContainerDevice, ...]
    image: str = ""
    cdi: tuple[str, ...] = ()
    """Full CDI names of its devices."""
    label: str = ""
    """The id of its reservation, or ""."""


def parse_services(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the names of services and the devices that each requests, from words like ``web=3g.20gb``. A word without
    a name is service ``app``. Raises UsageError.
    """
    found: dict[str, str] = {}
    if not words:
        raise UsageError("no SERVICE=DEVICE is given", next_step=_HELP)
    for word in words:
        name, equals, what = word.partition("=")
        if not equals:
            name, what = "app", word
        if not _SERVICE.fullmatch(name):
            raise UsageError(f"invalid service name {name!r}: use letters, digits, '.', '_' or '-'", next_step=_HELP)
        if not what:
            raise UsageError(f"{word}: no device is given for service {name}", next_step=_HELP)
        if name in found:
            more = "" if equals else " (a DEVICE without a name is service app)"
            raise UsageError(f"service {name} is given twice{more}: use {name}=A,B for two devices", next_step=_HELP)
        found[name] = what
    return tuple(found.items())


_HELP = "aliquot docker compose --help"


def document(services: Sequence[Service], form: str, runtime: str) -> dict[str, Any]:
    """Return the Compose document: a complete file if services have images, else one to merge with ``-f compose.yaml
    -f``.
    """
    made = {"services": {each.name: _service(each, form, runtime) for each in services}}
    errors = validation_errors(made)
    if errors:
        raise AliquotError("this is not a valid Compose file", details=errors)
    return made


def _service(service: Service, form: str, runtime: str) -> dict[str, Any]:
    made: dict[str, Any] = {"image": service.image} if service.image else {}
    if service.label:
        made["labels"] = {LABEL: service.label}
    uuids = [d.uuid for d in service.devices]
    if form == "cdi" and runtime == "podman":
        made["devices"] = list(service.cdi)
    elif form == "cdi":
        made["deploy"] = _reserved("cdi", service.cdi)
    elif form == "gpus":
        made["deploy"] = _reserved("nvidia", uuids)
    else:
        made |= {"runtime": "nvidia"} if runtime == "docker" else {}
        made["environment"] = {"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)}
    return made


def _reserved(driver: str, ids: Sequence[str]) -> dict[str, Any]:
    devices = [{"driver": driver, "device_ids": list(ids), "capabilities": ["gpu"]}]
    return {"resources": {"reservations": {"devices": devices}}}


_KEYS = {"image", "labels", "devices", "deploy", "runtime", "environment"}


def validation_errors(made: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what Compose would refuse by its specification: names, unknown keys, and device requests without
    devices.
    """
    found = []
    for name, service in made["services"].items():
        found += [f"service {name!r}: invalid name"] if not _SERVICE.fullmatch(name) else []
        found += [f"service {name}: unknown key {key}" for key in sorted(set(service) - _KEYS)]
        requests = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", ())
        named = any(r["device_ids"] for r in requests) or service.get("devices") or service.get("environment")
        found += [] if named else [f"service {name}: no device"]
        found += [f"service {name}: a request without capabilities" for r in requests if not r["capabilities"]]
    return tuple(found)
