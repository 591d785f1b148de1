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
from aliquot.slurm.client.command_client import ScontrolClient, check_name, on_node, one_line, require_reason
from aliquot.slurm.client.errors import DeniedError, NoSlurmError, OldSlurmError, RefusedError, SlurmUnavailableError
from aliquot.slurm.client.json_versions.reader import NEWEST, OLDEST, SlurmDocument
from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition, SlurmReservation, Version
from aliquot.slurm.client.rest_transport import Query, RestTransport, SlurmrestdResponse
from aliquot.slurm.client.states import has_ended

ResultT = TypeVar("ResultT")

_ROUTE = re.compile(r"/slurm/v0\.0\.(\d+)(/.*?)/?")
_NODE = "/node/{node_name}"
_NO_COMMANDS = (NoSlurmError, DeniedError, SlurmUnavailableError)
"""Slurm's commands are of no use here: none are installed, this user may not, or slurmctld's port is closed to this
host, whatever slurmrestd can do.
"""
QUICK_S = 4.0
"""22.05 has one sentence for a wrong token (at once) and for a slurmctld that is away (after 9 s)."""


class _Api(msgspec.Struct):
    """The part of ``/openapi/v3`` that we want: which paths there are, and with which methods."""

    paths: dict[str, dict[str, msgspec.Raw]]


