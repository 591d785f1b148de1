"""The command line, killed around a step of a change: ``python -m system.slurm.killed gpus before slurm apply ...``.

``before``: the record names the step, but the step has not run. ``after``: the step has run, but the record does not
know. ``stopped``: SIGTERM arrives once, after the step. Production code has no hook for this.
"""

from __future__ import annotations

import os
import signal
import sys

from aliquot.cli.main import main
from aliquot.slurm.node import step_executor as executor
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.request import SlurmStep

_act = executor.execute


def _killing(step: SlurmStep, record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    where, when = sys.argv[1:3]
    if (step, when) == (where, "before"):
        os.kill(os.getpid(), signal.SIGKILL)
    done = _act(step, record, context)
    if step == where and when == "stopped":
        sys.argv[2] = "never"
        os.kill(os.getpid(), signal.SIGTERM)
    if (step, when) == (where, "after"):
        os.kill(os.getpid(), signal.SIGKILL)
    return done


if __name__ == "__main__":
    executor.execute = _killing
    sys.exit(main(sys.argv[3:]))
