"""The record of wishes on disk: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from aliquot.core.config.boot_record import RecordedRequest
from aliquot.core.model.desired import DesiredGpu
from aliquot.errors import StorageError
from aliquot.hardware.state.boot_record_file import FILE, OLD_FILE, BootRecordFile

KEPT = (RecordedRequest(DesiredGpu("0000:07:00.0", True, ()), "GPU-1", "train"),)


def test_nothing_is_recorded_at_first(tmp_path: Path) -> None:
    assert BootRecordFile(str(tmp_path / "absent")).load() == ()


def test_what_was_saved_is_loaded_by_another(tmp_path: Path) -> None:
    BootRecordFile(str(tmp_path / "new" / "folder")).save(KEPT)
    assert BootRecordFile(str(tmp_path / "new" / "folder")).load() == KEPT
    assert os.listdir(tmp_path / "new" / "folder") == [FILE]


def test_the_record_of_an_older_release_is_taken_over(tmp_path: Path) -> None:
    former = {"apiVersion": "aliquot/v1", "kind": "Wishes", "gpus": KEPT}
    (tmp_path / OLD_FILE).write_bytes(msgspec.json.encode(former))
    wishes = BootRecordFile(str(tmp_path))
    assert wishes.load() == KEPT
    wishes.save(KEPT)
    assert wishes.load() == KEPT
    assert sorted(os.listdir(tmp_path)) == [FILE, f"{FILE}.previous", f"{OLD_FILE}.imported"]


def test_what_an_older_release_recorded_of_one_gpu_leaves_the_others(tmp_path: Path) -> None:
    """It did not see our record. Before, the next save dropped the GPUs that it had not changed."""
    wishes = BootRecordFile(str(tmp_path))
    moved = RecordedRequest(DesiredGpu("0000:08:00.0", False, ()), "GPU-1")
    other = RecordedRequest(DesiredGpu("0000:09:00.0", True, ()), "GPU-2")
    wishes.save((*KEPT, other))
    (tmp_path / OLD_FILE).write_bytes(msgspec.json.encode({"gpus": [moved]}))
    assert wishes.load() == (moved, other)
    wishes.save(wishes.load())
    assert wishes.load() == (moved, other)


def test_where_it_cannot_be_written_the_old_one_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = BootRecordFile(str(tmp_path))
    wishes.save(KEPT)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        wishes.save(())
    monkeypatch.undo()
    assert wishes.load() == KEPT
    assert os.listdir(tmp_path) == [FILE]
