"""Reboot requests to the host: logind first, else systemd, else the host's own program."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.hardware import reboot as program
from aliquot.hardware.systemd.errors import NoSystemdError, RebootError
from aliquot.hardware.systemd.power import LOGIND, reboot
from support.processes import until
from system.systemd.conftest import StandinHost, SystemdHost
from system.systemd.standin import Standin


@pytest.fixture
def logind(standin: StandinHost) -> Iterator[Standin]:
    found = Standin(f"unix:path={standin.socket}", (LOGIND,))
    yield found
    found.close()


def test_logind_is_asked_first(standin: StandinHost, logind: Standin) -> None:
    assert asyncio.run(reboot(standin.root)) == "logind"
    assert logind.calls == ["Reboot False"]
    assert standin.standin.calls == []


def test_who_blocks_it_is_named(standin: StandinHost, logind: Standin) -> None:
    logind.blocked = "backup"
    with pytest.raises(RebootError, match="inhibited by an active inhibitor lock") as caught:
        asyncio.run(reboot(standin.root))
    assert caught.value.details == ("backup (process 77) blocks it: it must not stop",)
    assert standin.standin.calls == []


def test_a_refusal_is_reported(standin: StandinHost, logind: Standin) -> None:
    logind.forbidden = True
    with pytest.raises(RebootError, match="refuses to reboot: Permission denied"):
        asyncio.run(reboot(standin.root))


def test_without_logind_systemd_goes_to_its_target(systemd: SystemdHost) -> None:
    assert asyncio.run(reboot(systemd.root)) == "systemd"
    until(lambda: systemd.state("reboot.target") == "active", "reboot.target is not reached")


def test_without_systemd_there_is_no_service_to_ask(standin: StandinHost, tmp_path: Path) -> None:
    (tmp_path / "talos/run").mkdir(parents=True)
    with pytest.raises(NoSystemdError, match="runs no systemd"):
        asyncio.run(reboot(str(tmp_path / "talos")))
    standin.standin.close()
    with pytest.raises(NoSystemdError, match="neither logind nor systemd"):
        asyncio.run(reboot(standin.root))


# -- the host's own program


def script(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def host_root(tmp_path: Path) -> Path:
    """Create a root to change into, with this host's libraries and shell and with its own programs."""
    root = tmp_path / "root"
    root.mkdir()
    return root


def chroot(folder: Path) -> str:
    """Replace chroot(8), which would need a complete system: run the program from there."""
    script(folder, "chroot", 'root=$1; shift; program=$1; shift; exec "$root$program" "$@"')
    return str(folder / "chroot")


def test_the_first_program_that_exists_is_run(host_root: Path, tmp_path: Path) -> None:
    script(host_root, "usr/bin/systemctl", f'echo "$@ $SYSTEMD_IGNORE_CHROOT" > {tmp_path}/said')
    script(host_root, "sbin/reboot", "exit 1")
    assert program.reboot(str(host_root), chroot=chroot(tmp_path)) == "/usr/bin/systemctl reboot"
    assert (tmp_path / "said").read_text() == "reboot 1\n"


def test_a_program_that_fails_is_reported(host_root: Path, tmp_path: Path) -> None:
    script(host_root, "sbin/reboot", "echo must be superuser >&2; exit 1")
    with pytest.raises(program.RebootRefusedError, match="/sbin/reboot on the host ended with status 1") as caught:
        program.reboot(str(host_root), chroot=chroot(tmp_path))
    assert caught.value.details == ("must be superuser",)


def test_a_program_that_does_nothing_successfully_is_reported(host_root: Path, tmp_path: Path) -> None:
    script(host_root, "bin/systemctl", "echo 'Running in chroot, ignoring command '\\''reboot'\\'''")
    with pytest.raises(program.RebootRefusedError, match="did nothing"):
        program.reboot(str(host_root), chroot=chroot(tmp_path))


def test_a_program_that_does_not_come_back_may_be_rebooting(host_root: Path, tmp_path: Path) -> None:
    script(host_root, "sbin/reboot", "exec sleep 30")
    assert program.reboot(str(host_root), timeout_s=0.3, chroot=chroot(tmp_path)) == "/sbin/reboot"


def test_a_host_without_a_program(host_root: Path) -> None:
    with pytest.raises(program.RebootRefusedError, match="no program to reboot with"):
        program.reboot(str(host_root))


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_a_chroot_that_fails_is_reported(host_root: Path) -> None:
    # Uses the real chroot(8): the program exists, its interpreter does not.
    script(host_root, "sbin/reboot", "true")
    with pytest.raises(program.RebootRefusedError, match="status 127"):
        program.reboot(str(host_root))
