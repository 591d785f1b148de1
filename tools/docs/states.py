"""docs/reference/states.md: the state machines, generated from the code that runs.

The agent's steps are the ``return Step(...)`` of its decision, function by function. The steps of a Slurm change are
those of ``route``. The actions of a plan are those of a real plan on a simulated node.
"""

from __future__ import annotations

import ast
import inspect
import tempfile
from collections.abc import Iterator
from typing import get_args

import msgspec
from tools.docs.text import first, joined, made, table

from aliquot.core.engine.executor import _split
from aliquot.core.engine.step_timing import name_of
from aliquot.core.model.actions import Action
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.agent import decision, steps
from aliquot.kubernetes.virtual_machines.agent import loop as devices_loop
from aliquot.kubernetes.virtual_machines.agent import main as devices_run
from aliquot.kubernetes.virtual_machines.agent import node_report
from aliquot.kubernetes.virtual_machines.agent import reconciler as work
from aliquot.slurm.node import next_step as slurm
from aliquot.slurm.node.change_record import ChangeRecord, NodeRestorePoint
from aliquot.slurm.node.request import NodeKind, SlurmChange, SlurmNodeSettings, SlurmStep

ENDS = {
    "_publish_only": "the settings forbid changes",
    "_without_config": "no label",
    "_fail": "the request is invalid, or a change failed",
    "_satisfied": "the GPUs match the desired state",
    "_prepare_and_apply": "a change is needed",
    "_blocked": "a change is blocked",
    "_reboot": "a change needs a reboot",
    "_locked": "a change is needed, but another process is changing the GPUs",
}
"""The case of each function of the decision."""
RELEASES: tuple[tuple[str, NodeKind], ...] = (("22.05.8", "static"), ("24.11.5", "static"), ("24.11.5", "dynamic"))
SLURM: dict[SlurmStep, str] = {
    "drain": "no new job starts on the node",
    "wait": "wait for running jobs; with `--jobs`, refuse the change or requeue the jobs",
    "stop": "stop slurmd",
    "gpus": "apply the plan with the engine",
    "files": "write gres.conf, slurm.conf and device nodes",
    "forget": "delete the dynamic record",
    "tell": "tell slurmctld to read its configuration again",
    "start": "start slurmd, which registers drained",
    "verify": "check that Slurm shows exactly these counts",
    "resume": "resume the node, if Aliquot drained it",
    "explain": "the node stays drained, with the reason",
    "gate": "reserve the node, so that no job starts, and read which slots are idle; running jobs go on",
    "release": "delete the reservation",
}


MOVES = (
    ("(the start)", "pending", "a request, or drift"),
    ("pending", "success", "the change is applied and verified"),
    ("pending", "failed", "the change is refused, or undone"),
    ("pending", "rebooting", "only a reboot activates the MIG mode"),
    ("rebooting", "pending", "the node has booted"),
    ("failed", "pending", "the agent retries, or the blocker is gone"),
    ("success", "pending", "drift, or another request"),
)


def page() -> str:
    """Return the whole page."""
    return joined([*_head(), *_agent(), *_devices(), *_slurm(), *_workers()])


def _head() -> Iterator[str]:
    yield from (
        "# States",
        "",
        made("states.md", "src/aliquot/kubernetes and src/aliquot/core/engine"),
        "",
    )
    yield "The states of the agents and of a change, with the events that lead from one to another. This page is"
    yield "generated from the code that decides."
    yield ""


def _agent() -> Iterator[str]:
    yield from ("## The node agent", "")
    yield f"The agent observes, takes one step, and observes again. The label `{names.STATE_LABEL}` has its state:"
    yield ""
    yield from table(("from", "to", "when"), MOVES)
    yield ""
    assert {to for _, to, _ in MOVES} == set(names.STATES), "the table above has other states"
    yield "The steps of each case, in order. The agent takes the first one that is due:"
    yield ""
    yield from table(
        ("case", "steps"),
        ((reported, " → ".join(found)) for reported, found in decisions()),
    )
    yield from ("", "The steps:", "")
    yield from table(("step", "effect"), ((f"`{c.__name__}`", first(c.__doc__)) for c in _steps()))
    yield ""


def _steps() -> list[type]:
    found = [c for _, c in inspect.getmembers(steps, inspect.isclass) if c.__module__ == steps.__name__]
    return sorted(found, key=lambda c: inspect.getsourcelines(c)[1])


def decisions() -> list[tuple[str, list[str]]]:
    """Return each case of the decision with the steps that its function returns, in the order of the source.

    Raises AssertionError if the code has a function that returns steps and has no entry here.
    """
    tree = ast.parse(inspect.getsource(decision))
    kinds = {c.__name__ for c in _steps()}
    found: dict[str, list[str]] = {}
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name != "decide":
            messages = [
                f"`{node.value.func.id}`"
                for node in sorted((n for n in ast.walk(function) if isinstance(n, ast.Return)), key=lambda n: n.lineno)
                if isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Name)
                and node.value.func.id in kinds
            ]
            if messages:
                found[function.name] = list(dict.fromkeys(messages))
    assert set(found) <= set(ENDS), f"tools/docs/states.py has no words for {sorted(set(found) - set(ENDS))}"
    return [(ENDS[name], found[name]) for name in ENDS if name in found]