class SlurmRestClient:
    """A cluster as slurmrestd shows it. ``transport`` leads there; ``commands`` are for what it cannot do."""

    through = "slurmrestd"

    def __init__(self, transport: RestTransport, commands: ScontrolClient) -> None:
        self._transport = transport
        self._commands = commands
        self._shape = 0
        self._routes: frozenset[tuple[str, str]] = frozenset()

    def version(self) -> Version:
        """slurmrestd's own release: the controller's is the same or newer."""
        purpose = "read Slurm's version"
        found = self._get(purpose, "/ping").version()
        if found is None:
            raise RefusedError(f"cannot {purpose}: slurmrestd does not say it")
        return found

    def settings(self) -> dict[str, str]:
        # From 25.11 there is /conf, but as a document of its own shape: scontrol prints the same in every release.
        return self._by_commands("read Slurm's settings", lambda c: c.settings())

    def nodes(self) -> tuple[SlurmNode, ...]:
        return self._nodes("read Slurm's nodes")

    def node(self, name: str) -> SlurmNode:
        purpose = f"read node {name}"
        check_name(name, purpose)
        # /node/NAME does not find FUTURE nodes, and 24.11's has another node's partitions in it.
        with suppress(*_NO_COMMANDS):
            return self._commands.node(name)
        found = next((n for n in self._nodes(purpose) if n.name == name), None)
        if found is None:
            raise complaints.slurm_error(f"Node {name} not found", purpose)
        return found

    def jobs(self, node: str = "") -> tuple[SlurmJob, ...]:
        if node:
            # slurmrestd lists the whole queue whatever it is asked for.
            with suppress(*_NO_COMMANDS):
                return self._commands.jobs(node)
        every = self._get("read Slurm's jobs", "/jobs", (("flags", "DETAIL"),) if self._wrapped() else ()).jobs()
        return tuple(j for j in every if (on_node(j, node) if node else not has_ended(j.state)))

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return self._get("read Slurm's partitions", "/partitions").partitions()

    def reservations(self) -> tuple[SlurmReservation, ...]:
        return self._get("read Slurm's reservations", "/reservations").reservations()

    def drain(self, name: str, reason: str) -> None:
        words = require_reason(reason)
        self._update(f"drain {name}", name, {"state": ["DRAIN"], "reason": words}, lambda c: c.drain(name, words))

    def resume(self, name: str) -> None:
        purpose = f"resume {name}"
        try:
            self._update(purpose, name, {"state": ["RESUME"]}, lambda c: c.resume(name))
        except RefusedError as refused:
            complaints.raise_unless_in_service(self.node(name), refused)

    def down(self, name: str, reason: str) -> None:
        words = require_reason(reason)
        self._update(f"set {name} down", name, {"state": ["DOWN"], "reason": words}, lambda c: c.down(name, words))

    def requeue(self, job: int) -> None:
        self._by_commands(f"requeue job {job}", lambda c: c.requeue(job))

    def note(self, name: str, extra: str) -> None:
        words = one_line(extra)
        self._update(f"note the layout of {name}", name, {"extra": words}, lambda c: c.note(name, words))

    def describe(self, name: str, words: Mapping[str, str]) -> None:
        fields: dict[str, Any] = {key: one_line(value) for key, value in words.items() if key != "weight"}
        fields |= {"weight": int(words["weight"])} if "weight" in words else {}
        self._update(f"describe {name}", name, fields, lambda c: c.describe(name, words))

    def join(self, partition: str, name: str) -> None:
        self._by_commands(f"put {name} into partition {partition}", lambda c: c.join(partition, name))

    def features(self, name: str, available: tuple[str, ...]) -> None:
        wanted = {"features": list(available), "features_act": list(available)}
        self._update(f"set the features of {name}", name, wanted, lambda c: c.features(name, available))

    def create(self, line: str) -> None:
        grestext.parse_configured(dict(w.lower().split("=", 1) for w in line.split() if "=" in w).get("gres", ""))
        self._by_commands("create a node", lambda c: c.create(line))

    def delete(self, name: str) -> None:
        purpose = f"delete node {name}"
        check_name(name, purpose)
        if not self._has("delete", _NODE):
            return self._by_commands(purpose, lambda c: c.delete(name))
        self._request(purpose, "DELETE", f"/node/{name}")
        return None

    def reconfigure(self) -> None:
        purpose = "have Slurm read its files again"
        if not self._has("get", "/reconfigure"):
            return self._by_commands(purpose, lambda c: c.reconfigure())
        self._request(purpose, "GET", "/reconfigure")
        return None

    def power(self, name: str, up: bool) -> None:
        direction = "up" if up else "down"
        self._update(
            f"power {direction} {name}", name, {"state": [f"POWER_{direction.upper()}"]}, lambda c: c.power(name, up)
        )

    # How

    def _update(self, purpose: str, name: str, body: dict[str, Any], other: Callable[[ScontrolClient], None]) -> None:
        check_name(name, purpose)
        if not self._has("post", _NODE):
            return self._by_commands(purpose, other)
        self._request(purpose, "POST", f"/node/{name}", body=body)
        return None

    def _nodes(self, purpose: str) -> tuple[SlurmNode, ...]:
        """With FUTURE nodes, and what is in use. slurmrestd of 22.05 has no flag for it and leaves FUTURE ones out."""
        if self._wrapped():
            return self._get(purpose, "/nodes", (("flags", "FUTURE"), ("flags", "DETAIL"))).nodes()
        try:
            return self._commands.nodes()
        except _NO_COMMANDS:
            return self._get(purpose, "/nodes").nodes()

    def _wrapped(self) -> bool:
        return self._known_shape() > 38

    def _has(self, method: str, path: str) -> bool:
        self._known_shape()
        return (method, path) in self._routes

    def _get(self, purpose: str, path: str, query: Query = ()) -> SlurmDocument:
        return self._request(purpose, "GET", path, query=query)

    def _request(self, purpose: str, method: str, path: str, query: Query = (), body: object = None) -> SlurmDocument:
        whole = f"/slurm/v0.0.{self._known_shape()}{path}"
        answer = self._transport.request(purpose, method, whole, query, body)
        return self._checked(answer, purpose)

    def _checked(self, answer: SlurmrestdResponse, purpose: str) -> SlurmDocument:
        if answer.status == 404 and not answer.body.lstrip().startswith(b"{"):
            raise OldSlurmError(f"cannot {purpose}: this slurmrestd has no such path")
        found = SlurmDocument(answer.body, purpose, self._shape)
        errors = found.errors()
        if any("Unspecified error" in each for each in errors):
            if answer.seconds < QUICK_S:
                raise tokens.token_denied(purpose, "or slurmctld does not answer: this slurmrestd does not tell")
            raise complaints.unavailable(purpose, errors)
        if errors or answer.status >= 400:
            raise complaints.slurm_error("\n".join(errors) or f"HTTP status {answer.status}", purpose)
        return found

    def _by_commands(self, purpose: str, call: Callable[[ScontrolClient], ResultT]) -> ResultT:
        try:
            return call(self._commands)
        except NoSlurmError as absent:
            raise OldSlurmError(
                f"cannot {purpose}: slurmrestd (v0.0.{self._shape}) has no way to, and Slurm's commands are not here",
                details=(absent.brief,),
                next_step=absent.next_step,
            ) from absent

    def _known_shape(self) -> int:
        """The newest version that both sides know; asked for once."""
        if not self._shape:
            self._shape, self._routes = self._discover()
        return self._shape

    def _discover(self) -> tuple[int, frozenset[tuple[str, str]]]:
        purpose = "ask slurmrestd what it can do"
        answer = self._transport.request(purpose, "GET", "/openapi/v3")
        try:
            served = msgspec.json.decode(answer.body, type=_Api).paths
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
            raise RefusedError(f"cannot {purpose}: what answers at {self._transport.url} is no slurmrestd") from broken
        return _newest(served, purpose)


def _newest(served: dict[str, dict[str, msgspec.Raw]], purpose: str) -> tuple[int, frozenset[tuple[str, str]]]:
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
            f"cannot {purpose}: it serves {theirs}, we speak v0.0.{OLDEST} to v0.0.{NEWEST}",
            details=("slurmrestd -s openapi/slurmctld -d v0.0.42 chooses what it serves.",),
            next_step="ALIQUOT_SLURM=commands",
        )
    return max(common), frozenset(routes[max(common)])
