"""slurmd as a unit of a real systemd: stop, start, and the options of a dynamic node passed as one argument."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.errors import AliquotError, BlockedError
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node.request import SlurmNodeSettings
from aliquot.slurm.node.slurmd import SlurmdCommands, SlurmdUnit, daemon_of
from support.processes import until
from system.systemd.conftest import SystemdHost

WORDS = "CPUs=2 RealMemory=1000 Gres=gpu:a100_1g.5gb:7 State=DRAIN"


def test_a_unit_is_stopped_and_started_with_other_options(systemd: SystemdHost, tmp_path: Path) -> None:
    log, options = tmp_path / "arguments", tmp_path / "options"
    script = tmp_path / "slurmd"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {log}.new\nmv {log}.new {log}\nexec sleep 1000\n')
    script.chmod(0o755)
    (systemd.units / "slurmd.service").write_text(
        f"[Unit]\nDefaultDependencies=no\n[Service]\nEnvironmentFile=-{options}\n"
        f"ExecStart={script} -D -s $SLURMD_OPTIONS\n"
    )
    systemd.systemctl("daemon-reload")
    settings = SlurmNodeSettings("n1", root=systemd.root, options_file=str(options), unit="slurmd")
    daemon = daemon_of(settings)
    assert isinstance(daemon, SlurmdUnit)
    daemon.stop()  # allowed although it does not run
    files.write(files.options_file(settings, WORDS))
    daemon.start(WORDS)
    assert systemd.systemctl("is-active", "slurmd.service") == "active"
    until(log.exists)  # systemd reports a unit as active before its program has done anything
    assert log.read_text().splitlines() == ["-D", "-s", "-Z", "--conf", WORDS]
    daemon.stop()
    assert systemd.systemctl("is-active", "slurmd.service", check=False) == "inactive"


def test_a_unit_that_is_not_there_is_reported(systemd: SystemdHost) -> None:
    with pytest.raises(AliquotError, match=r"slurmd"):
        SlurmdUnit(SlurmNodeSettings("n1", root=systemd.root)).start("")


def test_a_host_without_systemd_is_reported_what_else_there_is(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(BlockedError, match="does not run systemd") as refused:
        SlurmdUnit(SlurmNodeSettings("n1", root=str(tmp_path))).stop()
    assert "--slurmd-stop" in refused.value.details[0]


def test_commands_are_reported_and_their_failure_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "arguments"
    start = (
        f'printf "%s|%s|" "$ALIQUOT_NODE_NAME" "$ALIQUOT_SLURMD_CONF" > {log}; eval "set -- $ALIQUOT_SLURMD_OPTIONS"; '
    )
    settings = SlurmNodeSettings("n1", start=start + f'printf "%s," "$@" >> {log}', stop="echo why >&2; exit 7")
    daemon = daemon_of(settings)
    assert isinstance(daemon, SlurmdCommands)
    daemon.start(WORDS)
    assert log.read_text() == f"n1|{WORDS}|-Z,--conf,{WORDS},"
    with pytest.raises(BlockedError, match="--slurmd-stop ended with status 7") as failed:
        daemon.stop()
    assert "why" in failed.value.details


def test_a_daemon_that_a_command_leaves_behind_is_not_waited_for() -> None:
    settings = SlurmNodeSettings("n1", start="sleep 30 & echo started", stop="true")
    daemon_of(settings).start("")
