"""deploy/slurm/slurmd-restart: slurmd restarts, once with -b, through its own unit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[4] / "deploy" / "slurm" / "slurmd-restart"


def test_the_next_start_alone_has_the_option_beside_those_that_were_there(tmp_path: Path) -> None:
    control = tmp_path / "systemctl"
    control.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n')
    control.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    settings = tmp_path / "slurmd"
    settings.write_text("SLURMD_OPTIONS=\"-Z --conf 'CPUs=2 Feature=mig'\"\n")
    script = tmp_path / "slurmd-restart"
    script.write_text(SCRIPT.read_text().replace("/etc/default/slurmd", str(settings)))
    done = subprocess.run(
        ["sh", str(script)],
        env={"PATH": path, "RUN": str(tmp_path / "run")},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done
    once = tmp_path / "run/aliquot/slurm/slurmd-once"
    assert once.read_text() == "SLURMD_OPTIONS=\"-Z --conf 'CPUs=2 Feature=mig' -b\"\n"
    added = (tmp_path / "run/systemd/system/slurmd.service.d/aliquot-once.conf").read_text()
    assert f"EnvironmentFile=-{once}\n" in added
    assert f"ExecStartPost=-/bin/rm -f {once}\n" in added
    assert (tmp_path / "calls").read_text().splitlines() == ["daemon-reload", "--no-block restart slurmd.service"]
