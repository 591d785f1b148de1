"""A client that uses slurmrestd, and Slurm's commands (if installed) for what that release of it cannot do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from aliquot.slurm.client import error_messages as error_texts
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
"""Slurm's commands do not work here, although slurmrestd may: they are not installed or not permitted, or slurmctld's
port is closed to this host.
"""
QUICK_S = 4.0
"""Seconds. 22.05 has the same error for an invalid token (at once) and for an unavailable slurmctld (after 9 s)."""


class _Api(msgspec.Struct):
    """The part of ``/openapi/v3`` that we read: the paths and their methods."""

    paths: dict[str, dict[str, msgspec.Raw]]


class SlurmRestClient:
    """A cluster that is read and changed through slurmrestd; ``commands`` serve what slurmrestd cannot do."""

    through = "slurmrestd"

    def __init__(self, transport: RestTransport, commands: ScontrolClient) -> None:
        self._transport = transport
        self._commands = commands
        self._shape = 0
        self._routes: frozenset[tuple[str, str]] = frozenset()

    def version(self) -> Version:
        """Return slurmrestd's own release; the controller's is the same or newer."""
        purpose = "read Slurm's version"
        found = self._get(purpose, "/ping").version()
        if found is None:
            raise RefusedError(f"cannot {purpose}: slurmrestd does not report it")
        return found

    def settings(self) -> dict[str, str]:
        # 25.11 has /conf, but in another format; scontrol prints the same in every release.
        return self._by_commands("read Slurm's settings", lambda c: c.settings())

    def nodes(self) -> tuple[SlurmNode, ...]:
        return self._nodes("read Slurm's nodes")

    def node(self, name: str) -> SlurmNode:
        purpose = f"read node {name}"
        check_name(name, purpose)
        # /node/NAME does not find FUTURE nodes, and that of 24.11 contains another node's partitions.
        with suppress(*_NO_COMMANDS):
            return self._commands.node(name)
        found = next((n for n in self._nodes(purpose) if n.name == name), None)
        if found is None:
            raise error_texts.slurm_error(f"Node {name} not found", purpose)
        return found

    def jobs(self, node: str = "", *, holding: bool = False) -> tuple[SlurmJob, ...]:
        if node:
            # slurmrestd always lists the whole queue.
            with suppress(*_NO_COMMANDS):
                return self._commands.jobs(node)
        every = self._get("read Slurm's jobs", "/jobs", (("flags", "DETAIL"),) if self._wrapped() else ()).jobs()
        if node:
            return tuple(j for j in every if on_node(j, node))
        return tuple(j for j in every if not has_ended(j.state) and not (holding and j.pending))

    def queue(self, *, details: bool = True) -> tuple[SlurmJob, ...]:
        # slurmrestd always lists the whole queue, with every field.
        with suppress(*_NO_COMMANDS):
            return self._commands.queue(details=details)
        return tuple(job for job in self.jobs() if not job.pending or job.requested or job.features)

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return self._get("read Slurm's partitions", "/partitions").partitions()

    def reservations(self) -> tuple[SlurmReservation, ...]:
        return self._get("read Slurm's reservations", "/reservations").reservations()

    def reserve(self, reservation: str, node: str, minutes: int) -> None:
        self._by_commands(f"reserve {node}", lambda c: c.reserve(reservation, node, minutes))

    def extend_reservation(self, reservation: str) -> None:
        self._by_commands(f"extend reservation {reservation}", lambda c: c.extend_reservation(reservation))

    def delete_reservation(self, reservation: str) -> None:
        self._by_commands(f"delete reservation {reservation}", lambda c: c.delete_reservation(reservation))

    def drain(self, name: str, reason: str) -> None:
        words = require_reason(reason)
        self._update(f"drain {name}", name, {"state": ["DRAIN"], "reason": words}, lambda c: c.drain(name, words))

    def resume(self, name: str) -> None:
        purpose = f"resume {name}"
        try:
            self._update(purpose, name, {"state": ["RESUME"]}, lambda c: c.resume(name))
        except RefusedError as refused:
            error_texts.raise_unless_in_service(self.node(name), refused)

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

    def _update(self, purpose: str, name: str, body: dict[str, Any], other: Callable[[ScontrolClient], None]) -> None:
        check_name(name, purpose)
        if not self._has("post", _NODE):
            return self._by_commands(purpose, other)
        self._request(purpose, "POST", f"/node/{name}", body=body)
        return None

    def _nodes(self, purpose: str) -> tuple[SlurmNode, ...]:
        """Return all nodes, with FUTURE ones and GRES in use.

        slurmrestd of 22.05 has no flag for that and omits FUTURE nodes, so Slurm's commands are preferred there.
        """
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
            raise OldSlurmError(f"cannot {purpose}: this slurmrestd does not support the request")
        found = SlurmDocument(answer.body, purpose, self._shape)
        errors = found.errors()
        if any("Unspecified error" in each for each in errors):
            if answer.seconds < QUICK_S:
                raise tokens.token_denied(purpose, "or slurmctld does not answer: both have the same error")
            raise error_texts.unavailable(purpose, errors)
        if errors or answer.status >= 400:
            raise error_texts.slurm_error("\n".join(errors) or f"HTTP status {answer.status}", purpose)
        return found

    def _by_commands(self, purpose: str, call: Callable[[ScontrolClient], ResultT]) -> ResultT:
        try:
            return call(self._commands)
        except NoSlurmError as absent:
            raise OldSlurmError(
                f"cannot {purpose}: slurmrestd (v0.0.{self._shape}) does not support it, and Slurm's commands are "
                "not installed",
                details=(absent.brief,),
                next_step=absent.next_step,
            ) from absent

    def _known_shape(self) -> int:
        """Return the newest version that both sides know; requested once."""
        if not self._shape:
            self._shape, self._routes = self._discover()
        return self._shape

    def _discover(self) -> tuple[int, frozenset[tuple[str, str]]]:
        purpose = "ask slurmrestd what it can do"
        answer = self._transport.request(purpose, "GET", "/openapi/v3")
        try:
            served = msgspec.json.decode(answer.body, type=_Api).paths
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as broken:
            raise RefusedError(f"cannot {purpose}: the server at {self._transport.url} is not slurmrestd") from broken
        return _newest(served, purpose)


def _newest(served: dict[str, dict[str, msgspec.Raw]], purpose: str) -> tuple[int, frozenset[tuple[str, str]]]:
    """Return the newest version that both sides know, and its routes: ``("get", "/nodes")``. Raises OldSlurmError."""
    routes: dict[int, set[tuple[str, str]]] = {}
    for path, methods in served.items():
        match = _ROUTE.fullmatch(path)
        if match:
            routes.setdefault(int(match[1]), set()).update((method, match[2]) for method in methods)
    common = [shape for shape in routes if OLDEST <= shape <= NEWEST]
    if not common:
        theirs = ", ".join(f"v0.0.{shape}" for shape in sorted(routes)) or "no version of slurmctld's API"
        raise OldSlurmError(
            f"cannot {purpose}: it serves {theirs}, and Aliquot needs v0.0.{OLDEST} to v0.0.{NEWEST}",
            details=("Start it with the version to serve: slurmrestd -s openapi/slurmctld -d v0.0.42",),
            next_step="ALIQUOT_SLURM=commands",
        )
    return max(common), frozenset(routes[max(common)])
