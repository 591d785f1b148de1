"""Rules for counts and types: ``Gres=`` of slurm.conf against gres.conf, as slurmd and slurmctld compare them.

A node that registers fewer GPUs than slurm.conf says is INVALID and drained; surplus GPUs are ignored with a warning.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from aliquot.foundation.decimals import decimal
from aliquot.slurm.check import cores
from aliquot.slurm.check.devices import gres_accesses
from aliquot.slurm.check.finding import CheckInput, NodeGroup, SlurmFinding, SlurmRule, error, warning
from aliquot.slurm.client.models import Version
from aliquot.slurm.conf.counts import GresEntry, entries
from aliquot.slurm.conf.gres import GresLine
from aliquot.slurm.conf.statements import ConfPair
from aliquot.slurm.files.slot_board import PAD

MOST = 1024
_CASE_SINCE, _SEVERAL_SINCE = Version(23, 11), Version(21, 8)
_PROFILE = re.compile(r"(^|_)(\d+c\.)?\d+g\.\d+gb")
_APPLY = "aliquot slurm apply"


def written(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report counts that Slurm cannot read or that are too high, and mixed types."""
    for line in inputs.node_lines:
        pair = line.statement.pair("Gres")
        for entry in entries(pair.value) if pair else ():
            if pair and entry.error:
                yield error("BAD_COUNT", pair.location, f"Gres={entry.text}: {entry.error}", "gpu:TYPE:COUNT")
            elif pair and entry.count > MOST:
                sentence = f"Gres={entry.text}: Slurm limits it to {MOST} if there are device files"
                yield error("TOO_MANY", pair.location, sentence)
        if pair and len({bool(e.type) for e in entries(pair.value)}) > 1:
            sentence = f"Gres={pair.value}: some GPUs have a type and others none, so slurmd does not start"
            yield error("MIXED_TYPES", pair.location, sentence, "write a type for each, or for none")
    for gres_line in inputs.gpu_lines:
        yield from _counted(gres_line)
        yield from _several(inputs.version, gres_line)


