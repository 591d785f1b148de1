"""Make ``tests/golden/state/RELEASE``: the state of a release that is killed, at each record of its journal.

    python tools/golden_state.py RELEASE [SRC]

``SRC`` is the ``src`` folder of that release, by default this checkout's. Its dependencies are those of this Python.
A file has one story: commands on a simulated node, and the directory of the node at each record of the last command.
The directory includes the simulator's own state. ``others.json`` is a directory of the state files that no such
command writes. ``program.tar.xz`` has the modules of that release that these commands need. The release after it runs
them on its own directories, also in a checkout without history. Later releases must read all of them
(``tests/system/cli/test_version_skew.py``). Make them once for each release, and never again, because hosts have them.
Only the program of the previous release is needed; older ones can be deleted.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests/golden/state"
FOLDER = Path("/tmp/aliquot-golden-state")
NODE = "node"
STORIES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "mig": ("a100-sxm4-40gb", ("apply --gpu 0 --mig 3g.20gb,1g.5gb",), "apply --gpu 0 --mig 2g.10gb*2,1g.5gb"),
    "mode": ("a100-sxm4-40gb,a100-sxm4-40gb", ("apply --gpu 1 --mig 7g.40gb",), "apply --gpu 0 --mig 3g.20gb,2g.10gb"),
    "vgpu": ("a2:vfio", ("apply --gpu 0 --vgpu A2-8Q:1",), "apply --gpu 0 --vgpu A2-4Q:2"),
}
"""Template of the node, commands before, and the command that is killed."""
ALSO = ("show", "history", "restore --boot", "sim reboot")
"""More commands that the program of a release must run."""
NOT_STATE = ("calls.jsonl", "driver", "lib.key", "libnvidia-ml.so.1", "lock", "nvml.sock", "control.sock", "*.lock")
RECORDER = f"""
import os, re, runpy, shutil, sys
node, target, sys.argv = sys.argv[1], sys.argv[2], ["aliquot", *sys.argv[3:]]
write, cuts = os.write, []

def recording(handle, data):
    done = write(handle, data)
    if re.match(rb"[0-9a-f]{{8}} \\{{", bytes(data)):
        shutil.copytree(node, f"{{target}}/{{len(cuts):02}}", ignore=shutil.ignore_patterns(*{NOT_STATE!r}))
        cuts.append(data)
    return done

os.write = recording
runpy.run_module("aliquot", run_name="__main__", alter_sys=True)
"""
VALUES: dict[str, Any] = {
    "agent": {
        "stopped": {"units": [{"name": "nvsm.service", "failed": True}, {"name": "dcgm.service", "failed": False}]},
        "reboot": {"digest": "d1", "boot": "b1", "at": 12.5},
    },
    "reservations": {
        "id": "r1", "runtime": "docker", "devices": ["MIG-1", "MIG-2"], "asked": ["2x1g.5gb"],
        "made": 5.0, "until": None, "name": "train", "container": "c1", "where": {"DOCKER_HOST": "unix:///run/docker.sock"},
    },
    "usage": {
        "boot": "b1", "at": 1700000000.0,
        "pieces": [{"gpu": "0000:01:00.0", "uuid": "GPU-1", "since": 1690000000.0, "instance": 7, "profile": "1g.5gb",
                    "placement": "0:1", "devices": ["MIG-1"], "idle": 1695000000.0, "peak_mib": 900}],
    },
    "change": {
        "run": "r1", "kind": "dynamic", "phase": "gpus", "drained": True, "touched": True, "began": 5.0,
        "change": {"settings": {"name": "n1"}, "desired": {"gpus": [{"pci": "0000:01:00.0", "mig": True}]}},
        "steps": [["drain", 1.5]],
    },
    "history": {
        "cuts": [{"when": 5.0, "record": "n0", "jobs": [1, 2], "user": "ann"}],
        "failures": {"n1": {"when": 6.0, "times": 2, "why": "no"}},
        "idle": {"n2": 7.0}, "promised": {"4": 8.0}, "stuck": {"5": 9.0}, "swaps": {"h": "h-1g"},
    },
}  # fmt: skip
"""The content of the other state files."""
WRITER = """
import importlib, os, sys, types
import msgspec

folder, values = sys.argv[1], msgspec.json.decode(sys.argv[2])

def module(*names):
    for name in names:
        try:
            return importlib.import_module("aliquot." + name)
        except ModuleNotFoundError:
            pass
    raise SystemExit(f"none of {names}")

def named(where, *names):
    # a class that releases call by one of these names
    return next(getattr(where, name) for name in names if hasattr(where, name))

