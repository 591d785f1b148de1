"""Write what a move of code must not change: every help page, a rehearsed day with its state files, the imports.

Usage: python tools/artefacts.py FOLDER

``tests/golden/day`` holds the rehearsed day, and ``tests/system/cli/test_day.py`` compares it; write it again with
``ALIQUOT_UPDATE=1``. Files that depend on the host or on Python's release (``host.txt``, ``help.txt``, ``imports-*``)
are compared by hand, before and after, on one host. CRDs, manifests, the chart, the list of metrics and the outputs
in ``docs`` are files of the repository that other tests compare.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

# One GPU changes at a time: several at once report in any order.
CONFIG = """\
version: v1
mig-configs:
  halves:
  - devices: [0]
    mig-enabled: true
    mig-devices: {3g.20gb: 2}
  mixed:
  - devices: [0]
    mig-enabled: true
    mig-devices: {1g.5gb: 3, 3g.20gb: 1}
  - devices: [1]
    mig-enabled: false
"""
BAD = "version: v1\nmig-configs:\n  x:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {9g.90gb: 1}\n"
VGPU = "version: v1\nvgpu-configs:\n  q:\n  - devices: all\n    vgpu-devices: {A2-4Q: 4}\n"
# One working day: the verbs that read or change a node, right and wrong words, in an order that leaves state behind.
# ``@NODE`` names the simulated node of the lines below it. The answer to a line with ``~`` differs from host to host:
# compare it by hand, on one host.
STORY = """
sim start a100-sxm4-40gb*2 --name mig
sim start a2:vfio,a100-pcie-40gb:mdev --name vms
sim start h100-80gb-hbm3,a30 --name other
sim start nonsense -o json
sim list -o json
~ version -o json
catalog list -o json
catalog show a100-40gb -o json
show -o json

@mig
show -o json
show 0 -o markdown
profiles 1 -o json
profiles 0
generate -o json
plan --gpu 0 --mig 3g.20gb,1g.5gb*2
plan --gpu 0 --mig 3g.20gb,1g.5gb*2 -o json
plan --gpu 0 --mig 3g.20gb*3 -o json
plan -f config.yaml -c halves --out plan.json
plan -f bad.yaml -o json
plan -f config.yaml -c absent
plan --gpu 9 --mig 1g.5gb -o json
apply plan.json -o json
apply plan.json -o json
verify -f config.yaml -c halves -o json
apply -f config.yaml -c mixed -o json
show
sim hold 0 1g.5gb
sim hold 0 7 -o json
show 0 -o json
explain 4g.20gb --gpu 0 -o json
apply --gpu 0 --mig 7g.40gb -o json
apply --gpu 0 --mig 7g.40gb
verify -f config.yaml -c halves -o json
usage -o json
history -o json
export -o json
export
checkpoint --out kept.json -o json
apply --gpu 1 --mig 1g.5gb*7 -o json
restore kept.json -o json
restore kept.json
sim release 0 7 -o json
sim fault refuse create -o json
apply --gpu 1 --mig 2g.10gb -o json
sim create 1 1g.5gb -o json
sim mode 1 on -o json
sim reset 1 -o json
sim reboot -o json
show -o yaml
restore -o json
mig-parted export
mig-parted assert -f config.yaml -c halves
mig-parted apply -f config.yaml -c halves
mig-parted apply -f config.yaml -c absent
mig-parted generate-config
mig-parted export -o json
cdi generate
cdi generate -o json
cdi list -o json
~ docker run-args 0 -o json
~ docker list -o json
~ docker check -o json
~ slurm render
~ slurm render -o json
~ slurm check -o json
~ slurm demand -o json
~ slurm apply -o json
~ slurm dcgm list -o json
~ slurm task-prolog -o json
~ libvirt xml 0 -o json
~ libvirt check vm -o json
metrics
completion bash
__complete gpus
__complete profiles
sim show mig -o json

@vms
show -o json
vgpu types -o json
vgpu list -o json
vgpu enable 0 -o json
plan -f vgpu.yaml -c q -o json
apply --gpu 0 --vgpu A2-4Q:4 -o json
vgpu list -o json
vgpu list
passthrough list -o json
~ passthrough check 1 -o json
passthrough enable 1 -o json
passthrough list
~ libvirt xml 1 -o json
~ libvirt nodedev list -o json
passthrough disable 1 -o json
apply --gpu 0 --vgpu none -o json
vgpu disable 0 -o json
sim vm start guest 0 -o json
history
metrics
export

@other
apply --gpu 0 --mig 1g.10gb+me,3g.40gb -o json
apply --gpu 1 --mig 2g.12gb -o json
profiles -o json
checkpoint -o json
export -o yaml
~ capacity -o json

