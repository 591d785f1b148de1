"""The record of wishes on disk: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aliquot.core.config.boot_record import Kept
from aliquot.core.model.desired import GpuWish
from aliquot.errors import StorageError
from aliquot.hardware.state.boot_record_file import FILE, FileWishes

KEPT = (Kept(GpuWish("0000:07:00.0", True, ()), "GPU-1", "train"),)


def test_nothing_is_recorded_at_first(tmp_path: Path) -> None:
    assert FileWishes(str(tmp_path / "absent")).load() == ()


def test_what_was_saved_is_loaded_by_another(tmp_path: Path) -> None:
    FileWishes(str(tmp_path / "new" / "folder")).save(KEPT)
    assert FileWishes(str(tmp_path / "new" / "folder")).load() == KEPT
    assert os.listdir(tmp_path / "new" / "folder") == [FILE]


@pytest.mark.parametrize("text", ["", "no json", '{"kind": "Plan"}'])
def test_a_damaged_record_is_said_and_not_taken_for_an_empty_one(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(StorageError, match="cannot be read") as caught:
        FileWishes(str(tmp_path)).load()
    assert str(tmp_path / FILE) in (caught.value.next_step or "")


def test_where_it_cannot_be_written_the_old_one_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = FileWishes(str(tmp_path))
    wishes.save(KEPT)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        wishes.save(())
    monkeypatch.undo()
    assert wishes.load() == KEPT
    assert os.listdir(tmp_path) == [FILE]
