"""Full text of what users read. ``ALIQUOT_GOLDEN=write pytest tests/system/cli/test_golden.py`` rewrites it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

from .conftest import Result, Run, Sim

GOLDEN = Path(__file__).parent / "golden"
WRITE = os.environ.get("ALIQUOT_GOLDEN") == "write"


def compare(name: str, *results: tuple[str, Result]) -> None:
    """Compare a transcript with its file: each command, its stdout, its stderr (marked), its exit code."""
    lines: list[str] = []
    for command, result in results:
        lines += [f"$ aliquot {command}", *result.out.splitlines()]
        lines += [f"stderr: {line}" for line in result.err.splitlines()]
        lines += [f"exit {result.code}", ""]
    text = "\n".join(lines)
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.write_text(text)
    assert text == path.read_text()


def transcript(run: Run, *commands: str) -> list[tuple[str, Result]]:
    return [(command, run(*shlex.split(command))) for command in commands]


@pytest.fixture
def busy(a100: Sim) -> Sim:
    """Create three 1g.5gb on one A100, the first held: the picture of the style guide."""
    a100.node.set_mode(0, True)
    for start in (0, 1, 4):
        a100.node.create(0, "1g.5gb", start)
    a100.node.hold(0, 7, pid=8812)
    return a100


def test_a_fresh_node(dgx: Sim, run: Run) -> None:
    compare("fresh", *transcript(run, "show", "plan --gpu 0-7 --mig 3g.20gb,2g.10gb", "show 3", "profiles 0"))


def test_a_busy_gpu(busy: Sim, run: Run) -> None:
    compare(
        "busy",
        *transcript(
            run,
            "show",
            "plan --gpu 0 --mig 3g.20gb,1g.5gb",
            "plan --gpu 0 --mig 7g.40gb",
            "plan --gpu 0 --mig 7g.40gb --policy force",
            "explain 4g.20gb",
            "explain 2g.10gb",
            "verify --gpu 0 --mig 3g.20gb,1g.5gb",
            "profiles",
        ),
    )


def test_a_life(busy: Sim, run: Run) -> None:
    # Plan, apply, verify, change by hand, detect the drift, repair.
    compare(
        "life",
        *transcript(
            run,
            "apply --gpu 0 --mig 3g.20gb,1g.5gb",
            "apply --gpu 0 --mig 3g.20gb,1g.5gb",
            "verify --gpu 0 --mig 3g.20gb,1g.5gb",
            "sim destroy 0 2",
            "verify --gpu 0 --mig 3g.20gb,1g.5gb",
            "apply --gpu 0 --mig 3g.20gb,1g.5gb",
            "show",
        ),
    )


def test_different_gpus_side_by_side(mixed: Sim, run: Run) -> None:
    request = "--gpu 0 --gpu 1 --gpu 2 --mig 1g.6gb:2,2g.12gb --mig 1c.3g.40gb,3g.40gb --mig 2g.48gb,1g.24gb"
    plan = transcript(run, f"plan {request}")
    # GPUs report in any order, so progress lines of apply are not compared.
    assert run("apply", *request.split()).code == 0
    after = transcript(run, "show", "export", "export --native", "explain 4g.96gb --gpu 2", "plan --gpu 3 --mig 1g.5gb")
    compare("mixed", *plan, *after)


def test_json_shapes(busy: Sim, run: Run) -> None:
    compare(
        "json",
        *transcript(
            run,
            "show -o json",
            "plan --gpu 0 --mig 3g.20gb,1g.5gb -o json",
            "plan --gpu 0 --mig 7g.40gb -o json",
            "verify --gpu 0 --mig 7g.40gb -o json",
            "apply --gpu 0 --mig 3g.20gb,1g.5gb -o json",
            "show 9 -o json",
        ),
    )


def test_warnings_of_known_bad_drivers(state: str, run: Run) -> None:
    names = {"bad": "570.133.20", "good": "570.86.15", "r535": "535.183.01", "old": "450.51.06"}
    for name, driver in names.items():
        control.start(state, "a100-sxm4-40gb*2", name, driver=driver)
    for name in ("bad", "good"):
        node = SimClient(state, name)
        node.set_mode(0, True)
        node.close()
    compare("drivers", *transcript(run, *(f"show 1 --sim {name}" for name in names)))
    for name in names:
        control.stop(state, name)
