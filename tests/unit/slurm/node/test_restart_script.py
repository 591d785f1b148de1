"""``deploy/slurm/slurmctld-restart.sh``: systemd starts slurmctld with options once, and without them again later."""

from __future__ import annotations

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[4] / "deploy/slurm/slurmctld-restart.sh"
SYSTEMCTL = """#!/bin/sh
echo "$*" >>FOLDER/calls
[ "$1" != restart ] || cat FOLDER/run/aliquot-slurmctld >>FOLDER/calls
MORE
exit "${STATUS:-0}"
"""


def restarted(folder: Path, *options: str, status: int = 0, more: str = "") -> tuple[int, list[str]]:
    """Run the script in a folder instead of /run and /etc; return its status and what systemd was asked for."""
    script = folder / SCRIPT.name
    script.write_text(SCRIPT.read_text().replace("/run/", f"{folder}/run/").replace("/etc/", f"{folder}/etc/"))
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "run").mkdir(exist_ok=True)
    fake = folder / "bin/systemctl"
    fake.write_text(SYSTEMCTL.replace("FOLDER", str(folder)).replace("MORE", more))
    fake.chmod(0o755)
    calls = folder / "calls"
    calls.unlink(missing_ok=True)
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "STATUS": str(status)}
    done = subprocess.run(["sh", str(script), *options], env=env, timeout=10)
    return done.returncode, calls.read_text().splitlines()


def test_the_options_last_for_one_start(tmp_path: Path) -> None:
    assert restarted(tmp_path, "-R") == (0, ["daemon-reload", "restart slurmctld", "SLURMCTLD_OPTIONS= -R"])
    assert restarted(tmp_path) == (0, ["restart slurmctld", "SLURMCTLD_OPTIONS= "])
    drop_in = tmp_path / "run/systemd/system/slurmctld.service.d/aliquot.conf"
    assert drop_in.read_text() == f"[Service]\nEnvironmentFile=-{tmp_path}/run/aliquot-slurmctld\n"
    assert not (tmp_path / "run/aliquot-slurmctld").exists()


def test_the_options_of_the_site_stay(tmp_path: Path) -> None:
    (tmp_path / "etc/default").mkdir(parents=True)
    (tmp_path / "etc/default/slurmctld").write_text('SLURMCTLD_OPTIONS="-v -L /log"\n')
    assert restarted(tmp_path, "-R")[1][-1] == "SLURMCTLD_OPTIONS=-v -L /log -R"


def test_a_restart_that_fails_is_not_hidden_and_leaves_no_options(tmp_path: Path) -> None:
    restarted(tmp_path)
    assert restarted(tmp_path, "-R", status=5)[0] == 5
    assert not (tmp_path / "run/aliquot-slurmctld").exists()


def test_a_script_that_is_ended_leaves_no_options(tmp_path: Path) -> None:
    # The next start of slurmctld would have -R without a reservation of its nodes.
    assert restarted(tmp_path, "-R", more='[ "$1" != restart ] || kill -TERM $PPID')[0] != 0
    assert not (tmp_path / "run/aliquot-slurmctld").exists()
