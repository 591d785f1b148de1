"""docs/reference/states.md: how each moving part goes from state to state, read off the code that runs.

The agent's end points are the ``return Step(...)`` of its decision, function by function; a Slurm change's steps are
what ``route`` answers; a plan's lanes are those of a real plan on a simulated node.
"""

from __future__ import annotations

import ast
import inspect
import tempfile
from collections.abc import Iterator

import msgspec
from tools.docs.text import first, made, table

from aliquot.core.engine.executor import _split
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
    "_publish_only": "settings: not ours to carry out",
    "_without_config": "no label",
    "_fail": "something is wrong",
    "_satisfied": "the GPUs are as wished",
    "_prepare_and_apply": "a change",
    "_blocked": "a change that something is in the way of",
    "_reboot": "a change that only a reboot completes",
    "_locked": "a change while another process is changing the GPUs",
}
"""What leads to each function of the decision."""
RELEASES: tuple[tuple[str, NodeKind], ...] = (("22.05.8", "static"), ("24.11.5", "static"), ("24.11.5", "dynamic"))
SLURM: dict[SlurmStep, str] = {
    "drain": "no new job starts on the node",
    "wait": "for jobs that run; refused or requeued where that was asked",
    "stop": "slurmd",
    "gpus": "the plan, by the engine",
    "files": "gres.conf, slurm.conf, device nodes",
    "forget": "the dynamic record is deleted",
    "tell": "slurmctld",
    "start": "slurmd, which registers drained",
    "verify": "Slurm shows exactly these counts",
    "resume": "the node, if we drained it",
    "explain": "the node stays drained, with the reason",
}


_MOVES = (
    ("(the start)", "pending", "another wish, drift"),
    ("pending", "success", "applied and proved"),
    ("pending", "failed", "refused, or undone"),
    ("pending", "rebooting", "only that makes a mode active"),
    ("rebooting", "pending", "after the boot"),
    ("failed", "pending", "tried again, or what was in the way is gone"),
    ("success", "pending", "healing, or another wish"),
)


def page() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_agent(), *_devices(), *_slurm(), *_lanes()]) + "\n"


def _head() -> Iterator[str]:
    yield from (
        "# States: how things move",
        "",
        made("states.md", "src/aliquot/kubernetes and src/aliquot/core/engine"),
        "",
    )
    yield "For whoever watches an agent or a change and asks what comes next. At the end you know every state, and"
    yield "what leads from one to the other. None of this is"
    yield "drawn by hand: it is read off the code that decides."
    yield ""


def _agent() -> Iterator[str]:
    yield from ("## The node agent", "")
    yield f"It looks at everything, does one step, and looks again. The label `{names.STATE_LABEL}` tells where it is:"
    yield ""
    yield from table(("from", "to", "when"), _MOVES)
    yield ""
    assert {to for _, to, _ in _MOVES} == set(names.STATES), "the table above has other states"
    yield "Which step follows from what it sees, in the order in which they are asked for:"
    yield ""
    yield from table(
        ("where it stands", "steps, the first that is due"), ((told, " → ".join(found)) for told, found in decisions())
    )
    yield from ("", "What each step is:", "")
    yield from table(("step", "what it does"), ((f"`{c.__name__}`", first(c.__doc__)) for c in _steps()))
    yield ""


def _steps() -> list[type]:
    found = [c for _, c in inspect.getmembers(steps, inspect.isclass) if c.__module__ == steps.__name__]
    return sorted(found, key=lambda c: inspect.getsourcelines(c)[1])


def decisions() -> list[tuple[str, list[str]]]:
    """Each end of the decision, with the steps that its function returns, in the order of the source. Raises
    AssertionError where the code has a function that returns steps and is not told of here.
    """
    tree = ast.parse(inspect.getsource(decision))
    kinds = {c.__name__ for c in _steps()}
    found: dict[str, list[str]] = {}
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name != "decide":
            told = [
                f"`{node.value.func.id}`"
                for node in sorted((n for n in ast.walk(function) if isinstance(n, ast.Return)), key=lambda n: n.lineno)
                if isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Name)
                and node.value.func.id in kinds
            ]
            if told:
                found[function.name] = list(dict.fromkeys(told))
    assert set(found) <= set(ENDS), f"tools/docs/states.py has no words for {sorted(set(found) - set(ENDS))}"
    return [(ENDS[name], found[name]) for name in ENDS if name in found]


def _devices() -> Iterator[str]:
    yield from ("## The devices agent", "")
    about = first(node_report.DevicesAgentStatus.__doc__)
    yield f"{about} It stands in the annotation `aliquot.dev/devices` of the node:"
    yield ""
    yield from table(("state", "reason"), sorted(_standings()))
    yield ""


def _standings() -> set[tuple[str, str]]:
    """Every ``DevicesAgentStatus(state, reason, ...)`` in the agent's code."""
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
    yield "The record on disk says which step is under way; a kill anywhere is the same as a restart."
    yield "`aliquot slurm apply --continue` goes on, `--undo` goes back."
    yield ""
    for release, kind in RELEASES:
        record = _record(release, kind)
        yield f"- {kind} node, Slurm {release}: {' → '.join(slurm.route(record))}"
        back = msgspec.structs.replace(record, undoing=True, touched=True)
        yield f"  - a failure: {' → '.join(slurm.route(back))}"
    yield ""
    yield from table(("step", "what happens"), ((f"`{k}`", v) for k, v in SLURM.items()))
    everything = {s for release, kind in RELEASES for s in slurm.route(_record(release, kind))} | {"explain"}
    assert everything <= set(SLURM), "a step without words"
    yield from (
        "",
        "Whatever the record says: while jobs are on the node, or it takes some, the step is `drain` or `wait`.",
        "",
    )


def _record(release: str, kind: NodeKind) -> ChangeRecord:
    """A change that is about to begin on a node that Slurm knows."""
    change = SlurmChange(SlurmNodeSettings(name="n1"))
    return ChangeRecord("run", change, kind, version=release, restore_point=NodeRestorePoint(slurmd_start=1))


def _lanes() -> Iterator[str]:
    yield from ("## An apply", "")
    yield "GPUs are independent: each has a lane of its own, in which acts come one after the other. All lanes run"
    yield "side by side up to their reset, all resets happen"
    yield "together, then the rest. A failure stops the other lanes at their next act, and every GPU that was"
    yield "touched goes back."
    yield ""
    yield "For instance `aliquot plan --gpu 0,1 --mig 3g.20gb,1g.5gb` on two A100, one of which has its MIG mode"
    yield "already:"
    yield ""
    yield "```text"
    for pci, lane in _plan().actions_by_gpu.items():
        before, resets, after = _split(lane)
        parts = [", ".join(map(_word, before)), "reset" if resets else "", ", ".join(map(_word, after))]
        yield f"{pci}   {' | '.join(part for part in parts if part)}"
    yield "```"


def _word(action: object) -> str:
    tag = str(msgspec.to_builtins(action)["action"])
    return f"{tag} {getattr(action, 'profile', getattr(action, 'mode', ''))}".strip()


def _plan() -> Plan:
    """A real one, on a simulated node that is gone again."""
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
