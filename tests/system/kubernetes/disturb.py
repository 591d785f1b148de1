"""Disturbances of an agent: an API server that is unavailable at one write, another writer at the same time."""

from __future__ import annotations

import contextlib
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

from support.agents import Agent
from support.cluster import StandinCluster
from support.standin.control import Asked
from system.kubernetes.knife import BESIDE, WRITES


@contextlib.contextmanager
def unavailable_at(cluster: StandinCluster, nth: int, how: str) -> Iterator[threading.Event]:
    """Stop the server at the agent's nth write of a change, which is lost, and start it again at the end of the block.
    The event is set while it is unavailable.
    """
    gone, turn, left = threading.Event(), threading.Lock(), [nth]

    def gate(asked: Asked) -> None:
        if asked.when != "before" or asked.method not in WRITES or not asked.agent.startswith("aliquot/"):
            return
        if asked.path.partition("?")[0].endswith(BESIDE):
            return
        with turn:
            left[0] -= 1
            now = left[0] == 0
        if now:
            stack.enter_context(cluster.unavailable(how))
            gone.set()
            raise ConnectionAbortedError("the server goes away")

    with contextlib.ExitStack() as stack:
        cluster.standin.control.gate = gate
        yield gone
    cluster.standin.control.gate = lambda asked: None


@contextlib.contextmanager
def hammer(blow: Callable[[int], None]) -> Iterator[None]:
    """Call ``blow`` with 1, 2, 3 ... in a thread of its own, up to a hundred times a second.

    An agent on a busy machine gets between two writes.
    """
    over = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        count = 0
        try:
            while not over.wait(0.01):
                count += 1
                blow(count)
        except AssertionError as error:
            failures.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
    assert not failures, failures


def probe(agent: Agent, page: str) -> tuple[int, str]:
    """Return status and text of one of the agent's pages."""
    port = re.findall(r"health and metrics on port (\d+)", agent.log())[-1]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
