"""Lines of gres.conf: the nodes that a line is for, and the device files that it offers to jobs."""

from __future__ import annotations

import msgspec

from aliquot.slurm.conf.hosts import expand_leniently
from aliquot.slurm.conf.statements import Conf, ConfLocation, ConfPair, ConfStatement


class GresLine(msgspec.Struct, frozen=True):
    """A line that offers a GRES."""

    statement: ConfStatement
    name: str
    nodes: tuple[str, ...] | None = None
    """None for a line for every node."""
    files: tuple[str, ...] = ()
    multiple: bool = False
    """Whether all files are one GRES (``MultipleFiles``); otherwise each file is a GRES."""

    @property
    def location(self) -> ConfLocation:
        return self.statement.location

    @property
    def type(self) -> str:
        return self.statement.get("Type")

    @property
    def gpu(self) -> bool:
        return self.name.lower() == "gpu"

    @property
    def devices(self) -> tuple[tuple[str, ...], ...]:
        """The files of each GRES of this line."""
        if self.multiple:
            return (self.files,) if self.files else ()
        return tuple((file,) for file in self.files)

    def serves(self, node: str) -> bool:
        """Report whether the line applies to a node."""
        return self.nodes is None or node in self.nodes


def gres_lines(conf: Conf) -> tuple[GresLine, ...]:
    """Return every line with a name, in order; lines with only AutoDetect are omitted."""
    found: list[GresLine] = []
    for statement in conf.headed("Name", "NodeName"):
        name = statement.get("Name")
        if not name:
            continue
        files = statement.pair("MultipleFiles") or statement.pair("File", "Files")
        nodes = statement.head.value if statement.head.called("NodeName") else None
        found.append(
            GresLine(
                statement,
                name,
                None if nodes is None else expand_leniently(nodes),
                expand_leniently(files.value) if files else (),
                bool(files and files.called("MultipleFiles")),
            )
        )
    return tuple(found)


def detections(conf: Conf) -> dict[str, ConfPair]:
    """Return the ``AutoDetect`` of each node that has its own.

    For other nodes, that of the whole file is in effect, if there is one: ``conf.last("AutoDetect")``.
    """
    found: dict[str, ConfPair] = {}
    for statement in conf.headed("NodeName"):
        if pair := statement.pair("AutoDetect"):
            for name in expand_leniently(statement.head.value):
                found.setdefault(name, pair)
    return found
