"""E12, commands that run often: ``docker run-args``, the TaskProlog, and ``slurm check`` of a large cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from benchmarks.bench_node import Node, started
from benchmarks.measure import Figure, Report, alternate, at_most, clock, digest_files, ratio, spread

from aliquot.core.model.inventory import Inventory
from aliquot.slurm.client.models import Version
from aliquot.slurm.files import gpu_numbering as numbering
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files.job_devices import OfferedDevices, offered_devices
from aliquot.slurm.files.node_line import gres_value

TEMPLATE, LAYOUT = "dgx-a100", "1g.5gb*7"
AT_ONCE, NODES = 20, 1000
FEW_AT_ONCE, FEW_NODES = 4, 100
"""For a quick run."""
PROLOG_GOAL_MS = 150.0
_OURS = [sys.executable, "-m", "aliquot"]


def run(report: Report, group: str, quick: bool) -> None:
    repeats = 3 if quick else 9
    with started(TEMPLATE, "none") as (state_dir, name), TemporaryDirectory(prefix="aliquot-bench-") as made:
        folder, environment = Path(made), {**os.environ, "ALIQUOT_STATE_DIR": state_dir, "ALIQUOT_SIM": name}
        _typed(environment, "apply", "--gpu", "all", "--mig", LAYOUT)
        with _node(state_dir, name) as node:
            inventory = node.read()
        _containers(report, group, environment, folder, repeats, FEW_AT_ONCE if quick else AT_ONCE)
        _prolog(report, group, environment, folder, inventory, repeats)
        _check(report, group, environment, folder, inventory, FEW_NODES if quick else NODES)


@contextmanager
def _node(state_dir: str, name: str) -> Iterator[Node]:
    node = Node(state_dir, name)
    try:
        yield node
    finally:
        node.close()


def _typed(environment: dict[str, str], *words: str, code: int = 0) -> str:
    done = subprocess.run([*_OURS, *words], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, (words, done)
    return done.stdout


def _containers(
    report: Report, group: str, environment: dict[str, str], folder: Path, repeats: int, at_once: int
) -> None:
    """Measure ``docker run-args`` with an installed runtime, which is queried for the devices of its containers."""
    runtime = next((r for r in ("podman", "docker", "nerdctl") if shutil.which(r)), "")
    if not runtime:
        report(
            Figure(
                group,
                "`docker run-args`",
                "not measured",
                "simulated",
                "",
                "skipped",
                "no container runtime is installed",
            )
        )
        return
    (folder / "cdi").mkdir()
    _typed(environment, "cdi", "generate", "--out", str(folder / "cdi" / "nvidia.json"))
    words = ["docker", "run-args", "1g.5gb", "--runtime", runtime, "--spec-dir", str(folder / "cdi")]
    found: list[str] = []
    took = [clock(lambda: found.append(_typed(environment, *words))) for _ in range(repeats)]
    head = f"`docker run-args 1g.5gb`, {runtime}, 56 slices"
    _report(report, group, f"{head}: one", [1e3 * t for t in took[1:]], "ms")

    def side_by_side() -> None:
        with ThreadPoolExecutor(at_once) as pool:
            found.extend(pool.map(lambda _: _typed(environment, *words), range(at_once)))

    whole = clock(side_by_side)
    devices = [next(w for w in text.split() if "nvidia.com/gpu=" in w) for text in found]
    twice = len(devices) - len(set(devices))
    name = f"{head}: {at_once} at once, until the last has its own"
    report(Figure(group, name, f"{whole:.2f} s", "simulated", "none twice", at_most(twice, 0), f"{twice} given twice"))


def _prolog(
    report: Report, group: str, environment: dict[str, str], folder: Path, inventory: Inventory, repeats: int
) -> None:
    """Measure the TaskProlog as slurmd calls it before each task. It reads the file that ``apply`` wrote."""
    numbering.write(numbering.Numbering.from_offered("n1", offered_devices(inventory)), str(folder))
    there = {"ALIQUOT_SLURM_RUN": str(folder), "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7", "SLURM_STEP_GPUS": "2"}
    answer = _typed(environment | there, "slurm", "task-prolog")
    assert "CUDA_VISIBLE_DEVICES=MIG-" in answer, answer

    def bare() -> None:
        subprocess.run([sys.executable, "-c", "pass"], check=True)

    sides = {
        "prolog": lambda: clock(lambda: _typed(environment | there, "slurm", "task-prolog")),
        "bare": lambda: clock(bare),
    }
    took = alternate(repeats, sides)
    over, _ = ratio(took["prolog"], took["bare"])
    found = [1e3 * t for t in took["prolog"]]
    value, goal = f"{median(found):.0f} ms, {over:.2f}x bare Python", f"<= {PROLOG_GOAL_MS:g} ms"
    verdict, extent = at_most(median(found), PROLOG_GOAL_MS), spread(found, ".0f", " ms")
    report(Figure(group, "`slurm task-prolog`, before each task", value, "simulated", goal, verdict, extent))


def _check(
    report: Report, group: str, environment: dict[str, str], folder: Path, inventory: Inventory, nodes: int
) -> None:
    """Measure ``slurm check`` of a cluster in which every node has its own lines for 56 slices."""
    offered = offered_devices(inventory)
    etc = _files(folder, offered, nodes)
    (folder / "node.json").write_bytes(msgspec.json.encode(inventory))
    lines = sum(len((etc / name).read_text().splitlines()) for name in ("slurm.conf", "gres.conf"))
    code = digest_files([str(path) for path in etc.iterdir()])
    report(Figure(group, f"input: files of {nodes} nodes, {lines} lines", f"sha256 {code}", "simulated"))
    words = ["slurm", "check", "--conf-dir", str(etc), "--slurm-version", "24.11"]
    took = [clock(lambda: _typed(environment, *words, "--files-only"))]
    _report(report, group, f"`slurm check` of {nodes} nodes, files alone", took, "s")
    every = [w for n in range(nodes) for w in ("--inventory", f"{_name(n)}={folder / 'node.json'}")]
    took = [clock(lambda: _typed(environment, *words, *every))]
    _report(report, group, f"`slurm check` of {nodes} nodes, against the inventory of each", took, "s")


def _name(number: int) -> str:
    return f"n{number:04d}"


def _files(folder: Path, offered: OfferedDevices, nodes: int) -> Path:
    """Write correct files, as ``render`` and ``apply`` write them."""
    etc = folder / "etc"
    etc.mkdir()
    names = [_name(n) for n in range(nodes)]
    form = gres.GresForm(version=Version(24, 11))
    value = gres_value(offered)
    lines = [f"NodeName={n} CPUs=128 RealMemory=1000000 Gres={value} State=UNKNOWN" for n in names]
    conf = "ClusterName=bed\nSlurmctldHost=head\nGresTypes=gpu\nSelectType=select/cons_tres\nTaskPlugin=task/cgroup"
    conf += "\nTaskProlog=/usr/local/libexec/aliquot/task-prolog.sh"
    (etc / "slurm.conf").write_text("\n".join([conf, *lines, "PartitionName=all Nodes=ALL Default=YES\n"]))
    (etc / "gres.conf").write_text("".join(f"{line}\n" for n in names for line in gres.lines(n, offered, form)))
    (etc / "cgroup.conf").write_text("ConstrainDevices=yes\n")
    return etc


def _report(report: Report, group: str, name: str, values: Sequence[float], unit: str) -> None:
    form = ".0f" if unit == "ms" else ".1f"
    value = f"{median(values):{form}} {unit} median"
    report(Figure(group, name, value, "simulated", "", "-", spread(values, form, f" {unit}")))
