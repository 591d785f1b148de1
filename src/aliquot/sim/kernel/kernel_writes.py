"""The execution of one write to the simulated kernel: faults, the action, disk and log, as for a driver call."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from aliquot.sim.kernel.devices import refuse
from aliquot.sim.node import SimNode
from aliquot.sim.session import SimSession
from aliquot.sim.state import WHOLE


class KernelWrite(NamedTuple):
    """A write to the kernel."""

    call: str
    """The name in the call log (``SysfsWrite``, ``SriovManage``)."""
    gpu: int
    """The position of the affected GPU (WHOLE for none)."""
    path: str
    value: str
    quiet: bool = False
    """As in ``WritableFile``."""


def execute(node: SimNode, session: SimSession, write: KernelWrite, apply: Callable[[], None]) -> None:
    """Execute a write. Raises OSError with the kernel's refusal, which is also logged, and ``CallerGoneError`` if a
    fault killed the caller.
    """
    node.stall(session, write.call, write.gpu)
    with node.write_lock(write.gpu):
        kill_phase = None if session.hand else node.kill_phase()
        if kill_phase == "before":
            node.kill(session)
        refusal: OSError | None = None
        try:
            _check_faults(node, session, write)
            with node.lock:
                if session.hand or not node.faults.has_no_effect(write.call, write.gpu, write.path):
                    apply()
        except OSError as error:
            refusal = error
        else:
            if not session.hand and write.gpu != WHOLE and node.faults.loses(write.gpu):
                node.lose(node.gpus[write.gpu])
        if not write.quiet:
            node.files_changed()
        node.save()
        _log_write(node, session, write, refusal)
        if kill_phase == "after":
            node.kill(session)
        if refusal is not None:
            raise refusal


def _check_faults(node: SimNode, session: SimSession, write: KernelWrite) -> None:
    if not node.privileged(session):
        raise refuse(errno.EACCES)
    if write.gpu != WHOLE and node.gpus[write.gpu].state.lost:
        raise refuse(errno.ENODEV)
    if session.hand:
        return
    with node.lock:
        failing = node.faults.failing(write.call, write.gpu, write.path)
        busy = None if failing else node.faults.busy(write.gpu, WHOLE, node.environment.now())
    if failing:
        raise refuse(failing)
    if busy:
        raise refuse(errno.EBUSY)


def _log_write(node: SimNode, session: SimSession, write: KernelWrite, refusal: OSError | None) -> None:
    facts = {"path": write.path, "value": write.value}
    rm = getattr(refusal, "rm", None)
    if rm is not None:
        facts["rm"] = f"0x{rm:x}"
    more = ',"write":true,' + msgspec.json.encode(facts).decode()[1:-1]
    node.record(session, write.call, (refusal.errno or errno.EIO) if refusal else 0, write.gpu, more=more)
