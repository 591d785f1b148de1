"""The diagrams of docs/concepts, as data. Names of files and states come from the code."""

from __future__ import annotations

from tools.docs import states
from tools.docs.flow import Arrow, Box, Flow, chain

from aliquot.core.model.plan import HELD_POLICIES
from aliquot.hardware.kernel.framework import CURRENT, TYPES
from aliquot.kubernetes.gpu import names


def frameworks() -> str:
    """Return how the vGPU framework of a GPU is detected."""
    boxes = (
        Box("vendor", 0, 0, "1. A virtual function has", (f"{CURRENT} ?",), "plain"),
        Box("sriov", 0, 1, "2. A virtual function has", (f"{TYPES}/ ?",), "plain"),
        Box("whole", 0, 2, "3. The GPU, without SR-IOV, has", (f"{TYPES}/ ?",), "plain"),
        Box("none", 0, 3, "No vGPU framework", ("no host driver, or the virtual", "functions are disabled"), "bad"),
        Box("vendor-vfio", 1, 0, "vendor-vfio", ("a type id, written to", CURRENT)),
        Box("sriov-mdev", 1, 1, "sriov-mdev", ("a UUID, written to create", "of one virtual function")),
        Box("mdev", 1, 2, "mdev", ("a UUID, written to create", "of the GPU itself")),
        Box("vm-vfio", 2, 0, "The VM opens", ("the virtual function",), "plain"),
        Box("vm-sriov", 2, 1, "The VM opens", ("the mediated device",), "plain"),
        Box("vm-mdev", 2, 2, "The VM opens", ("the mediated device",), "plain"),
    )
    arrows = (
        *chain(("vendor", "sriov", "whole", "none"), "no"),
        Arrow("vendor", "vendor-vfio", "yes"),
        Arrow("sriov", "sriov-mdev", "yes"),
        Arrow("whole", "mdev", "yes"),
        Arrow("vendor-vfio", "vm-vfio"),
        Arrow("sriov-mdev", "vm-sriov"),
        Arrow("mdev", "vm-mdev"),
    )
    return Flow("How Aliquot finds the vGPU framework of a GPU", boxes, arrows, 50, 88).draw()


def holders() -> str:
    """Return what makes an instance held, and what the policy then decides."""
    evidence = (
        ("process", "Process", "NVML: clients of the instance"),
        ("pod", "Pod", "kubelet: pod resources and claims"),
        ("container", "Container", "device nodes in its /dev"),
        ("job", "Slurm job", "environment below slurmstepd"),
        ("vm", "VM", "open files below /dev/vfio"),
        ("vgpu", "vGPU", "the GPU instance that it uses"),
    )
    found = [Box(name, 0, n * 0.75, title, (line,), "plain") for n, (name, title, line) in enumerate(evidence)]
    meaning = {
        "refuse": ("Blocked: the plan names", "the holders, nothing changes"),
        "wait": ("Polls until they are gone,", "or until --timeout"),
        "force": ("Ends processes and VMs,", "then destroys"),
    }
    boxes = (
        *found,
        Box("held", 1, 1.8, "Held", ("read for the plan, and again", "before each destroy")),
        Box("kept", 2, 0, "It already matches", ("No call reaches it,", "under any policy")),
        *(Box(policy, 2, n * 1.2, policy, meaning[policy], "plain") for n, policy in enumerate(HELD_POLICIES, start=1)),
    )
    arrows = (
        *(Arrow(box.name, "held") for box in found),
        Arrow("held", "kept"),
        *(Arrow("held", policy) for policy in HELD_POLICIES),
    )
    return Flow("What makes an instance held, and what the policies do", boxes, arrows, 60, 76).draw()


def change() -> str:
    """Return the steps of an apply, and where a failure leads."""
    boxes = (
        Box("lock", 1, 0, "Take the node's lock", ("one writer at a time",)),
        Box("read", 1, 1, "Read the node", ("compare the fingerprint",)),
        Box("begin", 1, 2, "Record the beginning", ("the state before, the request",)),
        Box(
            "act",
            1,
            3,
            "For each action",
            ("read the holders, record the intent,", "call the driver, record the result"),
        ),
        Box("verify", 1, 4.25, "Read the node again", ("compare it with the request",)),
        Box("done", 1, 5.25, "Record the end", ("and the request, for the next boot",)),
        Box("stale", 2, 1, "Refused", ("nothing was touched",), "bad"),
        Box("undo", 2, 3, "Roll back", ("plan each touched GPU back", "to the state before"), "bad"),
        Box("proof", 2, 4.25, "Read the node again", ("compare it with the state before",), "bad"),
        Box("undone", 2, 5.25, "Record how it ended", ("undone, or partial with the rest",), "bad"),
        Box("killed", 0, 3, "Killed, power cut", ("the journal has the intent,", "the next run reads it"), "plain"),
        Box("resume", 0, 1, "The same request again", ("finish, or plan from what exists",), "plain"),
    )
    arrows = (
        *chain(("lock", "read", "begin", "act", "verify", "done")),
        *chain(("undo", "proof", "undone")),
        Arrow("read", "stale"),
        Arrow("act", "undo"),
        Arrow("verify", "undo"),
        Arrow("act", "killed"),
        Arrow("killed", "resume"),
        Arrow("resume", "read"),
    )
    return Flow("The steps of an apply, and where a failure leads", boxes, arrows, 40, 84).draw()


def agent() -> str:
    """Return one cycle of an agent."""
    boxes = (
        Box("event", 0, 0, "Something happened", ("watch event, XID, or the", "check interval passed"), "plain"),
        Box("observe", 1, 0, "Observe", ("request, GPUs, holders,", "settings, locks")),
        Box("decide", 2, 0, "Decide", ("one step, from what", "was observed")),
        Box("step", 1, 1.3, "Do one step", ("publish, pause, evict,", "apply, report")),
        Box("rest", 0, 1.3, "Rest", ("until an event, or", "for the back-off"), "plain"),
    )
    arrows = (
        *chain(("event", "observe", "decide")),
        Arrow("decide", "step", informer=True),
        Arrow("step", "observe", "again"),
        Arrow("step", "rest"),
        Arrow("rest", "event"),
    )
    return Flow("One cycle of an agent", boxes, arrows, 50, 96).draw()


def node_states() -> str:
    """Return the states of the label agent, from the table of docs/reference/states.md."""
    where = {"(the start)": (0.0, 0.0), "pending": (1.0, 0.0), "success": (2.0, 0.0)}
    where |= {"failed": (2.0, 1.0), "rebooting": (1.0, 1.0)}
    assert set(where) == {"(the start)", *names.STATES}, "tools/docs/flows.py has no place for a state"
    kinds = {"success": "box", "failed": "bad"}
    boxes = tuple(Box(name, *place, name, (), kinds.get(name, "plain")) for name, place in where.items())
    both = {(start, end) for start, end, _ in states.MOVES}
    arrows = tuple(Arrow(start, end) for start, end in sorted(both))
    return Flow(f"The values of {names.STATE_LABEL}", boxes, arrows, 70, 80).draw()
