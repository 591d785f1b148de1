"""Single mechanisms: one way each to run a program, to back off, and to write a file."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from support.syntax import nodes, tree

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/aliquot"
RUNNER = "foundation/bounded_process.py"


Nodes = Sequence[ast.AST]


@cache
def modules() -> tuple[tuple[str, Nodes], ...]:
    return tuple((str(path.relative_to(SOURCE)), nodes(path)) for path in sorted(SOURCE.rglob("*.py")))


@cache
def names() -> tuple[tuple[str, frozenset[str], frozenset[str]], ...]:
    """Return each module with the attributes that it accesses, dotted (``os.replace``) and by their last name."""
    return tuple((name, frozenset(dotted(every)), frozenset(attributes(every))) for name, every in modules())


def imported(every: Nodes) -> set[str]:
    """Return the full names of all modules that a file imports."""
    found: set[str] = set()
    for node in every:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found


def dotted(every: Nodes) -> set[str]:
    """Return the attributes that a file accesses, as dotted names such as ``os.system``."""
    return {
        f"{node.value.id}.{node.attr}"
        for node in every
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def test_one_module_runs_programs() -> None:
    users = [name for name, every in modules() if "subprocess" in imported(every)]
    assert users == [RUNNER]
    others = {"asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell", "asyncio.subprocess"}
    others |= {f"os.{name}" for name in dir(os) if name.startswith(("exec", "spawn", "posix_spawn", "popen", "system"))}
    assert not {name: found for name, dotted, _ in names() if (found := dotted & others)}


def test_the_core_keys_nothing_by_the_identity_of_objects() -> None:
    # Equal values give the same result, even if different objects hold them.
    found = [
        name
        for name, every in modules()
        if name.startswith("core/")
        and (
            any(module.partition(".")[0] == "weakref" for module in imported(every))
            or any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "id" for n in every)
        )
    ]
    assert not found


def test_two_modules_fork() -> None:
    # A watch forks the process that draws its picture, and the simulator's server daemonizes itself.
    forking = {name for name, dotted, _ in names() if dotted & {"os.fork", "os.forkpty", "pty.fork"}}
    assert forking == {"cli/watch/child_process.py", "sim/server.py"}


def test_a_command_that_runs_no_program_does_not_import_the_runner() -> None:
    # The start of the command line is measured: it imports the runner only to run a program.
    eager = [
        name
        for name, every in modules()
        if name.startswith(("core/", "hardware/", "node/", "cdi/", "containers/", "libvirt/", "cli/", "metrics/"))
        and RUNNER_MODULE in imported(tree(SOURCE / name).body)
    ]
    assert not eager


RUNNER_MODULE = "aliquot.foundation.bounded_process"


OPENED_FOR_WRITING = {
    # a device or a pipe that the user named; links of other users are refused before
    "cli/framework/owned_files.py": 1,
    # in a folder that tempfile has just created
    "sim/shim_build.py": 1,
    "slurm/files/slurmd_validation.py": 3,
}


def test_a_file_that_is_made_is_not_made_through_a_link() -> None:
    # Another user could create a link in a folder that both can write to.
    makers = [(name, every) for name, every in modules() if "O_CREAT" in attributes(every)]
    functions = [(name, node) for name, every in makers for node in every if isinstance(node, ast.FunctionDef)]
    making = [(name, found) for name, node in functions if "O_CREAT" in (found := attributes([*ast.walk(node)]))]
    assert len(making) >= len(makers)
    assert not [name for name, found in making if "O_NOFOLLOW" not in found]
    opened = {name: count for name, every in modules() if (count := sum(map(opens_for_writing, every)))}
    assert opened == OPENED_FOR_WRITING


def opens_for_writing(node: ast.AST) -> bool:
    """Report whether a call opens a path, and not a descriptor, in a mode that may write."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and node.args):
        return False
    called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
    if called in ("write_text", "write_bytes"):
        return isinstance(node.func, ast.Attribute)
    if called not in ("open", "FileIO"):
        return False
    mode = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "mode"), None)
    writes = isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set("wax+") & set(mode.value)
    opened = re.match(r"(os\.open|open_private|open_for_append)\(", ast.unparse(node.args[0]))
    return bool(writes) and not opened


@pytest.mark.parametrize("code", ["open(path, 'ab')", "FileIO(path, mode='r+')", "path.write_text('x')"])
def test_a_path_that_is_opened_for_writing_is_found(code: str) -> None:
    assert sum(map(opens_for_writing, ast.walk(ast.parse(code)))) == 1
    assert not any(map(opens_for_writing, ast.walk(ast.parse("open(path)\nopen(os.open(path, flags), 'w')"))))


def test_one_module_makes_pauses_grow() -> None:
    found = {name: lines for name, every in modules() if (lines := growing(every))}
    assert set(found) <= {"foundation/backoff.py"}, found


