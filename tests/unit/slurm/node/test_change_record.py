"""Change records and host claims: invalid bytes, newer fields and older releases stop nothing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from aliquot.errors import BlockedError
from aliquot.foundation import state_store
from aliquot.foundation.paths import SLURM_CHANGES
from aliquot.slurm.node import transaction
from aliquot.slurm.node.change_record import LEGACY_FOLDER, ChangeRecord, ChangeRecordFile, recorded_names
from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings
from support.slurmfake import Host

RECORD = ChangeRecord("run", SlurmChange(SlurmNodeSettings(name="n1")), "dynamic", "open", "stop")
BAD = [
    b"",
    b"{",
    b"\xff\xfe",
    b'{"run": 7}',
    b'{"kind":"slurm-change","format":9,"writer":"9.9","checksum":"","content":{}}',
]


@pytest.fixture(autouse=True)
def _nothing_reported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "unreadable", {})


@pytest.mark.parametrize("body", BAD)
def test_bad_bytes_cost_the_last_step_only(tmp_path: Path, body: bytes) -> None:
    file = ChangeRecordFile(str(tmp_path), "n1")
    assert file.read() is None
    file.write(RECORD)
    file.write(replace(RECORD, phase="gpus"))
    Path(file.path).write_bytes(body)
    assert file.read() == RECORD
    assert [u.kind for u in state_store.unreadable.values()] == ["slurm-change"]
    file.write(replace(RECORD, phase="gpus"))
    assert Path(f"{file.path}.unreadable").read_bytes() == body
    assert [(u.path, u.kind) for u in state_store.found_unreadable(str(tmp_path))] == [
        (f"{file.path}.unreadable", "slurm-change")
    ]
    Path(file.path).write_bytes(body)
    os.unlink(f"{file.path}.previous")
    assert file.read() is None


@pytest.mark.parametrize("body", BAD)
def test_bad_bytes_of_an_older_release_are_no_record(tmp_path: Path, body: bytes) -> None:
    (tmp_path / LEGACY_FOLDER).mkdir()
    (tmp_path / LEGACY_FOLDER / "n1.json").write_bytes(body)
    file = ChangeRecordFile(str(tmp_path), "n1")
    assert file.read() is None
    file.write(RECORD)
    assert file.read() == RECORD
    assert os.listdir(tmp_path / LEGACY_FOLDER) == ["n1.json.unreadable"]


def test_the_record_of_an_older_release_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / LEGACY_FOLDER).mkdir()
    (tmp_path / LEGACY_FOLDER / "n1.json").write_bytes(msgspec.json.encode(RECORD) + b"\n")
    file = ChangeRecordFile(str(tmp_path), "n1")
    assert recorded_names(str(tmp_path)) == ["n1"]
    assert file.read() == RECORD
    file.write(replace(RECORD, phase="gpus"))
    assert file.read() == replace(RECORD, phase="gpus")
    assert os.listdir(tmp_path / LEGACY_FOLDER) == ["n1.json.imported"]
    assert recorded_names(str(tmp_path)) == ["n1"]
    assert Path(file.path).stat().st_mode & 0o777 == 0o600
    ChangeRecordFile(str(tmp_path), "n2").write(RECORD)
    assert recorded_names(str(tmp_path)) == ["n1", "n2"]
    assert sorted(os.listdir(tmp_path)) == [LEGACY_FOLDER, SLURM_CHANGES]


def test_nothing_recorded_has_no_names(tmp_path: Path) -> None:
    assert recorded_names(str(tmp_path)) == []


class KilledError(BaseException):
    """The end of the process, between two steps."""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Build a dynamic node of two GPUs with seven slices each, idle."""
    made = Host(tmp_path, monkeypatch)
    assert made.apply("0-1", "1g.5gb*7").status == "done"
    made.cluster.change("n1", slurmd_start=1000)
    return made


def killed(host: Host, step: str, *, also_previous: bool) -> None:
    """End a change after a step, and damage its record."""

    def end() -> None:
        raise KilledError

    host.at(step, end, after=True)
    with pytest.raises(KilledError):
        host.apply("0", "3g.20gb*2")
    path = ChangeRecordFile(host.context.folders.lib, "n1").path
    for each in [path, f"{path}.previous"] if also_previous else [path]:
        Path(each).write_bytes(b"\xff")


def geometry(host: Host) -> list[str]:
    return sorted(i.profile for i in host.node.whole.read().gpus[0].instances)


@pytest.mark.parametrize("step", ["drain", "wait", "stop", "gpus", "files", "forget", "start", "verify", "resume"])
def test_a_change_whose_record_is_damaged_is_finished_or_undone_from_the_step_before(host: Host, step: str) -> None:
    killed(host, step, also_previous=False)
    assert transaction.continue_change(host.context, host.settings).status == "done"
    assert geometry(host) == ["3g.20gb"] * 2
    assert not host.now.draining
    host.cluster.change("n1", slurmd_start=1000)
    host.apply("0", "1g.5gb*7")
    host.cluster.change("n1", slurmd_start=1000)
    killed(host, step, also_previous=False)
    undone = transaction.undo_change(host.context, host.settings)
    assert (undone.status, undone.exit_code) == ("undone", 0)
    assert geometry(host) == ["1g.5gb"] * 7


@pytest.mark.parametrize("step", ["gpus", "files", "verify"])
def test_to_continue_an_undo_that_was_requested_finishes_it(host: Host, step: str) -> None:
    killed(host, "verify", also_previous=False)

    def end() -> None:
        raise KilledError

    host.at(step, end)
    with pytest.raises(KilledError):
        transaction.undo_change(host.context, host.settings)
    undone = transaction.continue_change(host.context, host.settings)
    assert (undone.status, undone.exit_code, undone.why) == ("undone", 0, "--undo was requested")
    assert "n1: finishing the undo of the change (--undo was requested)" in host.messages
    assert geometry(host) == ["1g.5gb"] * 7


@pytest.mark.parametrize("step", ["drain", "stop", "gpus", "files", "forget", "start", "resume"])
def test_without_any_record_the_next_change_is_made(host: Host, step: str) -> None:
    killed(host, step, also_previous=True)
    with pytest.raises(BlockedError) as caught:
        transaction.continue_change(host.context, host.settings)
    assert caught.value.next_step
    outcome = host.apply("0", "2g.10gb*3")
    assert outcome.status == "done"
    assert outcome.drained == (step == "start"), (
        "only the record contained who drained it: the summary names the command to type"
    )
    assert geometry(host) == ["2g.10gb"] * 3
