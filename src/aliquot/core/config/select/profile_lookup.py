"""Profile names in geometry tables: the meaning of a request on a GPU, and the families that have a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec

from aliquot.core.config.text.instance_request import InstanceRequest
from aliquot.core.model import catalog
from aliquot.core.model.catalog import ComputeProfile, Family, Profile
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.profile import ProfileName


class ProfileMatch(msgspec.Struct, frozen=True):
    """The requested GPU instance profile, and the compute instance profile inside it."""

    profile: Profile
    compute: ComputeProfile


def match_profile(family: Family, request: InstanceRequest) -> ProfileMatch | None:
    """Return the profile that a request means on GPUs of a family; None if they have none. Names compare by their
    parts, so that ``01g.5gb`` and ``1c.1g.5gb`` are ``1g.5gb``. Of several compute profiles of one size the first
    counts, as in mig-parted.
    """
    if request.name is None:
        by_id = family.by_id.get(-1 if request.profile_id is None else request.profile_id)
        return ProfileMatch(by_id, by_id.default_compute) if by_id else None
    exact = family.by_name.get(request.text)
    if exact is not None:
        return ProfileMatch(exact, exact.default_compute)
    instance = request.name.instance
    profile = next((p for text, p in family.by_name.items() if _parsed(text) == instance), None)
    if profile is None:
        return None
    if request.name.compute == request.name.slices:
        return ProfileMatch(profile, profile.default_compute)
    smaller = (c for c in profile.compute if c.compute_slices == request.name.compute)
    compute = next(smaller, None)
    return ProfileMatch(profile, compute) if compute else None


def _parsed(text: str) -> ProfileName | None:
    """Parse a table's own name; None for a spelling that a newer driver introduced."""
    try:
        return ProfileName.parse(text)
    except ValueError:
        return None


def tables(inventory: Inventory) -> Iterator[Family]:
    """Return every geometry table: those that the driver reported, then the catalog."""
    yield from inventory.tables
    for name in catalog.family_names():
        yield catalog.family(name)


def profile_exists(inventory: Inventory, request: InstanceRequest) -> bool:
    """Report whether any known GPU has the profile."""
    return any(match_profile(table, request) for table in tables(inventory))


def families_with_profile(inventory: Inventory, request: InstanceRequest) -> tuple[str, ...]:
    """Return the titles of the families that have the profile."""
    titles = [table.title for table in tables(inventory) if match_profile(table, request)]
    return tuple(dict.fromkeys(titles))


def names_of_gpus(inventory: Inventory, gpus: Iterable[Gpu]) -> list[str]:
    """Return the names of GPU instance profiles that some GPUs of a node have."""
    found: set[str] = set()
    for gpu in gpus:
        with suppress(KeyError):
            found |= {p.name for p in inventory.family(gpu).profiles}
    return sorted(found)


def profile_names(family: Family) -> list[str]:
    """Return the names that can be requested of a family, including compute instance names."""
    whole = [p.name for p in family.profiles]
    return whole + [c.name for p in family.profiles for c in p.compute if c.name not in whole]
