"""The devices of a running VM, read from the environment of its launcher pod.

Kubelet passes a device plugin's answer to the container as environment variables, from which virt-launcher writes the
VM's XML. They state what the VM really got, whatever names its spec holds. Sources: KubeVirt, pkg/virt-launcher
(``MDEV_PCI_RESOURCE_``, ``PCI_RESOURCE_``); harvester/pcidevices, which reads them by running ``env``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from aliquot.kubernetes.kinds.harvester_names import MDEV_ENV, PCI_ENV, environment

DevicesBySource = dict[str, dict[str, tuple[str, ...]]]
"""For ``mdev`` and ``pci`` each: device ids by resource, in a variable's spelling (``NVIDIA_COM_NVIDIA_A2-4A``)."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def devices(env_text: str) -> DevicesBySource:
    """Return the devices in the output of ``env``, or in ``/proc/PID/environ``, whose variables end with NUL.

    The ids in a variable keep their order, without duplicates. Only UUIDs (``mdev``) and PCI addresses (``pci``) count:
    the value of another variable may contain line breaks and any text. Never raises.
    """
    found: DevicesBySource = {"mdev": {}, "pci": {}}
    for line in env_text.split("\0" if "\0" in env_text else "\n"):
        name, _, value = line.partition("=")
        if name.startswith(f"{MDEV_ENV}_"):
            _add(found["mdev"], name.removeprefix(f"{MDEV_ENV}_"), value, _UUID.fullmatch)
        elif name.startswith(f"{PCI_ENV}_"):
            _add(found["pci"], name.removeprefix(f"{PCI_ENV}_"), value, _ADDRESS.fullmatch)
    return found


def by_resource(found: DevicesBySource, resources: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the devices by resource name (``nvidia.com/NVIDIA_A2-4A``), which a variable's name does not contain.

    Only resources in ``resources`` of which the VM has devices are returned. If two have the same spelling in a
    variable, the first gets the devices.
    """
    known: dict[str, str] = {}
    for resource in resources:
        known.setdefault(environment(resource, ""), resource)
    mine: dict[str, tuple[str, ...]] = {}
    for word, ids in (*found["mdev"].items(), *found["pci"].items()):
        if f"_{word}" in known:
            resource = known[f"_{word}"]
            mine[resource] = (*mine.get(resource, ()), *ids)
    return mine


def _add(into: dict[str, tuple[str, ...]], word: str, value: str, fits: Callable[[str], object]) -> None:
    ids = tuple(one for one in (part.strip().lower() for part in value.split(",")) if fits(one))
    both = tuple(dict.fromkeys((*into.get(word, ()), *ids)))
    if word and both:
        into[word] = both