RENAMES = {"os.replace", "os.rename", "os.renames", "os.link", "shutil.move", "shutil.copyfile"}
"""Calls that could become a second way to replace a file."""
WRITES = {"write_text", "write_bytes"}
NO_STATE = {
    "cdi/spec_files.py",  # CDI's own format, generated again from the GPUs
    "cli/framework/owned_files.py",  # a file that the user named
    "kubernetes/dra/plugin/device_metadata.py",  # the format that containers read; written again with each claim
    "sim/server.py",  # the driver branch and the command line of the simulator
    "sim/shim_build.py",  # a compiled library
    "sim/tools/api.py",  # programs
    "slurm/files/gpu_numbering.py",  # below /run, read by each task of a job: written again with gres.conf
    "slurm/jobs/dcgm_mapping.py",  # dcgm-exporter's own format
    "slurm/node/change_record.py",  # gres.conf and slurm.conf
    "slurm/node/device_nodes.py",  # device nodes
    "hardware/state/journal.py",  # appends lines that have their own checksums
    "foundation/state_store.py",
}
"""Modules that replace a file themselves. All other state is a ``StateFile``."""


def test_one_function_replaces_files() -> None:
    found = {name: used for name, dotted, _ in names() if (used := dotted & RENAMES)}
    assert found == {"foundation/atomic_file.py": {"os.replace", "os.link"}}
    source = (SOURCE / "foundation/atomic_file.py").read_text()
    assert source.count("os.replace(") == 1
    assert not [name for name, _, attributes in names() if attributes & WRITES]


def test_state_is_kept_in_the_state_store() -> None:
    # A new state file is a ``StateFile``, or the list here gives the reason why not.
    found = {name for name, dotted, _ in names() if dotted & {"atomic_file.replace", "atomic_file.rename"}}
    assert found == NO_STATE
    hidden = {"from aliquot.foundation.atomic_file", "atomic_file as "}
    assert not [name for name, _ in modules() if any(each in (SOURCE / name).read_text() for each in hidden)]


def attributes(every: Nodes) -> set[str]:
    """Return the names of all attributes that a file accesses."""
    return {node.attr for node in every if isinstance(node, ast.Attribute)}


def growing(every: Nodes) -> list[int]:
    """Return the lines with a power of 2 or with ``x = min(x * 2, ...)``, which is a hand-written exponential
    back-off.
    """
    found = []
    for node in every:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base, power = node.left, node.right
            if isinstance(base, ast.Constant) and base.value == 2 and not isinstance(power, ast.Constant):
                found.append(node.lineno)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            called = isinstance(node.value.func, ast.Name) and node.value.func.id in ("min", "max")
            if called and any(multiplied(each, names) for each in node.value.args):
                found.append(node.lineno)
    return found


def multiplied(node: ast.expr, names: set[str]) -> bool:
    """Report whether a node is a product of one of these names and a number."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = (node.left, node.right)
    return any(isinstance(s, ast.Name) and s.id in names for s in sides) and any(
        isinstance(s, ast.Constant) for s in sides
    )


def test_a_pause_that_doubles_by_hand_is_found() -> None:
    assert growing([*ast.walk(ast.parse("pause = min(pause * 2, 60.0)"))])
    assert growing([*ast.walk(ast.parse("return min(FIRST * 2.0 ** min(n - 1, 10), LONGEST)"))])
    assert not growing([*ast.walk(ast.parse("MOST = 16 * 2**20"))])


HEARS = {"signal.signal", "signal.pthread_sigmask", "signal.sigwait", "signal.siginterrupt"}
ENDING = {"signal.SIGINT", "signal.SIGTERM", "signal.SIGHUP"}


def test_one_module_hears_the_signals_that_end_a_command() -> None:
    # The module that draws the picture handles the terminal's own signals (a new size, Ctrl-Z).
    hearing = {name for name, every in modules() if dotted(every) & HEARS or "add_signal_handler" in attributes(every)}
    assert hearing == {"foundation/signals.py", "cli/watch/watch.py"}
    assert dotted(nodes(SOURCE / "cli/watch/watch.py")) & ENDING <= {"signal.SIGINT"}, "compared, not handled"
    wakers = {name for name, every in modules() if "signal.set_wakeup_fd" in dotted(every)}
    assert wakers == {"foundation/call_watchdog.py", "foundation/signals.py", "cli/watch/watch.py"}


def test_one_module_reads_the_variables_of_libvirt() -> None:
    # The command line declares libvirt's variable as the default of an option: its parser reads it.
    variables = {"ALIQUOT_LIBVIRT", "LIBVIRT_DEFAULT_URI"}
    found = {
        name: named
        for name, every in modules()
        if (named := {n.value for n in every if isinstance(n, ast.Constant)} & variables)
    }
    assert found == {"libvirt/connect.py": variables, "cli/libvirt/table.py": {"LIBVIRT_DEFAULT_URI"}}