agent = module("kubernetes.label_agent.agent.state_file", "agent.durable")
named(agent, "AgentStateFile", "Record")(folder).write(msgspec.convert(values["agent"], agent.Durable))
containers = module("node.holders.reservations", "integrations.containers.reservations")
reservation = msgspec.convert(values["reservations"], named(containers, "ContainerReservation", "Reservation"))
named(containers, "ReservationFile", "Reservations")(folder).save([reservation])
usage = module("node.usage_tracker", "node.usage_record", "backends.watching")
history = msgspec.convert(values["usage"], named(usage, "UsageHistory", "Watch"))
assert named(usage, "UsageRecord", "Record")(folder, folder).write(history)
change = module("slurm.node.change_record", "agent.slurm.record")
record = msgspec.convert(values["change"], named(change, "ChangeRecord", "Record"))
named(change, "ChangeRecordFile", "RecordFile")(folder, "n1").write(record)
history = module("slurm.controller.history", "controller.slurm.history")
cuts = msgspec.convert(values["history"], named(history, "SlurmHistory", "History"), strict=False)
history.write(os.path.join(folder, "slurm-controller.json"), cuts)
"""


def main() -> int:
    release, source = sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "src").resolve()
    (TARGET / release).mkdir(parents=True, exist_ok=True)
    for name, (template, before, last) in STORIES.items():
        FOLDER.mkdir()  # a fixed one: the oldest release records where its simulator lies
        try:
            cuts = _directories(FOLDER, source, template, before, last)
        finally:
            shutil.rmtree(FOLDER)
        story = {"template": template, "before": before, "command": last} | _packed(cuts)
        (TARGET / release / f"{name}.json").write_text(json.dumps(story, indent=1) + "\n")
        print(f"{release}/{name}: {len(cuts)} directories")
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ) | {"PYTHONPATH": str(source)}
        words = [sys.executable, "-P", "-c", WRITER, folder, json.dumps(VALUES)]
        subprocess.run(words, env=environment, check=True)
        others = _packed([_files(Path(folder))])
    (TARGET / release / "others.json").write_text(json.dumps(others, indent=1) + "\n")
    with tarfile.open(TARGET / release / "program.tar.xz", "w:xz", preset=9) as archive:
        for path in sorted(_program(source)):
            archive.add(path, str(path.relative_to(source)), filter=_plain)
    return 0


def _program(source: Path) -> set[Path]:
    """Return the modules that the commands import, those that these may import, and the data of their packages."""
    modules, found = set[Path](), _loaded(source)
    while found:
        modules |= found
        found = {each for path in found for each in _imports(source, path)} - modules
    data = (path for path in (source / "aliquot").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc"))
    return modules | {path for path in data if _package(path) / "__init__.py" in modules}


def _loaded(source: Path) -> set[Path]:
    """Return the modules that the commands load here, found by the bytecode that they leave."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME")} | {
            "PYTHONPATH": str(source),
            "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
            "ALIQUOT_STATE_DIR": f"{folder}/state",
            "ALIQUOT_SIM": NODE,
        }
        for backend, (template, before, last) in itertools.product(("", "direct"), STORIES.values()):
            environment["ALIQUOT_BACKEND"] = backend
            start = f"sim start {template} --name {NODE}"
            for words in (start, *before, last, *ALSO, "sim stop --all"):
                command = [sys.executable, "-P", "-m", "aliquot", *shlex.split(words)]
                subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True)
        bytecode = Path(f"{folder}/bytecode{source}")
        cached = [path.relative_to(bytecode) for path in bytecode.rglob("*.pyc")]
        return {source / path.with_name(path.name.partition(".")[0] + ".py") for path in cached}


def _imports(source: Path, path: Path) -> set[Path]:
    """Return the imports of a module, also within its functions, because these depend on the host."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    places = [source / name.replace(".", "/") for name in names if name.partition(".")[0] == "aliquot"]
    named = {each for place in places for each in (place.with_suffix(".py"), place / "__init__.py") if each.exists()}
    packages = {folder / "__init__.py" for folder in path.parents if source in folder.parents}
    return named | {each for each in packages if each.exists()}


def _package(path: Path) -> Path:
    return next(folder for folder in path.parents if (folder / "__init__.py").exists())


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove owner and time of the host that packs it."""
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _directories(folder: Path, source: Path, template: str, before: tuple[str, ...], last: str) -> list[dict[str, str]]:
    """Return the files of the node at each record of the last command, and after it."""
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME")} | {
        "PYTHONPATH": str(source),
        "ALIQUOT_STATE_DIR": str(folder / "state"),
        "ALIQUOT_SIM": NODE,
        "ALIQUOT_BACKEND": "direct",
        "SUDO_USER": "ann",
    }

    def run(*words: str) -> None:
        subprocess.run([sys.executable, "-P", *words], env=environment, cwd=folder, check=True, capture_output=True)

    node, target = folder / "state/sim" / NODE, folder / "cuts"
    run("-m", "aliquot", "sim", "start", template, "--name", NODE)
    try:
        for command in before:
            run("-m", "aliquot", *shlex.split(command))
        run("-c", RECORDER, str(node), str(target), *shlex.split(last))
        shutil.copytree(node, target / "end", ignore=shutil.ignore_patterns(*NOT_STATE))
    finally:
        run("-m", "aliquot", "sim", "stop", "--all")
    return [_files(cut) for cut in sorted(target.iterdir())]


def _files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def _packed(cuts: list[dict[str, str]]) -> dict[str, Any]:
    """Store each text once. A directory names a text and the length that its file has, because journals only grow."""
    texts: list[str] = []
    packed: list[dict[str, tuple[int, int]]] = []
    for cut in reversed(cuts):
        packed.append({})
        for name, text in cut.items():
            found = next((n for n, whole in enumerate(texts) if whole.startswith(text)), len(texts))
            if found == len(texts):
                texts.append(text)
            packed[-1][name] = found, len(text)
    return {"texts": texts, "directories": packed[::-1]}


if __name__ == "__main__":
    sys.exit(main())
