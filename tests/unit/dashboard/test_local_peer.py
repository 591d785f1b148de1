"""The user of a client, which is known only for connections within the host."""

from __future__ import annotations

import os
import socket

import pytest
from starlette.requests import Request

from aliquot.dashboard.security import local_peer
from aliquot.dashboard.security.local_peer import owner


def _request(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> Request:
    return Request({"type": "http", "client": client, "server": server})


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (None, ("127.0.0.1", 80)),
        (("127.0.0.1", 4711), None),
        (("127.0.0.1", 4711), ("/run/page.sock", None)),
        (("not an address", 4711), ("127.0.0.1", 80)),
        (("::1", 4711), ("127.0.0.1", 80)),
        (("127.0.0.1", 1), ("127.0.0.1", 2)),
    ],
    ids=["no client", "no server", "a socket file", "no address", "two families", "no connection"],
)
def test_it_is_unknown(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> None:
    assert owner(_request(client, server)) is None


def test_it_is_the_user_of_the_socket() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0],
    ):
        assert owner(_request(client.getsockname(), server.getsockname())) == os.getuid()


def test_a_kernel_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    monkeypatch.setattr(local_peer, "_PATIENCE_S", 0.01)
    with silent, other_end:
        monkeypatch.setattr(socket, "socket", lambda *_: silent)
        assert owner(_request(("127.0.0.1", 1), ("127.0.0.1", 2))) is None
