"""Stand-ins for the driver's programs, written into ``<node>/driver``, so that callers of these
programs can be tested.
"""

from __future__ import annotations

import os
import sys

from aliquot.foundation import atomic_file

PROGRAMS = {"nvidia_smi": "usr/bin/nvidia-smi", "sriov_manage": "usr/lib/nvidia/sriov-manage"}
"""Modules of this package, by the program's path below the driver's root."""
interpreter = sys.executable
"""The Python interpreter of the programs."""


def provide(directory: str, *, sriov: bool) -> None:
    """Write the programs of a node whose directory is ``directory``. ``sriov``: its driver is a vGPU host driver, which
    alone includes sriov-manage.
    """
    package = os.path.dirname(os.path.dirname(sys.modules["aliquot"].__path__[0] + "/x"))
    for module, path in PROGRAMS.items():
        program = os.path.join(directory, "driver", path)
        if module == "sriov_manage" and not sriov:
            if os.path.exists(program):
                os.unlink(program)
            continue
        words = (interpreter, "-m", f"aliquot.sim.tools.{module}", directory)
        exported = f"PYTHONPATH={quoted(package)}${{PYTHONPATH:+:$PYTHONPATH}}; export PYTHONPATH\n"
        text = f'#!/bin/sh\n{exported}exec {" ".join(map(quoted, words))} "$@"\n'
        atomic_file.replace(program, text.encode(), mode=0o755, durable=False)


def quoted(word: str) -> str:
    """Return a word quoted for a shell."""
    return "'" + word.replace("'", "'\\''") + "'"
