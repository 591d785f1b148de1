"""Kill an agent at exactly one moment: its nth write to the stand-in, to the driver, to the disk or to systemd."""

from __future__ import annotations

import threading
from collections.abc import Callable

from support.agents import Agent
from support.standin.control import Asked
from system.systemd.standin import Standin as Systemd

WRITES = ("POST", "PUT", "PATCH", "DELETE")
BESIDE = ("-gpus", "-vgpus")
"""Documents about the GPUs, published in parallel: their place among the writes of a change is chance.

A change that is killed at each of its writes must find each of them at its place.
"""
Wherever = str
"""``before`` or ``after`` the write itself."""


class Knife:
    """A killer of the agent at a write that is counted from ``arm`` on. ``fell`` is set when the agent is dead."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._turn = threading.Lock()
        self._left = 0
        self._when = ""
        self.fell = threading.Event()
        self._seen: list[str] = []
        self._done: list[str] = []
        self._fell_at = 0

    @property
    def done(self) -> list[str]:
        """The writes since ``arm``, or since the last kill, that are complete and did not end with a kill."""
        with self._turn:
            return list(self._done)

    @property
    def seen(self) -> list[str]:
        """The writes since ``arm``, as ``PATCH node-0``. A write that ended in a kill is included once the agent is
        dead.
        """
        with self._turn:
            return list(self._seen)

    def at_rest(self) -> bool:
        """Report whether the agent has written its event, the last write of a change, or has written nothing since the
        kill.
        """
        with self._turn:
            since = self._seen[self._fell_at :]
            over = self._done.count("POST events") >= since.count("POST events")
            return not since or (since[-1] == "POST events" and over)

    def arm(self, nth: int, when: Wherever) -> None:
        """Start counting at zero. With ``nth`` 0, only count."""
        with self._turn:
            self._left, self._when = nth, when
            self._seen, self._done, self._fell_at = [], [], 0
        self.fell.clear()

    def gate(self, asked: Asked) -> None:
        """Receive each request of ``standin.control.gate``."""
        if asked.method in WRITES and asked.agent.startswith("aliquot/"):
            last = asked.path.partition("?")[0].rpartition("/")[2]
            if last.endswith(BESIDE):
                return
            self._pass(asked.when, f"{asked.method} {last}")

    def watch(self, host: Systemd) -> None:
        """Count the calls to a stand-in for systemd as well."""
        previous = host.on_order

        def on_order(when: str, order: str) -> None:
            previous(when, order)
            self._pass(when, order)

        host.on_order = on_order

    def _pass(self, when: str, what: str) -> None:
        with self._turn:
            if when == "before":
                self._seen.append(what)
            counts = when == self._when and self._left > 0
            self._left -= counts
            if self._left or not counts:
                self._done += [what] if when == "after" else []
                return
            self._agent.kill()
            self._done, self._fell_at = [], len(self._seen)
            self.fell.set()
        if when == "before":
            raise ConnectionAbortedError("the client is dead")


def await_death(agent: Agent, knife: Knife | None, done: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Wait until the agent is dead, or finished without a kill. Report whether it is dead."""

    def over() -> bool:
        dead = agent.process is None or agent.process.poll() is not None
        return dead or done()

    agent.cluster.wait(over, "death or the end", seconds)
    dead = agent.process is None or agent.process.poll() is not None
    if dead:
        if knife is not None:
            assert knife.fell.wait(5), f"the agent ended by itself\n{agent.log()[-3000:]}"
        agent.kill()
    return dead
