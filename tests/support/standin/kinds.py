"""The kinds of the server. The built-in ones are as recorded from a real server (``tests/recorded/kube-apiserver``)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

JSON = dict[str, Any]
RECORDED = Path(__file__).resolve().parents[2] / "recorded" / "kube-apiserver"
UNRECORDED = Path(__file__).with_name("unrecorded.json")
"""Kinds that are missing in the last recording."""


class Subresource(msgspec.Struct, frozen=True):
    """A subresource such as ``.../{name}/status``. Group and version are empty if they are the parent's."""

    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


class Column(msgspec.Struct, frozen=True):
    """A column of ``kubectl get``. Only custom resources have ``path``, a JSONPath."""

    name: str
    type: str
    format: str = ""
    priority: int = 0
    path: str = ""
    description: str = ""


class Kind(msgspec.Struct, frozen=True):
    """A version of a kind."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: dict[str, Subresource] = {}
    schema: str = ""
    columns: tuple[Column, ...] = ()
    custom: JSON | None = None
    """The version's entry in the CustomResourceDefinition; None for a built-in kind."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def bucket(self) -> str:
        """The bucket in the store: all versions together, and events once for both their groups."""
        return "events" if self.plural == "events" else f"{self.plural}.{self.group}"


@cache
def builtin() -> tuple[Kind, ...]:
    """Return the recorded kinds, and those of UNRECORDED that the recording lacks."""
    rows = _read(RECORDED / "kinds.json")["kinds"]
    known = {(row["group"], row["plural"]) for row in rows}
    rows += [row for row in _read(UNRECORDED)["kinds"] if (row["group"], row["plural"]) not in known]
    return tuple(msgspec.convert(row, Kind) for row in rows)


@cache
def schemas() -> JSON:
    """Return the recorded schemas, by name, and those of UNRECORDED."""
    found: JSON = _read(UNRECORDED)["schemas"] | _read(RECORDED / "schemas.json")["schemas"]
    return found


def _read(file: Path) -> JSON:
    found: JSON = msgspec.json.decode(file.read_bytes())
    return found


class Kinds:
    """The table in which paths are looked up. Custom resources come and go."""

    def __init__(self) -> None:
        self._builtin = {(k.group, k.version, k.plural): k for k in builtin()}
        self._custom: dict[tuple[str, str, str], Kind] = {}

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        key = (group, version, plural)
        return self._builtin.get(key) or self._custom.get(key)

    def all(self) -> list[Kind]:
        return [*self._builtin.values(), *self._custom.values()]

    def of(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind of an object."""
        return next((k for k in self.all() if k.api_version == api_version and k.kind == kind), None)

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of each group."""
        found: dict[str, list[str]] = {}
        for kind in self.all():
            versions = found.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        return found

    def replace_custom(self, kinds: list[Kind]) -> None:
        self._custom = {(k.group, k.version, k.plural): k for k in kinds}
