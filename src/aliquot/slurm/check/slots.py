"""Rules for slot boards: the file by which slurmd sorts their records, and requests that could get a pad."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aliquot.slurm.check.finding import CheckInput, NodeGroup, SlurmFinding, error, warning
from aliquot.slurm.conf.gres import GresLine
from aliquot.slurm.files.slot_board import ORDER_FILE, PAD, is_marker

_WRITE_TYPES = "aliquot slurm types --list --out /etc/slurm/aliquot-types"
_SUBMIT = ("JobSubmitPlugins", "CliFilterPlugins")


def is_pad(line: GresLine) -> bool:
    """Report whether a line is a pad of a slot board."""
    return line.type == PAD and any(map(is_marker, line.files[:1]))


def order(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report a slot board whose records slurmd sorts by type, and other nodes whose records it sorts by file.

    Slurm counts a running job at the index of its record, so a slurmd that starts in the other order mixes up jobs.
    """
    location = inputs.file(ORDER_FILE)
    for group in inputs.groups:
        board = any(map(is_pad, group.gres))
        if board and inputs.order_file != "":
            state = "does not exist" if inputs.order_file is None else "is not empty"
            sentence = f"{ORDER_FILE} {state}: a slurmd that starts now numbers the slots of the node by type"
            fix = "write an empty file before slurmd starts again"
            found = error("SLOT_ORDER", location, sentence, fix, f": > {location.file}")
        elif not board and inputs.order_file == "" and (effect := _effect(inputs, group)):
            sentence = f"{ORDER_FILE} exists, but the node is not a slot board: slurmd {effect}"
            fix = "give each kind of node its own directory, or make the node a slot board"
            found = error("SLOT_ORDER", location, sentence, fix, "aliquot slurm apply --slots")
        else:
            continue
        yield msgspec.structs.replace(found, nodes=group.names)


def _effect(inputs: CheckInput, group: NodeGroup) -> str:
    """Return what the order file does to nodes that are no slot boards, or ""."""
    detect = inputs.autodetect(group.names[0])
    gpus = group.line is not None and "gpu" in group.line.get("Gres")
    if gpus and detect is not None and detect.value.lower() != "off":
        return f"reads it in place of AutoDetect={detect.value}, and finds no GPU"
    return "numbers its devices by file" if any(line.files for line in group.gres) else ""


def pads(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report slot boards of a cluster in which nothing refuses a request for a pad, or for a GPU of any type."""
    if inputs.slurm is None or any(inputs.slurm.get(key) for key in _SUBMIT):
        return
    for group in inputs.groups:
        if any(map(is_pad, group.gres)):
            sentence = f"a job that requests a GPU of any type, or gpu:{PAD}, can get a record without a device"
            fix = "refuse such requests: see deploy/slurm/job_submit.lua, which reads aliquot-types"
            found = warning("SLOT_PADS", inputs.file("slurm.conf"), sentence, fix, _WRITE_TYPES)
            yield msgspec.structs.replace(found, nodes=group.names)
