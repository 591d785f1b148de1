"""E7: the time of whole commands, alternating with a bare interpreter of the same kind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from compileall import compile_dir
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.bench_node import started
from benchmarks.measure import Figure, Report, at_most, digest, ratio, spread

import aliquot
from aliquot.sim import lifecycle as control

GROUP = "E7 command start"
PLAN_GOAL_MS = 250.0
PLAN_GOAL_RATIO = 5.0
VERSION_GOAL_RATIO = 1.5

REQUEST = """version: aliquot/v1
configs:
  train:
    - gpus: {index: "0-3"}
      mig: {3g.40gb: 2}
    - gpus: {index: "4-6"}
      mig: {1g.10gb: 5, 2g.20gb: 1}
"""

_LAUNCHER = """
import os, sys, time
repeats, quiet = int(sys.argv[1]), [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
sides = [line.split("\\0") for line in sys.stdin.read().split("\\n") if line]
for turn in range(-2, repeats):
    for n in range(len(sides)) if turn % 2 == 0 else reversed(range(len(sides))):
        start = time.perf_counter()
        pid = os.posix_spawn(sides[n][0], sides[n], os.environ, file_actions=quiet)
        status, usage = os.wait4(pid, 0)[1:]
        took = time.perf_counter() - start
        if turn >= 0:
            print(n, took * 1e3, usage.ru_maxrss / 1024, os.waitstatus_to_exitcode(status))
"""
"""Start every side in turn, in a small process of its own: a child's resident size starts with its parent's."""

_GO = 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello") }\n'


def run(report: Report, quick: bool) -> None:
    compile_dir(os.path.dirname(aliquot.__file__), quiet=2)
    with TemporaryDirectory(prefix="aliquot-bench-") as folder, started("dgx-h100", "none") as (state_dir, name):
        request = os.path.join(folder, "wish.yaml")
        with open(request, "w") as file:
            file.write(REQUEST)
        control.library(state_dir, name)
        environment = {**os.environ, "ALIQUOT_STATE_DIR": state_dir, "ALIQUOT_SIM": name}
        report(Figure(GROUP, "input: the request", f"sha256 {digest(REQUEST.encode())}", "measured"))
        peers = _go_peers(folder)
        commands = _commands(request) | {title: command for title, command in peers.items() if command}
        found = _launch(commands, 5 if quick else 30, environment)
    for title in commands:
        _report(report, title, found, title in peers)
    for title, command in peers.items():
        if not command:
            report(Figure(GROUP, title, "not here", "measured", verdict="skipped"))


def _commands(request: str) -> dict[str, list[str]]:
    python = sys.executable
    script = os.path.join(os.path.dirname(python), "aliquot")
    ours = [script] if os.path.exists(script) else [python, "-m", "aliquot"]
    parser = "import argparse; argparse.ArgumentParser().parse_args([])"
    return {
        "bare Python": [python, "-c", "pass"],
        "Python with argparse": [python, "-c", parser],
        "aliquot --version": [*ours, "--version"],
        "aliquot --help": [*ours, "--help"],
        "aliquot plan, from a file": [*ours, "plan", "-f", request, "-c", "train"],
        "aliquot plan, typed": [*ours, "plan", "--gpu", "0", "--mig", "3g.40gb"],
    }


def _go_peers(folder: str) -> dict[str, list[str]]:
    """Return the available Go programs: a hello built here, and a binary linked with the Kubernetes libraries."""
    go, kubectl = shutil.which("go"), shutil.which("kubectl")
    hello: list[str] = []
    if go:
        source, target = os.path.join(folder, "hello.go"), os.path.join(folder, "hello")
        with open(source, "w") as file:
            file.write(_GO)
        if subprocess.run([go, "build", "-o", target, source], capture_output=True, cwd=folder).returncode == 0:
            hello = [target]
    linked = [kubectl, "version", "--client"] if kubectl else []
    return {"Go hello": hello, "Go binary linked with Kubernetes (kubectl version --client)": linked}


Found = dict[str, tuple[list[float], list[float]]]
"""Milliseconds and resident MiB of each run."""


def _launch(commands: dict[str, list[str]], repeats: int, environment: dict[str, str]) -> Found:
    reported = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(repeats)],
        input="\n".join("\0".join(command) for command in commands.values()),
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    out: Found = {title: ([], []) for title in commands}
    for line in reported.stdout.splitlines():
        n, took, resident, code = line.split()
        title = list(commands)[int(n)]
        if int(code) != (10 if " plan" in title else 0):
            raise AssertionError(f"{title} ended with {code}")
        out[title][0].append(float(took))
        out[title][1].append(float(resident))
    return out


def _report(report: Report, title: str, found: Found, peer: bool) -> None:
    took, resident = found[title]
    over, _ = ratio(took, found["bare Python"][0])
    value = f"{median(took):.1f} ms, {over:.2f}x bare Python, {median(resident):.0f} MiB resident"
    goal, verdict = "", "-"
    if "plan" in title:
        goal = f"<= {PLAN_GOAL_MS:g} ms and <= {PLAN_GOAL_RATIO:g}x"
        fine = median(took) <= PLAN_GOAL_MS and over <= PLAN_GOAL_RATIO
        verdict = "reached" if fine else "missed"
    elif title.endswith("--version"):
        goal, verdict = f"<= {VERSION_GOAL_RATIO}x", at_most(over, VERSION_GOAL_RATIO)
    kind = "simulated" if "plan" in title else "measured"
    report(Figure(GROUP, title, value, kind, goal, verdict, spread(took, ".1f", " ms")))
