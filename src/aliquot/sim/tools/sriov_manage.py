"""The ``sriov-manage -e|-d <address>|ALL`` of a simulated node, which enables or disables virtual functions.

Output and exit codes are those of NVIDIA's script (captured on RTX PRO 6000 and A2; the usage text on an A40; the
unbindLock message from the vGPU guide). ``-r 1`` resets the GPU first, which the simulator's ``-e`` always does.
"""

from __future__ import annotations

import os
import sys

from aliquot.errors import AliquotError
from aliquot.sim.client import SimClient

_USAGE = """\
Usage:
    {0} <-e|-d> <ssss:bb:dd.f|ALL>
        Enable/disable Virtual functions on the GPU specified by the PCI_ID=ssss:bb:dd.f.
        If 'ALL' is specified in place of PCI_ID, operate on all the nvidia GPUs in the system.

    {0} -e <ssss:bb:dd.f|ALL> -r 1
\t\tReset and rescan the GPU followed by enabling Virtual functions on the GPU.

    {0} -h
        Print this help."""


def usage(program: str = "/usr/lib/nvidia/sriov-manage") -> str:
    return _USAGE.format(program)


def main(words: list[str]) -> int:
    directory, *rest = words
    if rest == ["-h"]:
        print(usage())
        return 0
    if len(rest) == 4 and rest[0] == "-e" and rest[2:] == ["-r", "1"]:
        del rest[2:]
    if len(rest) != 2 or rest[0] not in ("-e", "-d"):
        print(usage(), file=sys.stderr)
        return 1
    action, address = rest
    state_dir, name = os.path.dirname(os.path.dirname(directory)), os.path.basename(directory)
    try:
        answer = SimClient(state_dir, name).sriov_manage(action, address if address == "ALL" else address.lower())
    except AliquotError as error:
        print(error.brief, file=sys.stderr)
        return 1
    for line in answer["out"]:
        print(line)
    for line in answer["err"]:
        print(line, file=sys.stderr)
    return int(answer["rc"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
