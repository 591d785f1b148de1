"""Start-up cost, checked by the set of imported modules instead of milliseconds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from aliquot.errors import AliquotError
from aliquot.sim import lifecycle as control

from .conftest import SOURCE, Sim

HEAVY = {
    *("asyncio", "email", "http", "json", "logging", "pathlib", "importlib.resources", "importlib.metadata"),
    *("pickle", "random", "ssl", "statistics", "typing_extensions", "urllib", "xml", "dataclasses", "difflib"),
    *("concurrent", "multiprocessing", "traceback", "inspect", "ast", "dis", "tokenize", "fractions", "configparser"),
    *("unittest", "pprint", "shutil", "tempfile"),
}
"""Modules that slow start-up and that a verb which only reads and plans does not need."""

ENGINE = {"aliquot.core.engine.apply", "aliquot.core.engine.executor", "subprocess"}

ACTIONS = {
    f"aliquot.hardware.kernel.{part}"
    for part in ("vgpus", "handing", "passthrough", "switching", "table", "mdev", "vendor_vfio")
}
"""Modules needed only on a node with vGPUs, or for a change."""


def imported(*words: str, code: int = 0, **environment: str) -> set[str]:
    """Return the modules that a command imported by its end, without those of bare Python."""
    names = "','.join(sorted(sys.modules))"
    script = (
        f"import sys; from aliquot.cli.main import main; c = main({list(words)!r}); sys.stderr.write('\\n@' + {names})"
    )
    script += "; raise SystemExit(c)"
    env = {**os.environ, "PYTHONPATH": SOURCE, **environment}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert done.returncode == code, done.stderr
    nothing = f"import sys; print({names})"
    bare = subprocess.run([sys.executable, "-c", nothing], capture_output=True, text=True, env=env)
    return set(done.stderr.rpartition("\n@")[2].split(",")) - set(bare.stdout.strip().split(","))


def test_version_imports_nothing() -> None:
    assert imported("--version") == {"aliquot", "aliquot.cli", "aliquot.cli.main"}


def test_help_needs_no_model() -> None:
    names = imported("plan", "--help")
    assert "argparse" in names
    assert not {
        n for n in names if n.startswith(("msgspec", "aliquot.core.model", "aliquot.core.planner", "aliquot.hardware"))
    }


def test_only_the_verb_that_was_typed_is_imported(a100: Sim) -> None:
    names = imported("plan", "--gpu", "0", "--mig", "3g.20gb", code=10)
    verbs = {"show", "apply", "verify", "explain", "sim", "migparted", "catalog", "completion", "generate", "restore"}
    assert not {f"aliquot.cli.{verb}" for verb in verbs} & names


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_typed_request_is_planned_without_heavy_modules(a100: Sim, form: str) -> None:
    names = imported("plan", "--gpu", "0", "--mig", "3g.20gb", "-o", form, code=10)
    assert (HEAVY | ENGINE | ACTIONS) & names == set()


def test_a_file_is_planned_without_heavy_modules(a100: Sim) -> None:
    with open("wish.yaml", "w") as stream:
        stream.write("version: aliquot/v1\nconfigs: {one: [{gpus: all, mig: {3g.20gb: 1}}]}\n")
    names = imported("plan", "-f", "wish.yaml", code=10)
    assert (HEAVY | ENGINE) & names == set()


def test_the_real_backend_is_no_exception(a100: Sim) -> None:
    # Uses the shim library if a compiler can build it.
    try:
        control.library(a100.node.state_dir, a100.name)
    except AliquotError as error:
        pytest.skip(error.brief)
    names = imported("plan", "--gpu", "0", "--mig", "3g.20gb", code=10, ALIQUOT_BACKEND="shim")
    assert "aliquot.hardware.nvml.backend" in names
    assert (HEAVY | ENGINE) & names == set()


def test_completion_at_tab_time_is_cheap(a100: Sim) -> None:
    names = imported("__complete", "profiles")
    assert (HEAVY | ENGINE | {"yaml"}) & names == set()
    assert not {n for n in names if n.startswith("aliquot.core.planner")}


def test_a_plan_without_vgpus_loads_nothing_of_their_planner(a100: Sim) -> None:
    names = imported("plan", "--gpu", "0", "--mig", "3g.20gb", code=10)
    assert not {n for n in names if n.startswith("aliquot.core.planner.vgpu")}


def test_an_agent_loads_what_it_needs_only_on_some_nodes_when_it_needs_it() -> None:
    # D-Bus is for the host's services and gRPC for the kubelet: megabytes for the lifetime of the agent.
    module = "aliquot.kubernetes.label_agent.agent.main"
    script = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    env = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    assert {"jeepney", "grpclib", "google"}.isdisjoint(done.stdout.split())
