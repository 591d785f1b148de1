"""Requests for instances as text: ``3g.20gb``, ``1c.3g.20gb``, ``id:19``, ``1g.5gb@6``, ``1g.5gb*7``."""

from __future__ import annotations

import msgspec

from aliquot.core.model.profile import ProfileName
from aliquot.foundation.decimals import decimal

MAX_COUNT = 128
"""More instances than any GPU can hold."""


class InstanceRequest(msgspec.Struct, frozen=True):
    """A request for ``count`` instances of a profile by name or, if ``profile_id`` is set, by id.

    ``compute``: the requested compute instances inside, empty for none. None means those that the name implies.
    """

    text: str
    line: int
    column: int
    name: ProfileName | None = None
    profile_id: int | None = None
    count: int = 1
    start: int | None = None
    size: int | None = None
    compute: tuple[InstanceRequest, ...] | None = None


def parse_instance_request(text: str, line: int, column: int, *, counted: bool = True) -> InstanceRequest:
    """Parse ``PROFILE[@START[:SIZE]][*COUNT]``, or ``PROFILE:COUNT`` as in printed geometries.

    ``counted`` False refuses a count. Raises ValueError with a sentence.
    """
    profile, star, count_text = text.partition("*")
    profile, at, place = profile.partition("@")
    if not at and not star:
        head, colon, tail = profile.rpartition(":")
        if colon and head != "id" and tail.isdigit():
            profile, star, count_text = head, "*", tail
    start, size = _placement(text, place) if at else (None, None)
    count = _count(text, count_text) if star else 1
    if star and not counted:
        raise ValueError(f"{text!r} must not have a count here")
    if start is not None and count != 1:
        raise ValueError(f"{text!r} requests {count} instances at one placement")
    if profile.startswith("id:"):
        profile_id = decimal(profile[3:])
        if profile_id is None:
            raise ValueError(f"{text!r}: a profile id is a number, for example id:19")
        return InstanceRequest(profile, line, column, None, profile_id, count, start, size)
    return InstanceRequest(profile, line, column, ProfileName.parse(profile), None, count, start, size)


def _placement(text: str, place: str) -> tuple[int, int | None]:
    start, colon, size = place.partition(":")
    first, length = decimal(start), decimal(size)
    if first is None or (colon and length is None):
        raise ValueError(f"{text!r}: after @ comes the first memory slice, for example 3g.20gb@4")
    return first, length


def _count(text: str, count: str) -> int:
    found = decimal(count)
    if found is None or not 0 < found <= MAX_COUNT:
        raise ValueError(f"{text!r}: the count must be a whole number from 1 to {MAX_COUNT}")
    return found
