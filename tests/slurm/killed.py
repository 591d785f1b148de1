"""Our command line, killed around one step of a change: ``python -m slurm.killed gpus before slurm apply ...``.

``before``: the record names the step and nothing of it is done. ``after``: it is done, and the record does not know.
Production code has no hook for this.
"""

from __future__ import annotations

import os
import signal
import sys

from aliquot.agent.slurm import acts
from aliquot.agent.slurm.record import Record
from aliquot.agent.slurm.world import World
from aliquot.cli.main import main

_act = acts.act


def _killing(step: str, record: Record, world: World) -> Record:
    where, when = sys.argv[1:3]
    if (step, when) == (where, "before"):
        os.kill(os.getpid(), signal.SIGKILL)
    done = _act(step, record, world)
    if step == where:
        os.kill(os.getpid(), signal.SIGKILL)
    return done


if __name__ == "__main__":
    acts.act = _killing
    sys.exit(main(sys.argv[3:]))
