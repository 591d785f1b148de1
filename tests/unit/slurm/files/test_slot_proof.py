"""The proof that running jobs keep their records, from what slurmd reads before and after a change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files import slot_board as board
from aliquot.slurm.files import slurmd_validation as validate
from aliquot.slurm.files.slot_proof import broken_jobs, unproved_order
from aliquot.slurm.files.slurmd_validation import ParsedFiles
from unit.slurm.files.test_slot_board import node

BEFORE = node(("3g.20gb@0", "3g.20gb@4"), ("7g.40gb@0",))
AFTER = node(("3g.20gb@0", "3g.20gb@4"), ("3g.20gb@0", "3g.20gb@4"))

LINES = gres.lines("n1", board.slot_board(BEFORE))


def read(found: Inventory) -> ParsedFiles:
    """Return what a slurmd that sorts by the first file reads."""
    return ParsedFiles(tuple((d.type, 1, d.files) for d in board.slot_board(found).devices))


def test_a_board_in_the_order_of_its_slots_is_proved() -> None:
    assert unproved_order(LINES, read(BEFORE)) == ()


def test_another_order_is_not_proved() -> None:
    by_type = ParsedFiles(tuple(sorted(read(BEFORE).devices, key=lambda record: record[0])))
    (first, *_) = unproved_order(LINES, by_type)
    assert first == "slurmd reads a100_3g.20gb (/dev/aliquot/slot004) at index 1, where slot 1 is of type pad"


def test_another_number_of_records_is_not_proved() -> None:
    fewer = ParsedFiles(read(BEFORE).devices[:-1])
    assert unproved_order(LINES, fewer) == ("slurmd reads 14 records, not 15",)


@pytest.mark.parametrize("busy", [(), (0,), (0, 4), (1, 2, 8)])
def test_jobs_whose_records_stay_are_not_harmed(busy: tuple[int, ...]) -> None:
    assert broken_jobs(read(BEFORE), read(AFTER), busy) == ()


@pytest.mark.parametrize(
    ("busy", "sentence"),
    [
        (7, "a job has slot 7 (a100_7g.40gb): it would be of type a100_3g.20gb"),
        (11, "a job has slot 11 (pad): it would be of type a100_3g.20gb"),
        (14, "a job has slot 14 (pad): it has the unused capabilities"),
        (15, "a job has record 15, which slurmd does not have"),
    ],
    ids=["job", "pad", "last", "none"],
)
def test_a_job_whose_record_would_change_breaks_the_proof(busy: int, sentence: str) -> None:
    assert broken_jobs(read(BEFORE), read(AFTER), {0, busy}) == (sentence,)


def test_another_total_breaks_the_proof_with_and_without_jobs() -> None:
    one = read(node(("7g.40gb@0",)))
    assert broken_jobs(read(BEFORE), one, ()) == ("the node has 15 records, and would have 8",)


def test_host_lists_of_files_are_one_word_in_the_output_of_slurmd() -> None:
    line = (
        "slurmd: Gres Name=gpu Type=pad Count=1 Index=0 ID=7696487 File=/dev/aliquot/slot014,/dev/x[1-2,5] Links=(null)"
    )
    assert validate.listed_devices(line) == (("pad", 1, ("/dev/aliquot/slot014", "/dev/x[1-2,5]")),)


def test_files_stand_in_for_all_markers_if_one_is_missing_and_for_every_file_of_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = gres.lines("n1", board.slot_board(node(("7g.40gb@0",))))
    exists = {"/dev/aliquot/slot000", "/dev/nvidia0"}
    monkeypatch.setattr(os.path, "exists", lambda path: path in exists)
    text = "\n".join(texts)
    missing = set(validate._device_files(text)) - exists
    made = validate._with_stand_ins(text, missing, str(tmp_path))
    assert "=/dev/aliquot" not in made
    assert ",/dev/nvidia0," in made
    assert {path.name for path in (tmp_path / "dev/aliquot").iterdir()} == {f"slot{n:03}" for n in range(8)}
    assert len(list((tmp_path / "dev/nvidia-caps").iterdir())) == 137