@
nonsense
show --nonsense
apply
plan --mig 1g.5gb -o json
sim stop other -o json
sim list
"""
IMPORTS = ("--version", "plan --gpu 0 --mig 3g.20gb")
MASKS = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"\b\d{10}\.\d+", "TIME"),
    (r"(?m)\b1\.\d+e\+09$", "TIME"),
    (r'("(?:boot|boot_id)":\s*)"[0-9a-f-]{36}"', r'\1"BOOT"'),
    (r'("(?:run|fingerprint|claim)":\s*)"[0-9a-f]{12,16}"', r'\1"HASH"'),
    (r'("(?:checksum|writer)":\s*)"[^"]+"', r'\1"X"'),
    (r'("(?:by|user|who)":\s*)"\w+"', r'\1"USER"'),
    (r"(?m)  by \S+  (.*) in [\d.]+ s$", r"  by USER  \1 in N s"),
    (r"(?m)^[0-9a-f]{8} (?={)", ""),  # the checksums of a journal's lines
    (r"(?m)^(process_\w+|python_\w+)(.*) [\d.e+]+$", r"\1\2 N"),
)
# What a later release must be able to read, and the calls that reached the driver.
STATE = ("change-journal.jsonl", "boot-record.json", "vgpu-owners.json", "usage-record.json")

Run = Callable[[list[str], dict[str, str]], tuple[int, str, str]]


def collect(run: Run, folder: Path, *, host: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each artefact.

    ``run`` runs a command line, with variables, in ``work`` below the folder and with ``state`` there as its state
    directory. ``host`` adds the artefacts that depend on the host or on Python's release.
    """
    work = folder / "work"
    work.mkdir()
    for name, text in (("config", CONFIG), ("bad", BAD), ("vgpu", VGPU)):
        (work / f"{name}.yaml").write_text(text)
    if host:
        yield "help.txt", "\n".join(f"$ {' '.join(words)}\n{page}" for words, page in _help(run, []))
    node = ""
    answer: dict[str, list[str]] = {}
    for line in filter(None, STORY.splitlines()):
        if line.startswith("@"):
            node = line[1:]
        elif host or not line.startswith("~"):
            kept = answer.setdefault("host" if line.startswith("~") else node or "nodes", [])
            code, out, err = run(shlex.split(line.removeprefix("~")), {"ALIQUOT_SIM": node} if node else {})
            kept.append(_masked(f"$ aliquot {line}\n{out}{err}[{code}]\n", folder))
    for name, texts in answer.items():
        yield f"{name}.txt", "\n".join(texts)
    for each in sorted((folder / "state/sim").iterdir()):
        for path in (each / name for name in STATE):
            if path.exists():
                yield f"{each.name}-{path.name}", _masked(path.read_text(), folder)
        if (each / "calls.jsonl").exists():
            yield f"{each.name}-calls.txt", _calls((each / "calls.jsonl").read_text())
    for path in sorted(work.glob("*.json")):
        yield path.name, _masked(path.read_text(), folder)


def _help(run: Run, path: list[str]) -> Iterator[tuple[list[str], str]]:
    page = run([*path, "--help"], {})[1]
    yield ["aliquot", *path], page
    commands = re.search(r"^commands:\n((?:  .*\n)+)", page, re.MULTILINE)
    for line in commands[1].splitlines() if commands else ():
        if re.match(r"  \S", line):
            yield from _help(run, [*path, line.split()[0]])


def _calls(text: str) -> str:
    """Return how often each call was made for each GPU, by result."""
    counts = Counter(re.sub(r'^{"seq":\d+,|,"pid":\d+|,"at":[\d.]+', "", line) for line in text.splitlines())
    return "".join(f"{count:5} {call}\n" for call, count in sorted(counts.items()))


def _masked(text: str, folder: Path) -> str:
    """Return the text without the parts that differ from run to run."""
    text = text.replace(str(folder), "FOLDER")
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    return text


def main() -> int:
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH")}
        base = keep | {"HOME": name, "NO_COLOR": "1", "COLUMNS": "100", "ALIQUOT_STATE_DIR": str(folder / "state")}

        def run(words: list[str], extra: dict[str, str], *options: str) -> tuple[int, str, str]:
            done = subprocess.run(
                [sys.executable, *options, "-m", "aliquot", *words],
                cwd=folder / "work",
                env=base | {"ALIQUOT_BACKEND": "direct"} | extra,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            return done.returncode, done.stdout, done.stderr

        for each, text in collect(run, folder):
            (target / each).write_text(text)
        for words in IMPORTS:
            times = run(shlex.split(words), {"ALIQUOT_SIM": "mig"}, "-X", "importtime")[2]
            names = sorted(re.findall(r"\| +(aliquot[\w.]*)$", times, re.MULTILINE))
            (target / f"imports-{words.split()[0].strip('-')}.txt").write_text("\n".join(names) + "\n")
        run(["sim", "stop", "--all"], {})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