def _devices() -> Iterator[str]:
    yield from ("## The devices agent", "")
    about = first(node_report.DevicesAgentStatus.__doc__)
    yield f"{about} The annotation `aliquot.dev/devices` of the node has it:"
    yield ""
    standings = sorted(_standings())
    states = {state.strip("`") for state, _ in standings}
    assert states == set(get_args(node_report.DevicesState)), "the devices agent has a state that it never takes"
    yield from table(("state", "reason"), standings)
    yield ""


def _standings() -> set[tuple[str, str]]:
    """Return every ``DevicesAgentStatus(state, reason, ...)`` in the agent's code."""
    found: set[tuple[str, str]] = set()
    for module in (work, devices_run, devices_loop):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "DevicesAgentStatus":
                state, reason = node.args[0], node.args[1]
                assert isinstance(state, ast.Constant)
                word = str(state.value)
                if isinstance(reason, ast.Constant):
                    found.add((f"`{word}`", f"`{reason.value!s}`"))
                elif isinstance(reason, ast.Name):
                    found.add((f"`{word}`", f"`{getattr(module, reason.id)}`"))
                else:
                    found.add((f"`{word}`", "the reason why no driver answers, as `NoDriver`"))
    return found


def _slurm() -> Iterator[str]:
    yield from ("## A change of a Slurm node", "")
    yield "The record on disk has the running step, so the change survives a kill at any point."
    yield "`aliquot slurm apply --continue` continues it, `--undo` rolls it back."
    yield ""
    for release, kind in RELEASES:
        record = _record(release, kind)
        yield f"- {kind} node, Slurm {release}: {' → '.join(slurm.route(record))}"
        yield f"  - after a failure: {' → '.join(slurm.route(_undone(record)))}"
    record = msgspec.structs.replace(_record("24.11.5", "static"), beside_jobs=True)
    yield f"- idle slots beside running jobs (`--slots`): {' → '.join(slurm.route(record))}"
    yield f"  - after a failure or a signal: {' → '.join(slurm.route(_undone(record)))}"
    yield ""
    yield from table(("step", "effect"), ((f"`{k}`", v) for k, v in SLURM.items()))
    assert set(SLURM) == set(get_args(SlurmStep)), "a step without words"
    yield from (
        "",
        "While the node has jobs, or accepts them, the step is `drain` or `wait`, independent of the record. Beside",
        "running jobs, it is `gate` while a job could start.",
        "",
    )


def _undone(record: ChangeRecord) -> ChangeRecord:
    return msgspec.structs.replace(record, undoing=True, touched=True)


def _record(release: str, kind: NodeKind) -> ChangeRecord:
    """Return a change that is about to start on a node that Slurm knows."""
    change = SlurmChange(SlurmNodeSettings(name="n1"))
    return ChangeRecord("run", change, kind, version=release, restore_point=NodeRestorePoint(slurmd_start=1))


def _workers() -> Iterator[str]:
    yield from ("## An apply", "")
    yield "The actions of one GPU run one after the other, and GPUs run in parallel. First all GPUs run up to their"
    yield "reset, then all resets run together, then the rest. If an action fails, the other GPUs stop before their"
    yield "next action, and all changed GPUs are rolled back."
    yield ""
    yield "For example `aliquot plan --gpu 0,1 --mig 3g.20gb,1g.5gb` on two A100, one of which is in MIG mode:"
    yield ""
    yield "```text"
    for pci, actions in _plan().actions_by_gpu.items():
        before, resets, after = _split(actions)
        parts = [", ".join(map(_word, before)), "reset" if resets else "", ", ".join(map(_word, after))]
        yield f"{pci}   {' | '.join(part for part in parts if part)}"
    yield "```"


def _word(action: Action) -> str:
    tag = name_of(action)
    return f"{tag} {getattr(action, 'profile', getattr(action, 'mode', ''))}".strip()


def _plan() -> Plan:
    """Return a real plan from a simulated node."""
    from aliquot.core.config.select.command_line import adhoc
    from aliquot.core.planner.plan import plan
    from aliquot.node.connect import connect
    from aliquot.sim import lifecycle as control
    from aliquot.sim.client import SimClient

    with tempfile.TemporaryDirectory(prefix="aq-") as folder:
        control.start(folder, "a100-sxm4-40gb*2", "lab")
        try:
            node = SimClient(folder, "lab")
            node.set_mode(1, True)
            node.create(1, "7g.40gb")
            node.close()
            with connect("lab", state_dir=folder) as connection:
                inventory = connection.backend.read()
            return plan(inventory, adhoc(["0", "1"], ["3g.20gb,1g.5gb"], inventory))
        finally:
            control.stop(folder)
