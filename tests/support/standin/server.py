"""The server: authenticate, authorize and answer requests."""

from __future__ import annotations

import contextlib
import secrets
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from support.standin import crds, discovery, openapi, rbac, render, reviews
from support.standin.admission import Admission
from support.standin.answers import RefusalError, forbidden, method_not_allowed, no_such_path, no_such_resource
from support.standin.call import Call, Caller
from support.standin.callers import impersonated
from support.standin.certificates import certificate
from support.standin.control import Control
from support.standin.execs import Execs
from support.standin.handler import Handler
from support.standin.kinds import Kind, Kinds
from support.standin.policies import Policies
from support.standin.removal import Removal
from support.standin.render import Rendered
from support.standin.rest import Rest
from support.standin.routes import Route, query, route, words
from support.standin.store import Store
from support.standin.tokens import Tokens
from support.standin.watch import Watch
from support.standin.webhooks import Webhooks
from support.standin.writes import Writes

JSON = dict[str, Any]
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128
    context: ssl.SSLContext | None = None

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection. The handshake is left to the connection's own thread: a slow client must not delay the
        others.
        """
        connection, address = super().get_request()
        if self.context is not None:
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect in the middle of a request."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Standin:
    """A running server on loopback. ``control`` holds the switches for tests.

    Args:
        port: 0 takes a free one
        admin: the token of a user in ``system:masters``; made up when empty
        tls: False speaks plain HTTP, to which ``kubectl`` sends no token
    """

    def __init__(self, port: int = 0, admin: str = "", *, tls: bool = True) -> None:
        self.admin = admin or secrets.token_hex(16)
        self.store, self.kinds, self.control = Store(), Kinds(), Control()
        self.tokens = Tokens(self.store, self.admin)
        hooks = Webhooks(self.store)
        self.admission = Admission([hooks.mutate], [Policies(self.store).validate, hooks.validate])
        writes = Writes(self.store, self._written)
        self.rest, self.removal = Rest(writes, self.admission), Removal(writes, self.admission)
        self.execs = Execs(self.store, self.admission)
        self.stopping = False
        self._connections: set[socket.socket] = set()
        self._handler = type("Handler", (Handler,), {"standin": self})
        self.ca: Path | None = None
        self._context: ssl.SSLContext | None = None
        if tls:
            self.ca, key = certificate()
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(self.ca, key)
        self._server = self._bound(port)
        self.port = int(self._server.server_address[1])
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._seed()

    def _bound(self, port: int) -> _Server:
        server = _Server(("127.0.0.1", port), self._handler)
        server.context = self._context
        return server

    def start(self) -> Standin:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True, name="standin").start()
        return self

    def close(self) -> None:
        """Stop listening and end every connection."""
        self.stopping = True
        self._server.shutdown()
        self._server.server_close()
        self._cut()

    def stop_listening(self) -> None:
        """Refuse connections until ``listen_again``. Stored objects stay."""
        self._server.shutdown()
        self._server.server_close()
        self.control.drop()
        self._cut()

    def listen_again(self) -> None:
        self._server = self._bound(self.port)
        self.start()

    def opened(self, connection: socket.socket) -> None:
        self._connections.add(connection)

    def closed(self, connection: socket.socket) -> None:
        self._connections.discard(connection)

    def _cut(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _seed(self) -> None:
        for name in NAMESPACES:
            kind = self.kinds.find("", "v1", "namespaces")
            assert kind is not None
            body = b'{"metadata": {"name": "%s"}}' % name.encode()
            self.rest.create(Call("create", kind, Caller("system:apiserver"), name, name, body=body))

    def _written(self, call: Call, value: JSON) -> None:
        """Update after every write: the table of kinds follows the definitions, and objects are deleted with theirs."""
        if call.kind.bucket != crds.BUCKET:
            return
        self.kinds.replace_custom(crds.kinds(self.store))
        if self.store.get(crds.BUCKET, "", value["metadata"]["name"]) is None:
            bucket = f"{value['spec']['names']['plural']}.{value['spec']['group']}"
            for row in self.store.items(bucket):
                self.store.remove(bucket, row)

    def answer(
        self, method: str, path: str, parameters: str, headers: dict[str, str], body: bytes, alive: Callable[[], bool]
    ) -> Rendered:
        """Answer a request.

        Raises:
            RefusalError: the server refuses the request
        """
        caller = impersonated(self.store, self.tokens.caller(headers.get("authorization")), headers)
        asked = query(parameters)
        found = route(method, path, asked)
        if found is None:
            return self._document(method, path, caller, headers)
        kind = self.kinds.find(found.group, found.version, found.plural)
        call = _call(found, kind or _unknown(found), caller, asked, headers, body)
        self.control.note(call.verb, call.resource, caller.name)
        self._authorize(call)
        if kind is None:
            raise no_such_resource() if self._has_version(found) else no_such_path()
        if call.resource == "pods/exec" and call.name:
            return self.execs.connect(msgspec.structs.replace(call, command=words(parameters)), headers)
        return self._resource(call, alive)

    def _has_version(self, found: Route) -> bool:
        return any((k.group, k.version) == (found.group, found.version) for k in self.kinds.all())

    def _authorize(self, call: Call) -> None:
        verb = "patch" if call.verb == "apply" else call.verb
        name = call.name or call.selected_name
        if not rbac.allows_resource(
            self.store, call.caller, verb, call.group, call.resource, namespace=call.namespace, name=name
        ):
            raise forbidden(call.kind.plural, call.group, call.name, rbac.refusal_text(call))

    def _document(self, method: str, path: str, caller: Caller, headers: dict[str, str]) -> Rendered:
        """Return the documents of discovery, version and health."""
        path = path.rstrip("/") or "/"
        public = path in ("/healthz", "/livez", "/readyz", "/version")
        if not public and not rbac.allows_path(self.store, caller, method.lower(), path):
            text = f'User "{caller.name}" cannot {method.lower()} path "{path}"'
            raise RefusalError(403, "Forbidden", f"forbidden: {text}", {})
        if path in ("/healthz", "/livez", "/readyz"):
            return Rendered(200, "text/plain; charset=utf-8", b"ok")
        found = self._discovered(path)
        if found is None:
            known = path.startswith("/apis/") and path.split("/")[2] in self.kinds.groups()
            raise no_such_resource() if known else no_such_path()
        return render.plain(200, found)

    def _discovered(self, path: str) -> JSON | None:
        if path == "/version":
            return discovery.VERSION
        if path == "/api":
            return discovery.core_versions(f"127.0.0.1:{self.port}")
        if path == "/apis":
            return discovery.groups(self.kinds)
        if path == "/api/v1":
            return discovery.resources(self.kinds, "", "v1")
        parts = path.split("/")[1:]
        if parts[:2] == ["openapi", "v3"]:
            return self._openapi(parts[2:])
        if parts[0] != "apis" or len(parts) > 3:
            return None
        return (
            discovery.one_group(self.kinds, parts[1])
            if len(parts) == 2
            else discovery.resources(self.kinds, parts[1], parts[2])
        )

    def _openapi(self, parts: list[str]) -> JSON | None:
        if not parts:
            return openapi.index(self.kinds)
        if len(parts) < 2:
            return None
        return openapi.document(self.kinds, parts[1] if parts[0] == "apis" else "", parts[-1])

    def _resource(self, call: Call, alive: Callable[[], bool]) -> Rendered:
        verb, sub = call.verb, call.kind.subresources.get(call.subresource)
        if call.subresource and sub is None:
            raise no_such_resource() if call.kind.custom is None else no_such_path()
        allowed = sub.verbs if sub is not None else call.kind.verbs
        if verb not in allowed or (verb == "create" and call.name and not call.subresource and call.kind.namespaced):
            raise method_not_allowed()
        if verb == "watch":
            watch = Watch(self.store, call, self._selected(call), alive)
            return Rendered(200, "application/json", lines=render.lines(call, watch.events()))
        return render.answer(call, *self._act(call))

    def _selected(self, call: Call) -> Callable[[JSON], bool]:
        chosen = self.rest.selected(call)
        if not call.name or call.kind.bucket == "namespaces.":
            return chosen
        return lambda value: value["metadata"]["name"] == call.name and chosen(value)

    def _act(self, call: Call) -> tuple[int, JSON]:
        rest = self.rest
        if call.kind.bucket in reviews.BUCKETS:
            return reviews.answer(self.store, self.tokens, call)
        special: dict[str, Callable[[Call], tuple[int, JSON]]] = {
            "eviction": self.removal.evict,
            "binding": rest.bind,
            "token": lambda c: (201, self.tokens.request(c, c.decoded() or {})),
        }
        if call.subresource in special:
            return special[call.subresource](call)
        if call.subresource not in ("", "status", "finalize"):
            raise RefusalError(501, "NotImplemented", f"the stand-in does not serve {call.resource}", {})
        verbs = {"get": rest.get, "list": rest.list, "create": rest.create, "update": rest.update}
        verbs.update(patch=rest.patch, delete=self.removal.delete, deletecollection=self._delete_collection)
        return verbs[call.verb](call)

    def _delete_collection(self, call: Call) -> tuple[int, JSON]:
        code, found = self.rest.list(call)
        self.removal.collection(call, found["items"])
        return code, found


def _unknown(found: Route) -> Kind:
    """Return a kind that does not exist: authorization comes first."""
    return Kind(found.group, found.version, "", found.plural, "", bool(found.namespace), ())


def _call(
    found: Route, kind: Kind, caller: Caller, asked: dict[str, str], headers: dict[str, str], body: bytes
) -> Call:
    return Call(
        verb=found.verb,
        kind=kind,
        caller=caller,
        namespace=found.namespace,
        name=found.name,
        subresource=found.subresource,
        query=asked,
        body=body,
        content_type=headers.get("content-type", ""),
        accept=headers.get("accept", "") or "application/json",
        agent=headers.get("user-agent", ""),
    )
