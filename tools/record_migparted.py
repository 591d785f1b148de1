"""Record what nvidia-mig-parted answers to the steps of tests/recorded/mig-parted/original/steps.yaml.

Usage: python tools/record_migparted.py PROGRAM       as root, on Linux with FUSE

PROGRAM is nvidia-mig-parted v0.15.0. It works on simulated nodes: through their NVML library, below a mount of their
/sys, with a /proc whose list of modules has ``nvidia``. Each scenario has a node and a folder of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from aliquot.sim import lifecycle as control  # noqa: E402
from aliquot.sim.client import SimClient  # noqa: E402
from support import migparted  # noqa: E402
from support.migparted import Answer, Scenario  # noqa: E402
from system.sim.mounted import mounted  # noqa: E402

INSIDE = """\
set -e
mount --make-rprivate /
mount -t tmpfs proc "$PLACE"
mkdir "$PLACE/real" "$PLACE/proc"
mount -t proc proc "$PLACE/real"
echo "nvidia 1 0 - Live 0x0" > "$PLACE/proc/modules"
for name in self thread-self filesystems meminfo cpuinfo stat sys; do
    ln -s "$PLACE/real/$name" "$PLACE/proc/$name"
done
mount --bind "$MOUNT/sys" /sys
mount --bind "$PLACE/proc" /proc
exec "$@"
"""


def record(program: str, scenario: Scenario) -> list[Answer]:
    """Take the program through one scenario."""
    with tempfile.TemporaryDirectory(prefix="aq-") as state, tempfile.TemporaryDirectory(prefix="aq-") as folder:
        control.start(state, scenario.node, migparted.NODE)
        control.library(state, migparted.NODE)
        node = SimClient(state, migparted.NODE)
        migparted.write_files(Path(folder))
        try:
            with mounted(state, migparted.NODE) as mount, tempfile.TemporaryDirectory(prefix="aq-") as place:
                return [_step(program, step, node, folder, mount, place) for step in scenario.steps]
        finally:
            node.close()
            control.stop(state)


def _step(program: str, step: migparted.Step, node: SimClient, folder: str, mount: str, place: str) -> Answer:
    variables, words = step.words
    if words[0] == "sim":
        migparted.outside(node, words[1:])
        return Answer(0, "", migparted.geometry(node))
    if words[0] == "cat":
        found = Path(folder, words[1])
        return Answer(0, found.read_text() if found.exists() else "", migparted.geometry(node))
    own = control.folder(node.state_dir, node.name)
    environment = {
        **variables,
        "PATH": f"{own}/driver/usr/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": own,
        "MOUNT": mount,
        "PLACE": place,
    }
    command = ["unshare", "-m", "sh", "-c", INSIDE, "sh", program, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    print(f"{done.returncode}  {step.run}", *done.stderr.strip().splitlines()[-1:], file=sys.stderr)
    return Answer(done.returncode, done.stdout, migparted.geometry(node))


def _text(answers: dict[str, list[Answer]]) -> str:
    """Encode the answers as JSON, a line for each."""
    found = []
    for name, given in answers.items():
        lines = ",\n".join("  " + msgspec.json.encode(each).decode() for each in given)
        found.append(f" {msgspec.json.encode(name).decode()}: [\n{lines}\n ]")
    return "{\n" + ",\n".join(found) + "\n}\n"


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    program = os.path.abspath(sys.argv[1])
    answers = {scenario.name: record(program, scenario) for scenario in migparted.steps().scenarios}
    migparted.ANSWERS.write_text(_text(answers))
    print(f"{sum(map(len, answers.values()))} steps: {migparted.ANSWERS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
