"""A JSON document of Slurm, parsed by the reader of its version."""

from __future__ import annotations

import re
from types import ModuleType

import msgspec

from aliquot.slurm.client.errors import OldSlurmError, RefusedError
from aliquot.slurm.client.json_versions import v0036 as plain
from aliquot.slurm.client.json_versions import v0039 as wrapped
from aliquot.slurm.client.json_versions import v0045 as later
from aliquot.slurm.client.json_versions.coerce import Raw, inner, number, objects, text, words
from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition, SlurmReservation, Version
from aliquot.slurm.conf import hostlist

OLDEST, NEWEST = 36, 46
"""The supported versions: v0.0.36 (Slurm 21.08) to v0.0.46 (26.11)."""


class SlurmDocument:
    """A response or an output of Slurm. Raises RefusedError for data that is not a JSON object.

    Each document names its version. A newer version than ``NEWEST`` is read as that one, because Slurm adds more fields
    than it removes.
    """

    def __init__(self, data: bytes | str, purpose: str, shape: int = 0) -> None:
        try:
            raw = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
            raise RefusedError(f"cannot {purpose}: Slurm's response is not JSON", details=(str(broken),)) from None
        if not isinstance(raw, dict):
            raise RefusedError(f"cannot {purpose}: Slurm's response is JSON, but not an object")
        self.raw: Raw = raw
        self._shape = shape_of(raw) or shape
        if 0 < self._shape < OLDEST:
            raise OldSlurmError(
                f"cannot {purpose}: Slurm's JSON is v0.0.{self._shape}, and Aliquot needs v0.0.{OLDEST} or later"
            )
        self._reader = _reader(self._shape or NEWEST)

    def nodes(self) -> tuple[SlurmNode, ...]:
        return tuple(self._reader.node(each) for each in objects(self.raw.get("nodes")))

    def jobs(self) -> tuple[SlurmJob, ...]:
        return tuple(self._reader.job(each) for each in objects(self.raw.get("jobs")))

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return tuple(self._reader.partition(each) for each in objects(self.raw.get("partitions")))

    def reservations(self) -> tuple[SlurmReservation, ...]:
        """Return the reservations, which have the same fields in every version."""
        return tuple(
            SlurmReservation(
                text(each.get("name")),
                hostlist.expand(text(each.get("node_list"))),
                words(each.get("flags")),
                number(each.get("start_time")),
                number(each.get("end_time")),
            )
            for each in objects(self.raw.get("reservations"))
        )

    def version(self) -> Version | None:
        """Return the release that wrote the document, or None."""
        meta = inner(self.raw, "meta")
        release = inner(inner(meta, "slurm") or inner(meta, "Slurm"), "version")
        numbers = [_whole(release.get(key)) for key in ("major", "minor", "micro")]
        return Version(*numbers) if numbers[0] else None

    def errors(self) -> tuple[str, ...]:
        """Return Slurm's error messages in the document."""
        found = []
        for each in objects(self.raw.get("errors")):
            words = [text(each.get(key)) for key in ("description", "error")]
            found.append(": ".join(w for w in words if w) or f"error {number(each.get('error_number'))}")
        return tuple(found)


def shape_of(raw: Raw) -> int:
    """Return the NN of v0.0.NN that a document names, or 0 if it names none."""
    plugin = inner(inner(raw, "meta"), "plugin")
    for key in ("data_parser", "type"):
        found = re.search(r"v0\.0\.(\d+)", text(plugin.get(key)))
        if found:
            return int(found[1])
    return 0


def _reader(shape: int) -> ModuleType:
    if shape <= 38:
        return plain
    return wrapped if shape <= 44 else later


def _whole(value: object) -> int:
    """Parse a number that some versions write as text."""
    return int(value) if isinstance(value, str) and value.isdigit() else number(value)
