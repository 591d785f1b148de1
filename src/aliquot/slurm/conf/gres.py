"""gres.conf as records: which nodes a line is for, and the device files that it hands to jobs."""

from __future__ import annotations

import msgspec

from aliquot.slurm.conf.hosts import expand_leniently
from aliquot.slurm.conf.statements import Conf, ConfLocation, ConfPair, ConfStatement


class GresLine(msgspec.Struct, frozen=True):
    """A line that offers something. ``nodes`` is None for a line of every node. ``multiple`` says that all its files
    are one GRES (``MultipleFiles``); otherwise each file is one by itself.
    """

    statement: ConfStatement
    name: str
    nodes: tuple[str, ...] | None = None
    files: tuple[str, ...] = ()
    multiple: bool = False

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
        """Whether it is a line of that node."""
        return self.nodes is None or node in self.nodes


def gres_lines(conf: Conf) -> tuple[GresLine, ...]:
    """Every line with a name, in order; those that only say AutoDetect are not among them."""
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
    """The ``AutoDetect`` that nodes have of their own. For all others that of the whole file holds, if there is one:
    ``conf.last("AutoDetect")``.
    """
    found: dict[str, ConfPair] = {}
    for statement in conf.headed("NodeName"):
        if pair := statement.pair("AutoDetect"):
            for name in expand_leniently(statement.head.value):
                found.setdefault(name, pair)
    return found
