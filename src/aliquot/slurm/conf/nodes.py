"""The nodes of a slurm.conf: which line configures a node, and what it inherits from ``NodeName=DEFAULT``."""

from __future__ import annotations

import msgspec

from aliquot.slurm.conf import hosts
from aliquot.slurm.conf.statements import Conf, ConfPair, ConfStatement


class ConfiguredNodeLine(msgspec.Struct, frozen=True):
    """A node line, for every node that it names. ``inherited`` are the pairs of DEFAULT lines above it."""

    names: tuple[str, ...]
    statement: ConfStatement
    inherited: tuple[ConfPair, ...] = ()

    def pair(self, *keys: str) -> ConfPair | None:
        """The pair that counts for these nodes; it may stand on a DEFAULT line."""
        own = self.statement.pair(*keys)
        return own or next((p for p in reversed(self.inherited) if p.called(*keys)), None)

    def get(self, *keys: str, default: str = "") -> str:
        """Its value."""
        found = self.pair(*keys)
        return found.value if found else default

    @property
    def cloud(self) -> bool:
        """Whether power saving starts and stops these nodes."""
        return self.get("State").upper() == "CLOUD"

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(filter(None, self.get("Feature", "Features").split(",")))


def node_lines(conf: Conf) -> tuple[ConfiguredNodeLine, ...]:
    """Every node line of a slurm.conf, in order, DEFAULT lines left out. A list of names that Slurm cannot read either
    is taken as one name.
    """
    found: list[ConfiguredNodeLine] = []
    inherited: tuple[ConfPair, ...] = ()
    for statement in conf.headed("NodeName"):
        if statement.head.value.upper() == "DEFAULT":
            inherited += statement.pairs[1:]
            continue
        found.append(ConfiguredNodeLine(hosts.expand_leniently(statement.head.value), statement, inherited))
    return tuple(found)


def node_line(conf: Conf, name: str) -> ConfiguredNodeLine | None:
    """The line that configures a node; None for one that slurm.conf does not name (a dynamic one, or unknown)."""
    return next((line for line in node_lines(conf) if name in line.names), None)
