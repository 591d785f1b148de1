"""Rules for layouts as features: node_features/helpers, and CLOUD records of one host, of which one may be open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from aliquot.foundation.decimals import decimal
from aliquot.slurm.check.finding import CheckInput, NodeGroup, SlurmFinding, error, warning
from aliquot.slurm.client.models import Version
from aliquot.slurm.conf.counts import entries
from aliquot.slurm.conf.statements import Conf, ConfStatement
from aliquot.slurm.layouts import cloud_nodes as cloud
from aliquot.slurm.layouts import cloud_siblings as records
from aliquot.slurm.layouts import families

_NODES_SINCE = Version(23, 2)
_REBOOTLESS_SINCE = Version(24, 5)
_SIBLINGS = "aliquot slurm siblings"
SHORTEST_S = 60
"""Creating an instance takes seconds, and a helper that Slurm kills leaves the node DOWN. Slurm's default is 10."""


def changeable(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Check helpers.conf: the syntax for the release, the names of features, times, counts and the plugin."""
    if inputs.helpers is None:
        return
    for statement in inputs.helpers.headed("Feature", "NodeName"):
        yield from _form(inputs, statement)
        for name in features(statement):
            if not families.is_valid_feature(name):
                sentence = f"invalid feature name {name}: use a letter, _ or =, then letters, digits, _ . ="
                yield error("FEATURE_NAME", statement.location, sentence, f"use {families.encode_profile(name)}")
    yield from _times(inputs, inputs.helpers)
    yield from _counts(inputs, inputs.helpers)
    yield from _plugin(inputs, inputs.helpers)


def features(statement: ConfStatement) -> tuple[str, ...]:
    """Return the changeable features of a line of helpers.conf."""
    return tuple(filter(None, statement.get("Feature").split(",")))


def _form(inputs: CheckInput, statement: ConfStatement) -> Iterator[SlurmFinding]:
    version = inputs.version
    if version is None:
        return
    if version < _NODES_SINCE and statement.head.called("NodeName"):
        sentence = f"lines with NodeName= need Slurm 23.02, and this is {version}: Slurm cannot read the file"
        yield error("HELPERS_FORM", statement.location, sentence, "write Feature=NAME Helper=PROGRAM")
    elif version < _NODES_SINCE and "," in statement.get("Feature"):
        sentence = f"several features on a line need Slurm 23.02, and this is {version}: Slurm cannot read the file"
        yield error("HELPERS_FORM", statement.location, sentence, "write one Feature= per line")
    flags = statement.pair("Flags")
    if flags and version < _REBOOTLESS_SINCE:
        sentence = f"Flags={flags.value} needs Slurm 24.05, and this is {version}: every change reboots the node"
        fix = "remove it, and set RebootProgram= to a program that does not reboot"
        yield error("HELPERS_FORM", flags.location, sentence, fix)


def _times(inputs: CheckInput, conf: Conf) -> Iterator[SlurmFinding]:
    pair = conf.last("ExecTime")
    value = pair.value if pair else "10"
    seconds = decimal(value)
    if seconds is not None and seconds < SHORTEST_S and any(conf.headed("Feature", "NodeName")):
        setting = f"ExecTime={value}" if pair else "ExecTime is not set (10 seconds)"
        sentence = f"{setting}: a helper that partitions a GPU may take longer, and then the node is DOWN"
        location = pair.location if pair else inputs.file("helpers.conf")
        yield warning("EXEC_TIME", location, sentence, f"set ExecTime={SHORTEST_S}")


def _plugin(inputs: CheckInput, conf: Conf) -> Iterator[SlurmFinding]:
    """Report a missing plugin in slurm.conf, without which helpers.conf has no effect, and changeable features that are
    also static ones.
    """
    movable = {name for s in conf.headed("Feature", "NodeName") for name in features(s)}
    if inputs.slurm is None or not movable:
        return
    plugin = inputs.slurm.last("NodeFeaturesPlugins")
    if plugin is None or "helpers" not in plugin.value.lower():
        location = plugin.location if plugin else inputs.file("slurm.conf")
        sentence = "NodeFeaturesPlugins has no node_features/helpers: Slurm does not read helpers.conf"
        yield warning("NO_HELPERS_PLUGIN", location, sentence, "set NodeFeaturesPlugins=node_features/helpers")
    make = warning if inputs.version and inputs.version < _NODES_SINCE else error
    for line in inputs.node_lines:
        pair = line.pair("Feature", "Features")
        both = sorted(movable & set(line.features))
        if pair and both:
            sentence = f"a helper changes {', '.join(both)}, so Feature= must not list it"
            fix = "list only static features in Feature="
            yield make("FEATURE_STATIC", pair.location, f"{sentence}: the node will be INVALID", fix)


def _counts(inputs: CheckInput, conf: Conf) -> Iterator[SlurmFinding]:
    """Report features of one node that create different numbers of devices: Slurm compares counts, not layouts."""
    for statement in conf.headed("Feature", "NodeName", "MutuallyExclusive"):
        names = features(statement)
        if statement.head.called("MutuallyExclusive"):
            names = tuple(filter(None, statement.head.value.split(",")))
        numbers = {name: number for name in names if (number := devices(name))}
        if len(set(numbers.values())) > 1:
            words = ", ".join(f"{name} {number}" for name, number in numbers.items())
            sentence = f"these layouts have different numbers of devices ({words}): after a change the node is INVALID"
            fix = "use layouts with the same number of devices"
            yield error("FAMILY_COUNT", statement.location, sentence, fix, "aliquot slurm families")


def devices(feature: str) -> int:
    """Return the number of devices that a GPU has in the layout of a feature of ours (``mig_2x3g.20gb``), else 0."""
    if not feature.startswith(families.PREFIX):
        return 0
    parts = [part.partition("x") for part in feature.removeprefix(families.PREFIX).split("_")]
    fits = all(decimal(number) is not None and "g." in rest for number, _, rest in parts)
    return sum(int(number) for number, _, _ in parts) if fits else 0


def siblings(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Check CLOUD records.

    Records of one host have the same GPUs, so at most one may be open. slurmctld counts the devices of each record from
    gres.conf before any slurmd registers.
    """
    if inputs.slurm is None:
        return
    hosts = records.hosts_of(inputs.slurm)
    for host, names in _open_siblings(inputs, hosts).items():
        words = ", ".join(names)
        sentence = f"{words} are open records of one host ({host}): two jobs at once would start both"
        command = f'scontrol update nodename={names[1]} state=drain reason="{records.OURS}another layout is up"'
        location = inputs.line_of[names[1]].statement.location
        yield error("SIBLINGS_OPEN", location, sentence, "drain all but one", command)
    yield from _ports(inputs, hosts)
    for group in inputs.groups:
        for finding in _counted(inputs, group):
            yield msgspec.structs.replace(finding, nodes=group.names)


def _open_siblings(inputs: CheckInput, hosts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return records.breaches(records.groups(inputs.live.nodes, hosts)) if inputs.live else {}


def _ports(inputs: CheckInput, hosts: Mapping[str, str]) -> Iterator[SlurmFinding]:
    seen: dict[tuple[str, str], str] = {}
    for line in inputs.node_lines:
        for name in line.names if entries(line.get("Gres")) else ():
            address = hosts.get(name, ""), line.get("Port")
            if not address[0]:
                continue
            if address in seen and len(line.names) == 1:
                sentence = f"{name} and {seen[address]} have the same host and port: slurmctld mixes them up"
                yield error("SIBLINGS_PORT", line.statement.location, sentence, "give each record its own Port=")
            seen.setdefault(address, name)


def _counted(inputs: CheckInput, group: NodeGroup) -> Iterator[SlurmFinding]:
    """Report CLOUD records without ``File=``: slurmctld counts their devices by files, which need not exist."""
    pair = group.line.pair("Gres") if group.line and group.line.cloud else None
    if pair is None or not any(e.count for e in entries(pair.value)) or any(line.files for line in group.gres):
        return
    detect = inputs.autodetect(group.names[0])
    if detect and detect.value.lower() != "off":
        return  # AUTODETECT_CLOUD
    sentence = (
        f"Gres={pair.value} of a CLOUD record, but gres.conf has no line with File= for it: slurmctld counts 0, "
        "and the node is INVALID if it registers while a job waits"
    )
    fix = f"write lines with File={cloud.ABSENT}0 and so on until its layout is applied"
    yield error("CLOUD_NO_FILE", pair.location, sentence, fix, _SIBLINGS)
