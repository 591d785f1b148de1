"""A simulated node in memory: the model and its protocol, without server, disk or clock."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.sim.node import SimEnvironment, SimNode
from aliquot.sim.protocol import NodeLink
from aliquot.sim.state import NodeState
from aliquot.sim.template import build


class Memory:
    """A node with an open session. ``calls`` is the call log, ``slept`` the seconds that calls would have taken."""

    def __init__(self, template: str, driver: str | None = None, latency: str = "none", mig: bool = True) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.killed: list[int] = []
        self.saved: NodeState | None = None
        self.log: list[str] = []
        self.when_slept: Callable[[], object] = lambda: None
        environment = SimEnvironment(lambda: self.now, self._sleep, self.killed.append, self._save, self.log.append)
        self.node = SimNode(build("n", template, "boot-1", driver, latency), environment)
        self.link = self.open(100)
        if mig:
            for gpu in self.node.gpus:
                gpu.state.mig = gpu.state.pending = gpu.table is not None

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.when_slept()

    def _save(self, state: NodeState) -> None:
        self.saved = msgspec.json.decode(msgspec.json.encode(state), type=NodeState)

    def open(self, pid: int, privileged: bool = True) -> NodeLink:
        """Open another NVML session."""
        link = self.open_slowly(pid, privileged)
        assert link.answer(f"hello session-{pid}") == "0"
        return link

    def open_slowly(self, pid: int, privileged: bool = True, gone: Callable[[], bool] = lambda: False) -> NodeLink:
        """Open a connection that has not requested a session yet."""
        return NodeLink(self.node, pid, privileged, gone)

    def ask(self, line: str, link: NodeLink | None = None) -> list[int]:
        """Return the code and the numbers of an answer."""
        return [int(w) for w in (link or self.link).answer(line).partition("|")[0].split()]

    def text(self, line: str) -> str:
        code, _, text = self.link.answer(line).partition("|")
        assert code.split()[0] == "0", f"{line} -> {code}"
        return text

    def control(self, do: str, **facts: object) -> tuple[int, str]:
        request = msgspec.json.encode({"do": do, **facts}).decode()
        code, _, text = self.link.answer(f"control|{request}").partition("|")
        return int(code), text

    def create(self, profile: int, place: tuple[int, int] | None = None, gpu: int = 0) -> int:
        """Create a GPU instance. Returns its id, or minus the code if it was refused."""
        call = "DeviceCreateGpuInstanceWithPlacement" if place else "DeviceCreateGpuInstance"
        where = f" {place[0]} {place[1]}" if place else ""
        answer = self.ask(f"{call} {gpu} -1 -1 {profile}{where}")
        return answer[1] if answer[0] == 0 else -answer[0]

    def place(self, gi: int, gpu: int = 0) -> str:
        answer = self.ask(f"GpuInstanceGetInfo {gpu} {gi} -1")
        return f"{answer[3]}:{answer[4]}"

    def free(self, profile: int, gpu: int = 0) -> int:
        code, count = self.ask(f"DeviceGetGpuInstanceRemainingCapacity {gpu} -1 -1 {profile}")
        assert code == 0
        return count

    @property
    def calls(self) -> list[dict[str, object]]:
        return [msgspec.json.decode(line, type=dict[str, object]) for line in self.log]
