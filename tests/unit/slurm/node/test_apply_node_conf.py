"""The keys of a dynamic node other than GPUs: what Slurm refuses is undone to the keys of before."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.errors import AliquotError, BlockedError
from aliquot.slurm.node import transaction as apply
from aliquot.slurm.node.change_record import ChangeRecordFile, remembered_settings
from support.slurmfake import WORDS, Host

SEVEN, HALVES = "1g.5gb*7", "3g.20gb*2"
TOO_MUCH = "CPUs=2 RealMemory=500000 Feature=mig"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Build a dynamic node of two GPUs with seven slices each, idle."""
    made = Host(tmp_path, monkeypatch)
    assert made.apply("0-1", SEVEN).status == "done"
    made.cluster.change("n1", slurmd_start=1000)
    return made


def test_keys_that_slurm_refuses_are_undone_to_those_of_before(host: Host) -> None:
    begun = host.node.clock.now()
    outcome = host.apply("0", HALVES, replace(host.settings, node_conf=TOO_MUCH))
    assert outcome.status == "undone"
    assert "INVALID_REG+UNKNOWN: Low RealMemory (reported:1000 < 100.00% of configured:500000)" in outcome.why
    assert host.node.clock.now() - begun < 30, "an invalid registration is not waited for"
    assert host.slurmd.log[-1] == f"start {WORDS} Gres=gpu:a100_1g.5gb:14 State=DRAIN"
    assert "INVALID_REG" not in host.now.states
    assert host.apply("0", HALVES).status == "done"


def test_corrected_keys_replace_those_of_an_interrupted_change(host: Host) -> None:
    def fails() -> None:
        raise BlockedError("slurmd does not start")

    host.at("verify", lambda: host.at("start", fails))
    with pytest.raises(AliquotError, match="does not start"):
        host.apply("0", HALVES, replace(host.settings, node_conf=TOO_MUCH))
    corrected = "CPUs=2 RealMemory=900 Feature=mig"
    assert host.apply("0", HALVES, replace(host.settings, node_conf=corrected)).status == "done"
    assert host.slurmd.log[-1].startswith(f"start {corrected} ")


def test_settings_that_failed_are_not_remembered(host: Host) -> None:
    assert host.apply("0", HALVES, replace(host.settings, node_conf=TOO_MUCH)).status == "undone"
    record = ChangeRecordFile(host.context.folders.lib, "n1").read()
    assert record is not None
    assert record.change.settings.node_conf == TOO_MUCH
    assert remembered_settings(record).node_conf == WORDS
    again = replace(record, previous_settings=None)
    assert remembered_settings(again).node_conf == TOO_MUCH, "nothing has worked yet: what was typed is kept"


def test_the_settings_of_a_change_in_progress_are_its_own(host: Host) -> None:
    def fails() -> None:
        raise KeyboardInterrupt

    host.at("gpus", fails)
    with pytest.raises(AliquotError):
        host.apply("0", HALVES, replace(host.settings, push="copy"))
    record = ChangeRecordFile(host.context.folders.lib, "n1").read()
    assert record is not None
    assert (record.status, remembered_settings(record).push) == ("open", "copy")
    assert apply.undo_change(host.context).status == "undone"
    record = ChangeRecordFile(host.context.folders.lib, "n1").read()
    assert record is not None
    assert remembered_settings(record).push == ""
