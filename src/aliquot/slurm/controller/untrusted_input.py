"""Validation of a node's answer.

A broken or compromised node must not stop the controller, exhaust its memory, or inject text into its requests to
Slurm.
"""

from __future__ import annotations

import itertools
import re
from threading import Lock

import msgspec
from msgspec.structs import replace

from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.ids import pci_address
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.node_layout import all_placements
from aliquot.core.planner.placement_table import compiled_table
from aliquot.slurm.controller.layout_gpus import profiles_by_type, searchable_gpus
from aliquot.slurm.controller.settings import Rules

GPUS, PROFILES, SLICES = 64, 128, 64
STATES = 5_000
"""Limit of placed geometries of one GPU. The maximum of current GPUs is 2,318."""
TABLES = 256
"""Limit of different geometry tables in one controller: each is compiled once, and kept."""

_TYPE = re.compile(r"[A-Za-z0-9_.+-]{1,128}", re.ASCII)
_known: dict[bytes, Family] = {}
_alone = Lock()

msgspec.convert({"node": "", "gpus": []}, Inventory)
"""At import, because msgspec prepares a type at its first use, and two threads that do so at the same time crash the
process (0.22).
"""


class InvalidInventoryError(ValueError):
    """The inventory is impossible."""


def validate_inventory(answer: object) -> Inventory:
    """Return an inventory that the controller can work with.

    Raises InvalidInventoryError, msgspec.ValidationError. A lock serializes calls, because tables are compiled and
    cached on the way.
    """
    with _alone:
        return _validated(msgspec.convert(answer, Inventory))


def _validated(found: Inventory) -> Inventory:
    _require(len(found.gpus) <= GPUS, f"it reports {len(found.gpus)} GPUs")
    _require(len(found.tables) <= GPUS, f"it has {len(found.tables)} geometry tables")
    found = replace(found, tables=tuple(map(_table, found.tables)))
    for gpu in found.gpus:
        try:
            right = pci_address(gpu.pci) == gpu.pci
        except ValueError:
            right = False
        _require(right, f"{gpu.pci[:40]!r} is not a PCI address")
        _require(len(gpu.instances) <= SLICES, f"a GPU has {len(gpu.instances)} instances")
    try:
        _require(len({g.pci for g in found.gpus}) == len(found.gpus), "two of its GPUs have the same PCI address")
        kinds = [kind for searchable in searchable_gpus(found, (), Rules(), "short") for kind in searchable.kinds]
        for kind in (*kinds, *profiles_by_type(found, "short")):
            _require(_TYPE.fullmatch(kind) is not None, f"{kind[:40]!r} is not a valid GRES type")
    except InvalidInventoryError:
        raise
    except Exception as error:  # untrusted data can be wrong in any way
        raise InvalidInventoryError(f"its GPUs are invalid: {type(error).__name__}: {error}") from error
    return found


def _table(family: Family) -> Family:
    """Validate a geometry table. Returns the first of equal tables, because each is compiled once."""
    key = msgspec.json.encode(family)
    known = _known.get(key)
    if known is not None:
        return known
    _require(len(_known) < TABLES, f"it has a new geometry table, but the limit of {TABLES} is reached")
    _require(0 < family.memory_slices <= SLICES, f"a table has {family.memory_slices} memory slices")
    _require(0 < len(family.profiles) <= PROFILES, f"a table has {len(family.profiles)} profiles")
    for profile in family.profiles:
        _profile(profile, family)
    few = sum(1 for _ in itertools.islice(all_placements(compiled_table(family)), STATES + 1))
    _require(few <= STATES, f"a table has more than {STATES} layouts")
    _known[key] = family
    return family


def _profile(profile: Profile, family: Family) -> None:
    _require(_TYPE.fullmatch(profile.name) is not None, f"{profile.name[:40]!r} is not a profile")
    ends = [start + profile.size for start in profile.starts]
    fits = profile.size > 0 and all(0 <= s <= SLICES for s in profile.starts) and len(ends) <= SLICES
    _require(fits and all(end <= family.memory_slices for end in ends), f"{profile.name} does not fit on the GPU")
    _require(0 <= profile.max_instances <= SLICES, f"{profile.name} allows {profile.max_instances} instances")
    _require(any(c.default for c in profile.compute), f"{profile.name} has no compute instance that fills it")


def _require(true: bool, sentence: str) -> None:
    if not true:
        raise InvalidInventoryError(sentence)
