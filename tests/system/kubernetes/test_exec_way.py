"""The connection of a command: the same TLS, credentials, impersonation and proxies as every other request.

The server is scripted, byte for byte, so that it does not depend on a WebSocket library.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import (
    ApiError,
    ApiUnavailableError,
    ConnectionBrokenError,
    ThrottledError,
    UnauthorizedError,
)
from aliquot.kubernetes.client.exec import CommandResult, ExecError, UnfinishedError, exec_
from support.standin.frames import accept
from system.kubernetes.api_scripted import Play, Scripted, Seen, Wire, api
from system.kubernetes.test_api_auth import Authority, authority, plugin

__all__ = ["authority"]
PROTOCOL = "v5.channel.k8s.io"
SUCCESS = b'\x03{"status":"Success"}'
WORKED = CommandResult(0, "hi", "")


def frame(data: bytes, code: int = 2) -> bytes:
    head = bytes([0x80 | code]) + (bytes([len(data)]) if len(data) < 126 else struct.pack(">BH", 126, len(data)))
    return head + data


CLOSE = frame(struct.pack(">H", 1000), 8)


async def switch(seen: Seen, wire: Wire, *rest: bytes, protocol: str = PROTOCOL) -> None:
    """Open the WebSocket and send these bytes."""
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines.append(f"Sec-WebSocket-Accept: {accept(seen.headers['sec-websocket-key'])}")
    lines += [f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []
    await wire.raw("\r\n".join([*lines, "", ""]).encode() + b"".join(rest))


async def works(seen: Seen, wire: Wire) -> None:
    await switch(seen, wire, frame(b"\x01hi"), frame(SUCCESS), CLOSE)
    await asyncio.sleep(0.3)


def user(*tokens: str, names: tuple[str, ...] = ()) -> Play:
    """Accept the right tokens or certificates."""

    async def play(seen: Seen, wire: Wire) -> None:
        token = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if token in tokens or (seen.certificate and seen.certificate in names):
            await works(seen, wire)
        else:
            await wire.refuse(401, "Unauthorized", "Unauthorized")

    return play


def ask(client: Api, timeout_s: float = 3.0) -> Any:
    return exec_(client, "p", "ns", "main", ["a"], timeout_s)


def asked(
    folder: Path, play: Play, *, path: str = "", timeout_s: float = 3.0, **config: Any
) -> tuple[CommandResult, Seen]:
    """Return the outcome against this server, with the request that it received."""

    async def main() -> tuple[CommandResult, Seen]:
        async with Scripted(play) as server, api(folder, server.url + path, **config) as client:
            return await ask(client, timeout_s), server.seen[-1]

    return asyncio.run(main())


def test_the_request_is_the_one_that_kubernetes_documents(tmp_path: Path) -> None:
    ended, seen = asked(tmp_path, works, user={"token": "t", "as": "someone", "as-groups": ["g"]})
    assert ended == WORKED
    assert (seen.method, seen.path) == ("GET", "/api/v1/namespaces/ns/pods/p/exec")
    assert seen.query == {"container": "main", "stdout": "true", "stderr": "true", "command": "a"}
    assert seen.headers["sec-websocket-protocol"] == "v5.channel.k8s.io, v4.channel.k8s.io"
    assert seen.headers["authorization"] == "Bearer t"
    assert (seen.headers["impersonate-user"], seen.headers["impersonate-group"]) == ("someone", "g")
    assert seen.headers["user-agent"].startswith("aliquot/")
    assert "accept" not in seen.headers, "kubelet has no JSON to offer for a WebSocket, and answers 406"


def test_a_server_below_a_path(tmp_path: Path) -> None:
    # As Rancher's proxy serves its clusters.
    _, seen = asked(tmp_path, works, path="/k8s/clusters/c-1/")
    assert seen.path == "/k8s/clusters/c-1/api/v1/namespaces/ns/pods/p/exec"


def test_a_refused_token_is_renewed_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")

    async def main() -> None:
        play = user("new")
        async with Scripted(play) as server, api(tmp_path, server.url, user={"tokenFile": "token"}) as client:
            with pytest.raises(UnauthorizedError, match="rejected the credentials"):
                await ask(client)
            file.write_text("new")
            assert await ask(client) == WORKED
            tokens = [seen.headers["authorization"].removeprefix("Bearer ") for seen in server.seen]
            assert tokens == ["old", "old", "new"]

    asyncio.run(main())


def test_a_client_certificate_from_a_plugin(tmp_path: Path, authority: Authority) -> None:
    certificate, key = authority.issue("me")
    pair = {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}
    cluster = {"certificate-authority": str(authority.certificate)}

    async def main() -> None:
        async with (
            Scripted(user(names=("me",)), authority.serve()) as server,
            api(tmp_path, server.url, cluster=cluster, user=plugin(tmp_path, pair)) as client,
        ):
            assert await ask(client) == WORKED

    asyncio.run(main())


def test_a_server_known_by_another_name_and_an_untrusted_one(tmp_path: Path, authority: Authority) -> None:
    cluster = {"certificate-authority": str(authority.certificate)}

    async def main() -> None:
        async with Scripted(user("t"), authority.serve("DNS:kubernetes.example")) as server:
            async with api(tmp_path, server.url, cluster=cluster, user={"token": "t"}) as client:
                with pytest.raises(ApiUnavailableError, match="not trusted: IP address mismatch"):
                    await ask(client)
            cluster["tls-server-name"] = "kubernetes.example"
            async with api(tmp_path, server.url, cluster=cluster, user={"token": "t"}) as client:
                assert await ask(client) == WORKED
            cluster["certificate-authority"] = str(Authority(tmp_path / "other").certificate)
            async with api(tmp_path, server.url, cluster=cluster, user={"token": "t"}) as client:
                with pytest.raises(ApiUnavailableError, match="its certificate is not trusted"):
                    await ask(client)

    asyncio.run(main())


def test_a_proxy_on_the_way(tmp_path: Path) -> None:
    # A command goes through the proxy as a tunnel (CONNECT), like every other request.
    through: list[str] = []

    async def proxy(seen: Seen, wire: Wire) -> None:
        through.append(f"{seen.method} {seen.headers.get('host', '')}")
        if seen.method == "CONNECT":
            await wire.raw(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            await works(seen, wire)

    async def main() -> None:
        async with (
            Scripted(proxy) as server,
            api(tmp_path, "http://kubernetes.example:81", cluster={"proxy-url": server.url}) as client,
        ):
            assert await ask(client) == WORKED

    asyncio.run(main())
    assert through == ["CONNECT kubernetes.example:81", "GET kubernetes.example:81"]


def test_a_proxy_that_does_not_answer_and_one_that_refuses(tmp_path: Path) -> None:
    async def refuse(seen: Seen, wire: Wire) -> None:
        await wire.answer("", 407)

    async def main(proxy: str, message: str) -> None:
        async with api(tmp_path, "http://kubernetes.example", cluster={"proxy-url": proxy}) as client:
            with pytest.raises(ApiUnavailableError, match=message):
                await ask(client)

    async def refused() -> None:
        async with Scripted(refuse) as server:
            await main(server.url, "the proxy failed: .*407")

    asyncio.run(main("http://127.0.0.1:1", "did not answer .*Connection refused"))
    asyncio.run(refused())


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    # The followed request would carry the token.
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.answer("", 302, {"Location": "http://127.0.0.1:1/"})

    with pytest.raises(ApiError, match="it answered 302; a proxy in between may block WebSockets"):
        asked(tmp_path, play, user={"token": "t"})


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (200, b"<html>", ApiError, "answered 200"),
        (400, b"Upgrade request required", ApiError, "Upgrade request required"),
        (404, b"pod does not exist\n", ApiUnavailableError, "the kubelet of pod ns/p does not know it yet"),
        (429, b"{}", ThrottledError, "throttles requests"),
        (500, b"\xff\xfe", ApiUnavailableError, "failed with 500"),
        (503, b"<html>a balancer</html>", ApiUnavailableError, "failed with 503"),
    ],
)
def test_an_answer_that_is_no_websocket(
    tmp_path: Path, status: int, body: bytes, kind: type[ApiError], message: str
) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.answer(body, status)

    with pytest.raises(kind, match=message):
        asked(tmp_path, play)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"])
def test_an_answer_that_is_no_http(tmp_path: Path, answer: bytes) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.raw(answer)
        wire.writer.close()

    with pytest.raises(ApiUnavailableError, match="did not answer"):
        asked(tmp_path, play)


def test_a_reset_before_the_answer_may_have_begun_it(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        wire.reset()

    with pytest.raises(ConnectionBrokenError):
        asked(tmp_path, play)


def test_a_server_that_speaks_no_such_protocol(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await switch(seen, wire, protocol="")
        await asyncio.sleep(0.2)

    with pytest.raises(ExecError, match=r"supports none of v5\.channel\.k8s\.io, v4\.channel\.k8s\.io"):
        asked(tmp_path, play)


@pytest.mark.parametrize(
    "rest",
    [
        [CLOSE],
        [frame(b"\x01begun"), CLOSE],
        [frame(b"\x03{"), CLOSE],
        [frame(b"\x01x")[:2]],
        [b"\xff\xff\xff\xff"],
        [frame(b"\x01" + b"x" * 10, 3)],
    ],
)
def test_a_conversation_that_breaks_off(tmp_path: Path, rest: list[bytes]) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await switch(seen, wire, *rest)
        wire.writer.close()

    with pytest.raises(UnfinishedError, match="the connection closed before the command ended"):
        asked(tmp_path, play)


def test_pieces_empty_messages_text_and_unknown_channels(tmp_path: Path) -> None:
    status = (
        b'{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"9"}]}}'
    )

    async def play(seen: Seen, wire: Wire) -> None:
        parts = [b"", b"\x01", b"\x01h", b"\x09?", b"\xff\x01", b"\x01i\xc3", b"\x01\xbc", b"\x02no"]
        await switch(seen, wire, *map(frame, parts), frame(b"\x01!", 1), frame(b"", 9))
        await wire.raw(frame(b"\x03" + status[:20]))
        await asyncio.sleep(0.05)
        await wire.raw(frame(b"\x03" + status[20:]) + CLOSE)
        await asyncio.sleep(0.3)

    assert asked(tmp_path, play)[0] == CommandResult(9, "hi\u00fc!", "no")


def test_what_comes_after_the_end_is_heard_and_a_connection_that_stays_open_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aliquot.kubernetes.client.exec.SETTLE_S", 0.3)
    monkeypatch.setattr("aliquot.kubernetes.client.websocket.CLOSE_S", 0.1)

    async def play(seen: Seen, wire: Wire) -> None:
        await switch(seen, wire, frame(SUCCESS))
        await asyncio.sleep(0.05)
        await wire.raw(frame(b"\x01hi"))
        await asyncio.sleep(5)

    assert asked(tmp_path, play, timeout_s=4)[0] == WORKED


def test_the_time_allowed_is_kept_to_while_opening_and_while_running(tmp_path: Path) -> None:
    async def mute(seen: Seen, wire: Wire) -> None:
        await asyncio.sleep(5)

    async def silent(seen: Seen, wire: Wire) -> None:
        await switch(seen, wire, frame(b"\x02half way"))
        await asyncio.sleep(5)

    with pytest.raises(ConnectionBrokenError, match=r"no answer within 0\.3 s"):
        asked(tmp_path, mute, timeout_s=0.3)
    with pytest.raises(UnfinishedError, match=r"did not end within 0\.3 s") as caught:
        asked(tmp_path, silent, timeout_s=0.3)
    assert caught.value.details == ("last output: half way",)


def test_nothing_new_begins_while_we_are_closing(tmp_path: Path) -> None:
    async def main() -> None:
        async with Scripted(works) as server:
            client = api(tmp_path, server.url)
            await client.aclose()
            with pytest.raises(ApiUnavailableError, match="the client is closed"):
                await ask(client)
            assert server.seen == []

    asyncio.run(main())


def test_a_password(tmp_path: Path) -> None:
    _, seen = asked(tmp_path, works, user={"username": "u", "password": "p"})
    assert seen.headers["authorization"] == f"Basic {base64.b64encode(b'u:p').decode()}"
