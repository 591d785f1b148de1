"""``sriov-manage -e|-d <address>|ALL`` of a simulated node: switches virtual functions on or off.

Output and exit codes as NVIDIA's script has them (captured on RTX PRO 6000 and A2; unbindLock: vGPU guide).
"""

from __future__ import annotations

import os
import sys

from aliquot.backends.sim.client import Node

USAGE = "Usage: sriov-manage <-e|-d> <domain:bus:slot.function|ALL>"


def main(words: list[str]) -> int:
    directory, *rest = words
    if len(rest) != 2 or rest[0] not in ("-e", "-d"):
        print(USAGE, file=sys.stderr)
        return 1
    action, address = rest
    state_dir, name = os.path.dirname(os.path.dirname(directory)), os.path.basename(directory)
    node = Node(state_dir, name)
    try:
        answer = node.sriov_manage(action, address if address == "ALL" else address.lower())
    finally:
        node.close()
    for line in answer["out"]:
        print(line)
    for line in answer["err"]:
        print(line, file=sys.stderr)
    return int(answer["rc"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
