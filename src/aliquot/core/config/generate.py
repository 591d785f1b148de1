"""The configuration file for a node's GPUs, with the entries and names that mig-manager generates."""

from __future__ import annotations

import msgspec

from aliquot.core.config.export import Document, device_type
from aliquot.core.config.formats.yaml_writer import natural
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.profile import ProfileName
from aliquot.errors import BlockedError

_A30 = "0x20B710DE"
_A30_COUNTS = {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1}
"""NVML reports wrong counts for this GPU. Source: mig-parted's builder, which hard-codes the same table."""

_BALANCED = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""Compute slices of the widest profile -> compute slices of a profile -> its count."""


class _Choice(msgspec.Struct, frozen=True):
    """A profile of one kind of GPU, and how many instances of it fit. ``plain`` has no attributes."""

    device: str
    name: str
    count: int
    slices: int
    plain: bool


def generate(inventory: Inventory) -> Document:
    """Generate all-disabled, all-enabled, all-PROFILE for every profile and, if it is defined, all-balanced.

    Entries have a device filter if the node has several kinds of MIG-capable GPUs. Raises BlockedError if no GPU
    supports MIG, or if the profiles of all that do are unknown.
    """
    capable = [gpu for gpu in inventory.gpus if gpu.mig.capable]
    if not capable:
        raise BlockedError(
            "no GPU of this node can be partitioned: there is nothing to generate",
            code="NOT_CAPABLE",
            next_step="aliquot show",
        )
    choices = {choice for gpu in capable for choice in _choices(inventory, gpu)}
    if not choices:
        raise BlockedError(
            "no MIG profiles are known for this node's GPUs",
            code="NO_TABLE",
            next_step="aliquot show",
            details=_products(capable),
        )
    devices = {choice.device for choice in choices}
    configs: dict[str, object] = {
        "all-disabled": [_entry(False, {}, None)],
        "all-enabled": [_entry(True, {}, None)],
    }
    for name in {choice.name for choice in choices}:
        configs[all_of(name)] = _all_of(name, choices, len(devices) > 1)
    balanced = _balanced(choices, len(devices) > 1)
    if balanced:
        configs["all-balanced"] = balanced
    return {"version": "v1", "mig-configs": {name: configs[name] for name in natural(configs)}}


def all_of(profile: str) -> str:
    """Return the name of the config that partitions every GPU into a profile: ``all-1g.5gb.me`` for ``1g.5gb+me``."""
    return f"all-{profile.replace('+', '.')}"


def _products(gpus: list[Gpu]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(gpu.product for gpu in gpus))


def _choices(inventory: Inventory, gpu: Gpu) -> list[_Choice]:
    device = device_type(gpu)
    if device == _A30:
        counts = _A30_COUNTS
    else:
        try:
            counts = {p.name: p.max_instances for p in inventory.family(gpu).profiles}
        except KeyError:
            return []
    parsed = {name: ProfileName.parse(name) for name in counts}
    return [_Choice(device, n, count, parsed[n].slices, not parsed[n].sign) for n, count in counts.items()]


def _entry(enabled: bool, instances: dict[str, int], devices: list[str] | None) -> Document:
    entry: Document = {} if devices is None else {"device-filter": devices}
    return entry | {"devices": "all", "mig-enabled": enabled, "mig-devices": instances}


def _all_of(name: str, choices: set[_Choice], filtered: bool) -> list[Document]:
    by_count: dict[int, list[str]] = {}
    for choice in choices:
        if choice.name == name:
            by_count.setdefault(choice.count, []).append(choice.device)
    return [_entry(True, {name: n}, sorted(by_count[n]) if filtered else None) for n in sorted(by_count)]


def _balanced(choices: set[_Choice], filtered: bool) -> list[Document]:
    entries = []
    for device in sorted({choice.device for choice in choices}):
        plain = [c for c in choices if c.device == device and c.plain]
        formula = _BALANCED.get(max((c.slices for c in plain), default=0), {})
        base: dict[int, _Choice] = {}
        for choice in sorted(plain, key=lambda c: (-c.count, c.name)):
            base.setdefault(choice.slices, choice)
        if formula and all(slices in base for slices in formula):
            instances = {base[slices].name: count for slices, count in formula.items()}
            ordered = {name: instances[name] for name in natural(instances)}
            entries.append(_entry(True, ordered, [device] if filtered else None))
    return entries
