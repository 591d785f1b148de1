"""Lines of gres.conf, slurm.conf and cgroup.conf for a set of Slurm nodes. Pure: inventories in, lines out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from aliquot.slurm.conf import hostlist
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files import node_line as nodeline
from aliquot.slurm.files.gres_conf import GresForm
from aliquot.slurm.files.job_devices import OfferedDevices
from aliquot.slurm.files.node_line import RenderedNodeLine

CGROUP_CONF = ("ConstrainDevices=yes",)
"""The lines of cgroup.conf that GPUs need; a site may have more. Without them every job can open every instance, and
only the number in CUDA_VISIBLE_DEVICES separates jobs. Needs ProctrackType=proctrack/cgroup and TaskPlugin=task/cgroup.
"""
_ANY = "\0"
"""Replaces a node's name while lines of several nodes are compared."""


class RenderedNode(msgspec.Struct, frozen=True):
    """A Slurm node: its line, its devices, and the form of its lines in gres.conf."""

    line: RenderedNodeLine
    offered: OfferedDevices
    form: GresForm = GresForm()

    @property
    def name(self) -> str:
        return self.line.name

    def gres_lines(self) -> tuple[str, ...]:
        """Return the node's lines in gres.conf. Raises as ``gres_conf.lines``."""
        return gres.lines(self.name, self.offered, self.form)


def gres_conf(nodes: Iterable[RenderedNode]) -> tuple[str, ...]:
    """Return the lines of gres.conf. Equal nodes share lines: ``n[1-4]``. Raises as ``gres_conf.lines``."""
    return tuple(
        line.replace(_ANY, names)
        for names, lines in _shared((r.name, gres.lines(_ANY, r.offered, r.form)) for r in nodes)
        for line in lines
    )


def node_lines(nodes: Iterable[RenderedNode]) -> tuple[str, ...]:
    """Return the node lines of slurm.conf; nodes with equal lines share one."""
    lines = ((r.name, (msgspec.structs.replace(r.line, name=_ANY).static(),)) for r in nodes)
    return tuple(line.replace(_ANY, names) for names, shared in _shared(lines) for line in shared)


def keys(nodes: Iterable[RenderedNode], task_prolog: str = "") -> tuple[str, ...]:
    """Return the keys of slurm.conf that the nodes need."""
    return nodeline.keys([r.offered for r in nodes], task_prolog)


def _shared(lines: Iterable[tuple[str, tuple[str, ...]]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield host lists with the lines that their nodes share, in the order of their first nodes."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, each in lines:
        groups.setdefault(each, []).append(name)
    for shared, names in groups.items():
        yield hostlist.compress(names), shared
