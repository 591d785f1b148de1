"""Rules for ``Cores=``, the cores near a GPU, which Slurm numbers in its own way."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aliquot.foundation.decimals import decimal
from aliquot.slurm.check.finding import NodeGroup, SlurmFinding, error
from aliquot.slurm.conf.nodes import ConfiguredNodeLine
from aliquot.slurm.gpus.cores import members

_LIST = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", re.ASCII)
_RENDER = "aliquot slurm render --part gres"


def beyond(group: NodeGroup) -> Iterator[SlurmFinding]:
    """Report cores that the node does not have.

    Observed behavior: 22.05 ignores all cores of the line and only logs it; with 24.11 the node becomes INVALID. Both
    read anything that is not a number as core 0.
    """
    have = count(group.line) if group.line else 0
    for line in group.gres:
        pair = line.statement.pair("Cores", "CPUs")
        if pair is None or pair.value.upper() == "ALL":
            continue
        value = pair.value.strip("[]")
        if not _LIST.fullmatch(value):
            sentence = f"{pair.key}={pair.value} is not a list of cores: Slurm reads it as core 0"
            yield error("BAD_CORES", line.location, sentence, "Cores=0-7,16", _RENDER)
            continue
        invalid = [n for n in members(value) if n >= have]
        if have and invalid:
            sentence = (
                f"{pair.key}={pair.value}: slurm.conf gives the node {have} cores (0 to {have - 1}), so the node "
                "will be INVALID (22.05 ignores all cores of the line)"
            )
            yield error("BAD_CORES", line.location, sentence, "use Slurm's numbers of cores, not of threads", _RENDER)


def count(line: ConfiguredNodeLine) -> int:
    """Return the number of cores of a node according to its line in slurm.conf, or 0 if the line does not say.

    If the line gives no sockets, they are inferred from CPUs, as Slurm does (slurm.conf(5)).
    """
    sockets = _number(line, "Sockets") or _number(line, "SocketsPerBoard") * (_number(line, "Boards") or 1)
    each = _number(line, "CoresPerSocket")
    if sockets:
        return sockets * each
    each = each or 1
    return _number(line, "CPUs", "Procs") // (each * (_number(line, "ThreadsPerCore") or 1)) * each


def _number(line: ConfiguredNodeLine, *keys: str) -> int:
    return decimal(line.get(*keys), 6) or 0