def confused(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report types that Slurm takes for each other in a request, because it compares sums of their characters."""
    first: dict[int, str] = {}
    for line in inputs.node_lines:
        pair = line.statement.pair("Gres")
        for entry in entries(pair.value) if pair else ():
            other = first.setdefault(_type_id(entry.type), entry.type)
            if pair and other != entry.type:
                sentence = f"Slurm does not distinguish the types {entry.type} and {other}: jobs get either"
                fix = "give one of them a longer name, with its product"
                yield error("SAME_TYPE_ID", pair.location, sentence, fix, "aliquot slurm render --type-style full")


def _type_id(name: str) -> int:
    """Return what identifies a type in a request: the sum of its characters, each shifted by 8 bits more, modulo 32
    bits (``gres_build_id`` in src/interfaces/gres.c of Slurm 22.05 to 24.11).
    """
    return sum(ord(each) << position % 4 * 8 for position, each in enumerate(name)) % 2**32


def _counted(line: GresLine) -> Iterator[SlurmFinding]:
    """Report a ``Count=`` that is invalid, too high, or not the number of files."""
    pair = line.statement.pair("Count")
    have = len(line.devices)
    if pair is None:
        return
    if not re.fullmatch(r"\d{1,18}([kmgtp](i?b)?)?", pair.value, re.IGNORECASE | re.ASCII):
        yield error(
            "BAD_COUNT", line.location, f"Count={pair.value} is not a number: slurmd does not start", "remove Count="
        )
    elif have and pair.value != str(have):
        sentence = f"Count={pair.value}, but the line has {have} files: slurmd does not start"
        yield error("BAD_COUNT", line.location, sentence, "remove Count=")
    elif pair.value.isdigit() and int(pair.value) > MOST:
        yield error("TOO_MANY", line.location, f"Count={pair.value}: Slurm accepts at most {MOST}")


def _several(version: Version | None, line: GresLine) -> Iterator[SlurmFinding]:
    """Report invalid uses of ``MultipleFiles=``."""
    if not line.statement.pair("MultipleFiles"):
        return
    if version and version < _SEVERAL_SINCE:
        sentence = f"MultipleFiles needs Slurm 21.08, and this is {version}: slurmd does not start"
        yield error("OLD_SLURM", line.location, sentence, "offer only whole GPUs, or upgrade Slurm")
    if line.statement.pair("File", "Files"):
        yield error("TWO_FILES", line.location, "File and MultipleFiles exclude each other: slurmd does not start")
    if line.multiple and len(line.files) == 1:
        sentence = "MultipleFiles with one file: slurmd does not start"
        yield error("ONE_FILE", line.location, sentence, "use File= for a whole GPU; a MIG device has three files")


def compared(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Compare gres.conf with slurm.conf for each node."""
    for group in inputs.groups:
        for finding in (*_mixed_lines(group), *cores.beyond(group), *_against(inputs, group)):
            yield msgspec.structs.replace(finding, nodes=group.names)


def _mixed_lines(group: NodeGroup) -> Iterator[SlurmFinding]:
    """Report keys that only some lines of a node have, and Flags that differ: slurmd does not start."""
    types, files = [bool(g.type) for g in group.gres], [bool(g.files) for g in group.gres]
    mixed: tuple[tuple[SlurmRule, str, list[bool]], ...] = (
        ("MIXED_TYPES", "Type", types),
        ("MIXED_FILES", "File", files),
    )
    for rule, key, have in mixed:
        if len(set(have)) > 1:
            odd = group.gres[have.index(not have[0])]
            first = group.gres[0].location.line
            sentence = f"only one of this line and line {first} has {key}=: slurmd does not start"
            yield error(rule, odd.location, sentence, f"write {key}= on every line, or on none")
    flags = {g.statement.get("Flags").lower(): g for g in reversed(group.gres) if g.statement.pair("Flags")}
    if len(flags) > 1:
        earlier, other = sorted(g.location for g in flags.values())[:2]
        sentence = f"this line and line {earlier.line} have different Flags=: slurmd does not start"
        yield error("FLAGS_DIFFER", other, sentence, "use the same Flags= on every line")


def _against(inputs: CheckInput, group: NodeGroup) -> Iterator[SlurmFinding]:
    if group.line is None:
        return
    pair = group.line.pair("Gres")
    wanted = entries(pair.value) if pair else ()
    if group.line.cloud and not any(line.files for line in group.gres):
        return  # CLOUD_NO_FILE reports this
    if inputs.gres is None:
        if pair and any(e.count for e in wanted):
            sentence = f"Gres={pair.value}, but gres.conf is missing: the node will be INVALID and drained"
            yield error("NO_GRES_CONF", pair.location, sentence, "", _APPLY)
        return
    detect = inputs.autodetect(group.names[0])
    mixed = len({bool(e.type) for e in wanted}) > 1
    if mixed or any(e.error for e in wanted) or (detect and detect.value.lower() != "off"):
        return
    have = Counter({"": 0})
    for line in group.gres:
        have[line.type] += len(line.devices) or _number(line)
    if pair and wanted and not wanted[0].type:
        yield from _totals(pair, sum(e.count for e in wanted), sum(have.values()))
    elif pair and wanted:
        yield from _whole_and_mig(pair, wanted, group)
        yield from _by_type(inputs.version, pair, wanted, have)
    yield from _unused(group, wanted, have)


def _number(line: GresLine) -> int:
    count = line.statement.get("Count", default="1")
    number = decimal(count, 18)
    return 1 if number is None else number


def _totals(pair: ConfPair, want: int, have: int) -> Iterator[SlurmFinding]:
    if have < want:
        sentence = f"Gres={pair.value} says {want} GPUs, gres.conf has {have}: the node will be INVALID and drained"
        yield error("COUNT_MISMATCH", pair.location, sentence, f"use Gres=gpu:{have}", _APPLY)
    elif have > want:
        sentence = f"Gres={pair.value} says {want} GPUs, gres.conf has {have}: the others are ignored"
        yield warning("EXTRA_DEVICES", pair.location, sentence, f"use Gres=gpu:{have}", _APPLY)


def _by_type(
    version: Version | None, pair: ConfPair, wanted: tuple[GresEntry, ...], have: Counter[str]
) -> Iterator[SlurmFinding]:
    want: Counter[str] = Counter()
    for entry in wanted:
        want[entry.type] += entry.count
    for kind, number in want.items():
        twin = next((t for t in have if t != kind and t.lower() == kind.lower()), None)
        if have[kind] < number and twin is not None:
            sentence = f"Gres={pair.value} says {kind}, gres.conf says {twin}"
            make = warning if version and version < _CASE_SINCE else error
            sentence += ": from 23.11 on the node will be INVALID"
            yield make("TYPE_CASE", pair.location, sentence, f"use gpu:{twin}:{number}")
        elif have[kind] < number:
            lines = f"{have[kind]} of them" if have[kind] else "no line of that type"
            sentence = f"Gres={pair.value} says {number} {kind}, gres.conf has {lines}"
            sentence += ": the node will be INVALID and drained"
            yield error("COUNT_MISMATCH", pair.location, sentence, "count the lines of gres.conf", _APPLY)
        elif have[kind] > number:
            sentence = f"Gres={pair.value} says {number} {kind}, gres.conf has {have[kind]}: the others are ignored"
            yield warning("EXTRA_DEVICES", pair.location, sentence, f"use gpu:{kind}:{have[kind]}", _APPLY)


def _whole_and_mig(pair: ConfPair, wanted: tuple[GresEntry, ...], group: NodeGroup) -> Iterator[SlurmFinding]:
    """Report whole GPUs in ``Gres=`` that gres.conf only offers as MIG devices."""
    whole = [e for e in wanted if e.count and e.type != PAD and not _PROFILE.search(e.type)]
    mig = [e for e in wanted if e.count and _PROFILE.search(e.type)]
    every = [gres for line in group.gres for gres in gres_accesses(line)]
    sliced = {gpu for g in every if g.is_mig for gpu in (*g.gpus, *(c.gpu for c in g.capabilities))}
    free = {gpu for g in every if not g.is_mig for gpu in g.gpus} - sliced
    if whole and mig and len(free) < sum(e.count for e in whole):
        words = ", ".join(e.text for e in whole)
        sentence = f"Gres={pair.value} counts a GPU as whole ({words}) that it also counts as MIG devices"
        yield error("COUNTED_TWICE", pair.location, sentence, f"use Gres={','.join(e.text for e in mig)}", _APPLY)


def _unused(group: NodeGroup, wanted: tuple[GresEntry, ...], have: Counter[str]) -> Iterator[SlurmFinding]:
    """Report lines of types that the node's Gres= lacks."""
    kinds = {e.type.lower() for e in wanted}
    if wanted and not wanted[0].type:
        return
    for line in group.gres:
        if line.type.lower() not in kinds:
            reason = f"Gres= of the node has no {line.type}" if wanted else "the node has no gpu in Gres="
            yield warning("EXTRA_DEVICES", line.location, f"{reason}: this line is ignored", "", _APPLY)
