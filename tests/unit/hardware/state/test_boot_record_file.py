"""The boot record on disk: complete or absent."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from aliquot.core.config.boot_record import RecordedRequest
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.errors import StorageError
from aliquot.hardware.state.boot_record_file import FILE, OLD_FILE, BootRecordFile
from laws.oracle import mig_nodes

KEPT = (RecordedRequest(DesiredGpu("0000:07:00.0", True, ()), "GPU-1", "train"),)


def test_nothing_is_recorded_at_first(tmp_path: Path) -> None:
    assert BootRecordFile(str(tmp_path / "absent")).load() == ()


def test_what_was_saved_is_loaded_by_another(tmp_path: Path) -> None:
    BootRecordFile(str(tmp_path / "new" / "folder")).save(KEPT)
    assert BootRecordFile(str(tmp_path / "new" / "folder")).load() == KEPT
    assert os.listdir(tmp_path / "new" / "folder") == [FILE]


def test_a_request_is_recorded_once(tmp_path: Path) -> None:
    boot_record = BootRecordFile(str(tmp_path))
    node = mig_nodes.node(mig_nodes.gpu(catalog.family("a100-40gb"), ()))
    boot_record.record(Desired((DesiredGpu(mig_nodes.PCI, True, ()),), "train"), node)
    assert [each.desired.pci for each in boot_record.load()] == [mig_nodes.PCI]
    written = os.stat(tmp_path / FILE).st_ino
    boot_record.record(Desired((DesiredGpu(mig_nodes.PCI, True, ()),), "train"), node)
    assert os.stat(tmp_path / FILE).st_ino == written, "an unchanged record is not written"
    boot_record.record(Desired((DesiredGpu(mig_nodes.PCI, False, ()),), "off"), node)
    assert [each.name for each in boot_record.load()] == ["off"]


def test_a_record_that_cannot_be_read_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_record = BootRecordFile(str(tmp_path))
    boot_record.save(KEPT)

    def unreadable() -> None:
        raise StorageError("input/output error")

    monkeypatch.setattr(boot_record, "load", unreadable)
    with pytest.raises(StorageError):
        boot_record.record(Desired(()), mig_nodes.node(mig_nodes.gpu(catalog.family("a100-40gb"), ())))
    assert BootRecordFile(str(tmp_path)).load() == KEPT


def test_the_record_of_an_older_release_is_taken_over(tmp_path: Path) -> None:
    previous = {"apiVersion": "aliquot/v1", "kind": "Wishes", "gpus": KEPT}
    (tmp_path / OLD_FILE).write_bytes(msgspec.json.encode(previous))
    boot_record = BootRecordFile(str(tmp_path))
    assert boot_record.load() == KEPT
    boot_record.save(KEPT)
    assert boot_record.load() == KEPT
    assert sorted(os.listdir(tmp_path)) == [FILE, f"{FILE}.previous", f"{OLD_FILE}.imported"]


def test_what_an_older_release_recorded_of_one_gpu_leaves_the_others(tmp_path: Path) -> None:
    # The older release did not read the new record. An earlier version then dropped, at its next save, the GPUs that it
    # had not changed.
    boot_record = BootRecordFile(str(tmp_path))
    moved = RecordedRequest(DesiredGpu("0000:08:00.0", False, ()), "GPU-1")
    other = RecordedRequest(DesiredGpu("0000:09:00.0", True, ()), "GPU-2")
    boot_record.save((*KEPT, other))
    (tmp_path / OLD_FILE).write_bytes(msgspec.json.encode({"gpus": [moved]}))
    assert boot_record.load() == (moved, other)
    boot_record.save(boot_record.load())
    assert boot_record.load() == (moved, other)


def test_where_it_cannot_be_written_the_old_one_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot_record = BootRecordFile(str(tmp_path))
    boot_record.save(KEPT)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        boot_record.save(())
    monkeypatch.undo()
    assert boot_record.load() == KEPT
    assert os.listdir(tmp_path) == [FILE]
