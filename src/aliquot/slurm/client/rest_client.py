"""Slurm through slurmrestd. What that release of it cannot do goes through Slurm's commands where they are here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from aliquot.slurm.client import error_messages as complaints
from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client import jwt as tokens
from aliquot.slurm.client.command_client import Commands, a_reason, check_name, on_node, one_line
from aliquot.slurm.client.errors import AwayError, DeniedError, NoSlurmError, OldSlurmError, RefusedError
from aliquot.slurm.client.json_versions.reader import NEWEST, OLDEST, Document
from aliquot.slurm.client.models import Job, Partition, Reservation, SlurmNode, Version
from aliquot.slurm.client.rest_transport import Answer, Query, Wire
from aliquot.slurm.client.states import has_ended

Done = TypeVar("Done")

_ROUTE = re.compile(r"/slurm/v0\.0\.(\d+)(/.*?)/?")
_NODE = "/node/{node_name}"
_NO_COMMANDS = (NoSlurmError, DeniedError, AwayError)
"""Slurm's commands are of no use here: none are installed, this user may not, or slurmctld's port is closed to this
host, whatever slurmrestd can do.
"""
QUICK_S = 4.0
"""22.05 has one sentence for a wrong token (at once) and for a slurmctld that is away (after 9 s)."""


class _Api(msgspec.Struct):
    """The part of ``/openapi/v3`` that we want: which paths there are, and with which methods."""

    paths: dict[str, dict[str, msgspec.Raw]]


class Rest:
    """A cluster as slurmrestd shows it. ``wire`` leads there; ``commands`` are for what it cannot do."""

    through = "slurmrestd"

    def __init__(self, wire: Wire, commands: Commands) -> None:
        self._wire = wire
        self._commands = commands
        self._shape = 0
        self._routes: frozenset[tuple[str, str]] = frozenset()

    def version(self) -> Version:
        """slurmrestd's own release: the controller's is the same or newer."""
        doing = "read Slurm's version"
        found = self._get(doing, "/ping").version()
        if found is None:
            raise RefusedError(f"cannot {doing}: slurmrestd does not say it")
        return found

    def settings(self) -> dict[str, str]:
        # From 25.11 there is /conf, but as a document of its own shape: scontrol prints the same in every release.
        return self._by_commands("read Slurm's settings", lambda c: c.settings())

    def nodes(self) -> tuple[SlurmNode, ...]:
        return self._nodes("read Slurm's nodes")

    def node(self, name: str) -> SlurmNode:
        doing = f"read node {name}"
        check_name(name, doing)
        # /node/NAME does not find FUTURE nodes, and 24.11's has another node's partitions in it.
        with suppress(*_NO_COMMANDS):
            return self._commands.node(name)
        found = next((n for n in self._nodes(doing) if n.name == name), None)
        if found is None:
            raise complaints.translated(f"Node {name} not found", doing)
        return found

    def jobs(self, node: str = "") -> tuple[Job, ...]:
        if node:
            # slurmrestd lists the whole queue whatever it is asked for.
            with suppress(*_NO_COMMANDS):
                return self._commands.jobs(node)
        every = self._get("read Slurm's jobs", "/jobs", (("flags", "DETAIL"),) if self._wrapped() else ()).jobs()
        return tuple(j for j in every if (on_node(j, node) if node else not has_ended(j.state)))

    def partitions(self) -> tuple[Partition, ...]:
        return self._get("read Slurm's partitions", "/partitions").partitions()

    def reservations(self) -> tuple[Reservation, ...]:
        return self._get("read Slurm's reservations", "/reservations").reservations()

    def drain(self, name: str, reason: str) -> None:
        words = a_reason(reason)
        self._update(f"drain {name}", name, {"state": ["DRAIN"], "reason": words}, lambda c: c.drain(name, words))

    def resume(self, name: str) -> None:
        doing = f"resume {name}"
        try:
            self._update(doing, name, {"state": ["RESUME"]}, lambda c: c.resume(name))
        except RefusedError as refused:
            complaints.unless_in_service(self.node(name), refused)

    def down(self, name: str, reason: str) -> None:
        words = a_reason(reason)
        self._update(f"set {name} down", name, {"state": ["DOWN"], "reason": words}, lambda c: c.down(name, words))

    def requeue(self, job: int) -> None:
        self._by_commands(f"requeue job {job}", lambda c: c.requeue(job))

    def note(self, name: str, extra: str) -> None:
        words = one_line(extra)
        self._update(f"note the layout of {name}", name, {"extra": words}, lambda c: c.note(name, words))

    def describe(self, name: str, words: Mapping[str, str]) -> None:
        said: dict[str, Any] = {key: one_line(value) for key, value in words.items() if key != "weight"}
        said |= {"weight": int(words["weight"])} if "weight" in words else {}
        self._update(f"describe {name}", name, said, lambda c: c.describe(name, words))

    def join(self, partition: str, name: str) -> None:
        self._by_commands(f"put {name} into partition {partition}", lambda c: c.join(partition, name))

    def features(self, name: str, available: tuple[str, ...]) -> None:
        wanted = {"features": list(available), "features_act": list(available)}
        self._update(f"set the features of {name}", name, wanted, lambda c: c.features(name, available))

    def create(self, line: str) -> None:
        grestext.configured(dict(w.lower().split("=", 1) for w in line.split() if "=" in w).get("gres", ""))
        self._by_commands("create a node", lambda c: c.create(line))

    def delete(self, name: str) -> None:
        doing = f"delete node {name}"
        check_name(name, doing)
        if not self._has("delete", _NODE):
            return self._by_commands(doing, lambda c: c.delete(name))
        self._ask(doing, "DELETE", f"/node/{name}")
        return None

    def reconfigure(self) -> None:
        doing = "have Slurm read its files again"
        if not self._has("get", "/reconfigure"):
            return self._by_commands(doing, lambda c: c.reconfigure())
        self._ask(doing, "GET", "/reconfigure")
        return None

    def power(self, name: str, up: bool) -> None:
        way = "up" if up else "down"
        self._update(f"power {way} {name}", name, {"state": [f"POWER_{way.upper()}"]}, lambda c: c.power(name, up))

    # How

    def _update(self, doing: str, name: str, body: dict[str, Any], other: Callable[[Commands], None]) -> None:
        check_name(name, doing)
        if not self._has("post", _NODE):
            return self._by_commands(doing, other)
        self._ask(doing, "POST", f"/node/{name}", body=body)
        return None

    def _nodes(self, doing: str) -> tuple[SlurmNode, ...]:
        """With FUTURE nodes, and what is in use. slurmrestd of 22.05 has no flag for it and leaves FUTURE ones out."""
        if self._wrapped():
            return self._get(doing, "/nodes", (("flags", "FUTURE"), ("flags", "DETAIL"))).nodes()
        try:
            return self._commands.nodes()
        except _NO_COMMANDS:
            return self._get(doing, "/nodes").nodes()

    def _wrapped(self) -> bool:
        return self._known_shape() > 38

    def _has(self, method: str, path: str) -> bool:
        self._known_shape()
        return (method, path) in self._routes

    def _get(self, doing: str, path: str, query: Query = ()) -> Document:
        return self._ask(doing, "GET", path, query=query)

    def _ask(self, doing: str, method: str, path: str, query: Query = (), body: object = None) -> Document:
        whole = f"/slurm/v0.0.{self._known_shape()}{path}"
        answer = self._wire.ask(doing, method, whole, query, body)
        return self._judged(answer, doing)

    def _judged(self, answer: Answer, doing: str) -> Document:
        if answer.status == 404 and not answer.body.lstrip().startswith(b"{"):
            raise OldSlurmError(f"cannot {doing}: this slurmrestd has no such path")
        found = Document(answer.body, doing, self._shape)
        said = found.complaints()
        if any("Unspecified error" in each for each in said):
            if answer.seconds < QUICK_S:
                raise tokens.denied(doing, "or slurmctld does not answer: this slurmrestd does not tell")
            raise complaints.away(doing, said)
        if said or answer.status >= 400:
            raise complaints.translated("\n".join(said) or f"HTTP status {answer.status}", doing)
        return found

    def _by_commands(self, doing: str, act: Callable[[Commands], Done]) -> Done:
        try:
            return act(self._commands)
        except NoSlurmError as absent:
            raise OldSlurmError(
                f"cannot {doing}: slurmrestd (v0.0.{self._shape}) has no way to, and Slurm's commands are not here",
                details=(absent.brief,),
                next_step=absent.next_step,
            ) from absent

    def _known_shape(self) -> int:
        """The newest version that both sides know; asked for once."""
        if not self._shape:
            self._shape, self._routes = self._look()
        return self._shape

    def _look(self) -> tuple[int, frozenset[tuple[str, str]]]:
        doing = "ask slurmrestd what it can do"
        answer = self._wire.ask(doing, "GET", "/openapi/v3")
        try:
            served = msgspec.json.decode(answer.body, type=_Api).paths
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
            raise RefusedError(f"cannot {doing}: what answers at {self._wire.place} is no slurmrestd") from broken
        return _newest(served, doing)


def _newest(served: dict[str, dict[str, msgspec.Raw]], doing: str) -> tuple[int, frozenset[tuple[str, str]]]:
    """The newest version that both know, and what it can: ``("get", "/nodes")``. Raises OldSlurmError."""
    routes: dict[int, set[tuple[str, str]]] = {}
    for path, methods in served.items():
        match = _ROUTE.fullmatch(path)
        if match:
            routes.setdefault(int(match[1]), set()).update((method, match[2]) for method in methods)
    common = [shape for shape in routes if OLDEST <= shape <= NEWEST]
    if not common:
        theirs = ", ".join(f"v0.0.{shape}" for shape in sorted(routes)) or "nothing of slurmctld's"
        raise OldSlurmError(
            f"cannot {doing}: it serves {theirs}, we speak v0.0.{OLDEST} to v0.0.{NEWEST}",
            details=("slurmrestd -s openapi/slurmctld -d v0.0.42 chooses what it serves.",),
            next_step="ALIQUOT_SLURM=commands",
        )
    return max(common), frozenset(routes[max(common)])
