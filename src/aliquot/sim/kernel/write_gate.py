"""How one write to the simulated kernel is carried out: faults, the act, disk, log, as for a call of the driver."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from aliquot.sim.kernel.devices import refuse
from aliquot.sim.node import SimNode
from aliquot.sim.session import Session
from aliquot.sim.state import WHOLE


class KernelWrite(NamedTuple):
    """A write: its name in the call log (``SysfsWrite``, ``SriovManage``), the position of the GPU it is about (WHOLE
    for none), the file and what was written; ``quiet`` as in ``Writing``.
    """

    call: str
    gpu: int
    path: str
    value: str
    quiet: bool = False


def carry_out(node: SimNode, session: Session, write: KernelWrite, act: Callable[[], None]) -> None:
    """Raises OSError with the kernel's refusal, which is logged too, and ``Gone`` when a fault killed the caller."""
    node.stall(session, write.call, write.gpu)
    with node.lane(write.gpu):
        doomed = None if session.hand else node.doomed()
        if doomed == "before":
            node.kill(session)
        refusal: OSError | None = None
        try:
            _faults(node, session, write)
            with node.lock:
                if session.hand or not node.faults.effectless(write.call, write.gpu, write.path):
                    act()
        except OSError as error:
            refusal = error
        else:
            if not session.hand and write.gpu != WHOLE and node.faults.loses(write.gpu):
                node.lose(node.gpus[write.gpu])
        if not write.quiet:
            node.changed()
        node.save()
        _record(node, session, write, refusal)
        if doomed == "after":
            node.kill(session)
        if refusal is not None:
            raise refusal


def _faults(node: SimNode, session: Session, write: KernelWrite) -> None:
    if not node.privileged(session):
        raise refuse(errno.EACCES)
    if write.gpu != WHOLE and node.gpus[write.gpu].state.lost:
        raise refuse(errno.ENODEV)
    if session.hand:
        return
    with node.lock:
        failing = node.faults.failing(write.call, write.gpu, write.path)
        busy = None if failing else node.faults.busy(write.gpu, WHOLE, node.world.now())
    if failing:
        raise refuse(failing)
    if busy:
        raise refuse(errno.EBUSY)


def _record(node: SimNode, session: Session, write: KernelWrite, refusal: OSError | None) -> None:
    facts = {"path": write.path, "value": write.value}
    rm = getattr(refusal, "rm", None)
    if rm is not None:
        facts["rm"] = f"0x{rm:x}"
    more = ',"write":true,' + msgspec.json.encode(facts).decode()[1:-1]
    node.record(session, write.call, (refusal.errno or errno.EIO) if refusal else 0, write.gpu, more=more)
