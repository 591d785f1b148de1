"""Slurm's configuration files, read as Slurm itself reads them: slurm.conf, gres.conf, cgroup.conf, helpers.conf."""

from aliquot.slurm.conf.files import read, text_of
from aliquot.slurm.conf.nodes import ConfiguredNodeLine, node_line, node_lines
from aliquot.slurm.conf.parser import Read, parse
from aliquot.slurm.conf.statements import (
    Conf,
    ConfDiagnostic,
    ConfLocation,
    ConfPair,
    ConfSource,
    ConfStatement,
    replaced,
)

__all__ = [
    "Conf",
    "ConfDiagnostic",
    "ConfLocation",
    "ConfPair",
    "ConfSource",
    "ConfStatement",
    "ConfiguredNodeLine",
    "Read",
    "node_line",
    "node_lines",
    "parse",
    "read",
    "replaced",
    "text_of",
]
