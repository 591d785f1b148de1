"""Slot boards as slurmd of each release reads them, and requests for their records."""

from __future__ import annotations

import shutil

import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files import node_line as nodeline
from aliquot.slurm.files import slurmd_validation as validate
from aliquot.slurm.files.gres_conf import AutoDetect, GresForm
from aliquot.slurm.files.slot_board import ORDER_FILE, slot_board
from aliquot.slurm.files.slot_proof import unproved_order
from unit.slurm.files.test_slot_board import node

from .bed import Bed
from .test_render import DEPLOY

MIXED = node(("3g.20gb@0", "2g.10gb@4", "1g.5gb@6"), (), ("7g.40gb@0",), ("1g.5gb@3", "3g.20gb@4"))
FULL = node(*[tuple(f"1g.5gb@{n}" for n in range(7))] * 8)


def read(bed: Bed, found: Inventory, autodetect: AutoDetect, **more: str) -> validate.ParsedFiles:
    board = slot_board(found)
    texts = {
        "slurm.conf": validate.minimal("n1", nodeline.gres_value(board)),
        "gres.conf": "\n".join(gres.lines("n1", board, GresForm(autodetect))) + "\n",
        "cgroup.conf": "",
    }
    return validate.parse({**texts, **more}, "n1", bed.inside(str(bed.bin / "slurmd")))


@pytest.mark.parametrize("autodetect", ["none", "off"])
@pytest.mark.parametrize("found", [MIXED, FULL], ids=["mixed", "full"])
def test_slurmd_numbers_the_records_by_slot(bed: Bed, found: Inventory, autodetect: AutoDetect) -> None:
    parsed = read(bed, found, autodetect, **{ORDER_FILE: ""})
    board = slot_board(found)
    assert unproved_order(gres.lines("n1", board), parsed) == ()
    assert validate.differences(board, parsed, nodeline.gres_value(board)) == ()


def test_without_the_order_file_slurmd_numbers_the_records_by_type(bed: Bed) -> None:
    assert unproved_order(gres.lines("n1", slot_board(MIXED)), read(bed, MIXED, "none"))


REQUESTS = {
    "--gres=gpu:a100_3g.20gb:1": True,
    "--gpus-per-task=a100_3g.20gb:1": True,
    "--gres=gpu:a100_3g.20gb:1,gpu:a100_2g.10gb:1": True,
    "--cpus-per-task=1": True,
    "--gres=gpu:1": False,
    "--gres=gpu": False,
    "--gpus=1": False,
    "--gpus-per-task=1": False,
    "--gres=gpu:pad:1": False,
    "--gres=gpu:a100_3g.20gb:1,gpu:pad": False,
}


def test_the_submit_script_refuses_what_could_get_a_pad(bed: Bed) -> None:
    value = nodeline.gres_value(slot_board(MIXED))
    lines = f"{bed.node('n1', f'CPUs=2 Gres={value}')}\nPartitionName=all Nodes=ALL Default=YES"
    bed.conf(lines, more="JobSubmitPlugins=lua")
    shutil.copy(DEPLOY / "job_submit.lua", bed.etc)
    (bed.etc / "aliquot-types").write_text("type all a100_3g.20gb\ntype all a100_2g.10gb\n")
    bed.controller()
    for request, accepted in REQUESTS.items():
        done = bed.submit("true", "-n1", request)
        assert (done.code == 0) is accepted, (request, done)
        refused = "needs a type in partition all" in done.err or "the type pad stands for no device" in done.err
        assert refused is not accepted, (request, done)
