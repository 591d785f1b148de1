"""One mechanism each: what runs a program, and where it may be imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/aliquot"
RUNNER = "foundation/bounded_process.py"


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text())


def imported(tree: ast.AST) -> set[str]:
    """The modules that are imported anywhere in a file, by their full names."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def dotted(tree: ast.AST) -> set[str]:
    """The attributes that a file names, as ``os.system``."""
    return {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def test_one_module_runs_programs() -> None:
    users = [name for name, tree in modules() if "subprocess" in imported(tree)]
    assert users == [RUNNER]
    others = {"os.system", "os.popen", "os.spawnv", "os.posix_spawnp", "asyncio.create_subprocess_exec"}
    others |= {"asyncio.create_subprocess_shell", "asyncio.subprocess"}
    assert not {name: found for name, tree in modules() if (found := dotted(tree) & others)}


def test_a_command_that_runs_no_program_does_not_import_the_runner() -> None:
    """Below the command line, whose start is measured, it is imported where a program is run."""
    eager = [
        name
        for name, tree in modules()
        if name.startswith(("core/", "hardware/", "node/", "cdi/", "containers/", "libvirt/", "cli/", "metrics/"))
        and any(isinstance(n, ast.Import | ast.ImportFrom) and RUNNER_MODULE in imported(n) for n in tree.body)
    ]
    assert not eager


RUNNER_MODULE = "aliquot.foundation.bounded_process"
