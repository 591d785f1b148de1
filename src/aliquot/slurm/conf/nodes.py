"""Node lines of slurm.conf: the line that configures a node, and what it inherits from ``NodeName=DEFAULT``."""

from __future__ import annotations

import msgspec

from aliquot.slurm.conf import hosts
from aliquot.slurm.conf.statements import Conf, ConfPair, ConfStatement


class ConfiguredNodeLine(msgspec.Struct, frozen=True):
    """A node line, for every node that it names."""

    names: tuple[str, ...]
    statement: ConfStatement
    inherited: tuple[ConfPair, ...] = ()
    """The pairs of the DEFAULT lines above it."""

    def pair(self, *keys: str) -> ConfPair | None:
        """Return the pair in effect for these nodes, or None. It may come from a DEFAULT line."""
        own = self.statement.pair(*keys)
        return own or next((p for p in reversed(self.inherited) if p.called(*keys)), None)

    def get(self, *keys: str, default: str = "") -> str:
        """Return the value of the pair in effect, or the default."""
        found = self.pair(*keys)
        return found.value if found else default

    @property
    def cloud(self) -> bool:
        """True if power saving starts and stops these nodes."""
        return self.get("State").upper() == "CLOUD"

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(filter(None, self.get("Feature", "Features").split(",")))


def node_lines(conf: Conf) -> tuple[ConfiguredNodeLine, ...]:
    """Return every node line of slurm.conf in order, without DEFAULT lines. An invalid host list counts as one name."""
    found: list[ConfiguredNodeLine] = []
    inherited: tuple[ConfPair, ...] = ()
    for statement in conf.headed("NodeName"):
        if statement.head.value.upper() == "DEFAULT":
            inherited += statement.pairs[1:]
            continue
        found.append(ConfiguredNodeLine(hosts.expand_leniently(statement.head.value), statement, inherited))
    return tuple(found)


def node_line(conf: Conf, name: str) -> ConfiguredNodeLine | None:
    """Return the line that configures a node, or None if slurm.conf does not name it (dynamic or unknown)."""
    return next((line for line in node_lines(conf) if name in line.names), None)
