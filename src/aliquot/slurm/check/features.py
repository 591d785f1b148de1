"""Rules for the features that a site's own program changes (node_features/helpers), and for CLOUD nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from aliquot.foundation.decimals import decimal
from aliquot.slurm.check.finding import CheckInput, NodeGroup, SlurmFinding, error, warning
from aliquot.slurm.client.models import Version
from aliquot.slurm.conf.counts import entries
from aliquot.slurm.conf.statements import Conf, ConfStatement

_NODES_SINCE = Version(23, 2)
_REBOOTLESS_SINCE = Version(24, 5)
_FEATURE = re.compile(r"[A-Za-z_=][A-Za-z0-9_.=]*")
_LAYOUT = "mig_"
"""The beginning of features that name the layout of a GPU: ``mig_2x3g.20gb``."""
SHORTEST_S = 60
"""Creating an instance takes seconds, and a helper that Slurm kills leaves the node DOWN. Slurm's default is 10."""


def changeable(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Check helpers.conf: the syntax for the release, the names of features, times, counts and the plugin."""
    if inputs.helpers is None:
        return
    for statement in inputs.helpers.headed("Feature", "NodeName"):
        yield from _form(inputs, statement)
        for name in features(statement):
            if not _FEATURE.fullmatch(name):
                sentence = f"invalid feature name {name}: use a letter, _ or =, then letters, digits, _ . ="
                yield error("FEATURE_NAME", statement.location, sentence, f"use {re.sub('[^A-Za-z0-9_.=]', '.', name)}")
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
            yield error("FAMILY_COUNT", statement.location, sentence, fix)


def devices(feature: str) -> int:
    """Return the number of devices that a GPU has in the layout of a feature (``mig_2x3g.20gb``), else 0."""
    if not feature.startswith(_LAYOUT):
        return 0
    parts = [part.partition("x") for part in feature.removeprefix(_LAYOUT).split("_")]
    fits = all(decimal(number) is not None and "g." in rest for number, _, rest in parts)
    return sum(int(number) for number, _, _ in parts) if fits else 0


def cloud(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Check CLOUD nodes: slurmctld counts their devices from gres.conf before any slurmd registers."""
    for group in inputs.groups if inputs.slurm else ():
        for finding in _counted(inputs, group):
            yield msgspec.structs.replace(finding, nodes=group.names)


def _counted(inputs: CheckInput, group: NodeGroup) -> Iterator[SlurmFinding]:
    """Report CLOUD nodes without ``File=``: slurmctld counts their devices by files, which need not exist."""
    pair = group.line.pair("Gres") if group.line and group.line.cloud else None
    if pair is None or not any(e.count for e in entries(pair.value)) or any(line.files for line in group.gres):
        return
    detect = inputs.autodetect(group.names[0])
    if detect and detect.value.lower() != "off":
        return  # AUTODETECT_CLOUD
    sentence = (
        f"Gres={pair.value} of a CLOUD node, but gres.conf has no line with File= for it: slurmctld counts 0, "
        "and the node is INVALID if it registers while a job waits"
    )
    fix = "write a line with File= for each device"
    yield error("CLOUD_NO_FILE", pair.location, sentence, fix)
