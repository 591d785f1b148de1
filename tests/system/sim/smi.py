"""nvidia-smi on a node in memory."""

from __future__ import annotations

import shlex
from itertools import count

from aliquot.sim.protocol import NodeLink
from aliquot.sim.tools import nvidia_smi
from system.sim.memory import Memory

_tokens = count()


class Smi:
    """A node in memory and its driver's program. Only the program has a session open."""

    def __init__(self, template: str, driver: str | None = None, mig: bool = True) -> None:
        self.memory = Memory(template, driver, mig=mig)
        self.memory.link.answer("bye")
        self.node = self.memory.node

    def __call__(self, command: str) -> tuple[int, str]:
        """Return exit status and output of ``nvidia-smi ...``."""
        lines: list[str] = []
        words = shlex.split(command.removeprefix("nvidia-smi"))
        link = NodeLink(self.node, 100)
        try:
            status = nvidia_smi.run(words, link.answer, lambda line: lines.append(line + "\n"), f"s{next(_tokens)}")
        finally:
            link.close()
        return status, "".join(lines)

    def ok(self, command: str) -> str:
        status, text = self(command)
        assert status == 0, (command, status, text)
        return text
