"""The HTTPS server on its own: responses to invalid reviews, and certificates that change while it runs."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import support.admissions as made
from aliquot.errors import UsageError
from aliquot.foundation.http_server import Answer
from aliquot.kubernetes.client.admission_review import AdmissionRequest, AdmissionVerdict
from aliquot.kubernetes.client.errors import ForbiddenError
from aliquot.kubernetes.virtual_machines.webhook import main as webhooks_main
from aliquot.kubernetes.virtual_machines.webhook import server as https
from aliquot.kubernetes.virtual_machines.webhook.certificate_source import (
    MountedCertificate,
    OwnCertificate,
    ServedCertificate,
)
from aliquot.kubernetes.virtual_machines.webhook.certificates import CertificateBundle, CertificatePair, renewed_bundle
from aliquot.kubernetes.virtual_machines.webhook.main import Webhook
from aliquot.kubernetes.virtual_machines.webhook.server import HttpsServer, NotReadyError, application

Story = Callable[["Client"], None]


def bundle() -> CertificateBundle:
    found = renewed_bundle(None, ("localhost",), dt.datetime.now(dt.UTC))
    assert found is not None
    return found


class Client:
    """A client. A changed ``trust`` expects another certificate. Only its own thread calls ``server``."""

    def __init__(self, server: HttpsServer, loop: asyncio.AbstractEventLoop, trust: CertificateBundle) -> None:
        self.server, self.loop, self.trust = server, loop, trust

    def certify(self, other: CertificateBundle) -> None:
        done = asyncio.run_coroutine_threadsafe(self._certify(other), self.loop)
        done.result(5)

    async def _certify(self, other: CertificateBundle) -> None:
        self.server.certify(other.server.certificate, other.server.key)

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
        context = ssl.create_default_context(cadata=self.trust.trusted.decode())
        connection = http.client.HTTPSConnection("localhost", self.server.port, timeout=10, context=context)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


def play(story: Story) -> None:
    async def judge(request: AdmissionRequest) -> AdmissionVerdict:
        if request.name == "early":
            raise NotReadyError("not ready: nothing was read yet")
        return AdmissionVerdict(reasons=("no",)) if request.name == "bad" else AdmissionVerdict()

    async def run() -> None:
        first = bundle()
        app = application(
            {"/judge": judge},
            {"/page": lambda query: Answer(200, "text/plain", query.get("q", "").encode(), {"Retry-After": "7"})},
        )
        server = HttpsServer(app, 0)
        server.certify(first.server.certificate, first.server.key)
        serving = asyncio.create_task(server.serve())
        try:
            await asyncio.to_thread(story, Client(server, asyncio.get_running_loop(), first))
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(run())


def review(name: str) -> bytes:
    request = {"uid": "u", "operation": "CREATE", "name": name, "object": made.gpu(), "oldObject": None}
    return json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}).encode()


def test_reviews_pages_and_what_is_neither() -> None:
    def story(client: Client) -> None:
        status, body = client.ask("POST", "/judge?timeout=10s", review("good"))
        assert (status, json.loads(body)["response"]) == (200, {"uid": "u", "allowed": True})
        assert json.loads(client.ask("POST", "/judge", review("bad"))[1])["response"]["allowed"] is False
        assert client.ask("POST", "/judge", review("early")) == (503, "not ready: nothing was read yet\n")
        for odd in (b"", b"{", b"{}", b'{"request": 7}', b"\xff"):
            status, text = client.ask("POST", "/judge", odd)
            assert (status, text.startswith("not an AdmissionReview")) == (400, True)
        assert client.ask("GET", "/page?q=7") == (200, "7")
        assert client.ask("GET", "/judge")[0] == 405
        assert client.ask("GET", "/other")[0] == 404

    play(story)


def test_a_page_has_the_headers_of_its_answer() -> None:
    def story(client: Client) -> None:
        context = ssl.create_default_context(cadata=client.trust.trusted.decode())
        connection = http.client.HTTPSConnection("localhost", client.server.port, timeout=10, context=context)
        connection.request("GET", "/page")
        answer = connection.getresponse()
        assert (answer.getheader("retry-after"), answer.getheader("content-type")) == ("7", "text/plain; charset=utf-8")
        connection.close()

    play(story)


def test_answers_over_a_connection_that_is_kept_are_not_held_back() -> None:
    # As the API server does. Each review would take 40 ms longer if the rest of an answer waited for an
    # acknowledgement.

    def story(client: Client) -> None:
        context = ssl.create_default_context(cadata=client.trust.trusted.decode())
        connection = http.client.HTTPSConnection("localhost", client.server.port, timeout=10, context=context)
        took = []
        for _ in range(20):
            began = time.perf_counter()
            connection.request("POST", "/judge", review("good"))
            connection.getresponse().read()
            took.append(time.perf_counter() - began)
        connection.close()
        assert min(took[2:]) < 0.03

    play(story)


def test_what_is_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "MAX_BYTES", 1000)

    def story(client: Client) -> None:
        assert client.ask("POST", "/judge", b"x" * 2000) == (413, "more than 1000 bytes\n")
        assert client.ask("POST", "/judge", review("good"))[0] == 200

    play(story)


def test_what_is_nested_too_deep_is_no_review() -> None:
    # Any pod in the cluster can reach the port: its requests must end in a response, not in a traceback in the log.
    deep = b'{"request":{"uid":"u","object":' + b"[" * 50_000 + b"]" * 50_000 + b"}}"

    def story(client: Client) -> None:
        status, text = client.ask("POST", "/judge", deep)
        assert (status, text.startswith("not an AdmissionReview")) == (400, True)
        assert client.ask("POST", "/judge", review("good"))[0] == 200

    play(story)


def test_half_a_review_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "BODY_S", 0.2)

    def story(client: Client) -> None:
        context = ssl.create_default_context(cadata=client.trust.trusted.decode())
        plain = socket.create_connection(("localhost", client.server.port), 5)
        with context.wrap_socket(plain, server_hostname="localhost") as half:
            half.sendall(b"POST /judge HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
            assert half.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert client.ask("POST", "/judge", review("good"))[0] == 200

    play(story)


def test_a_refusal_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    # A client that reaches the port must not be able to forge log lines.
    forged = json.loads(review("bad"))
    forged["request"] |= {"operation": "CREATE\nrefused: alice"}
    with caplog.at_level("INFO"):
        play(lambda client: client.ask("POST", "/judge", json.dumps(forged).encode()) and None)
    lines = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert len(lines) == 1
    assert "\n" not in lines[0]


def test_a_certificate_changes_without_a_pause() -> None:
    def story(client: Client) -> None:
        assert client.ask("GET", "/page")[0] == 200
        other = bundle()
        client.certify(other)
        with pytest.raises(ssl.SSLCertVerificationError):
            client.ask("GET", "/page")
        client.trust = other
        assert client.ask("GET", "/page")[0] == 200
        with pytest.raises(UsageError, match="cannot be used"):
            client.certify(
                CertificateBundle(other.authority, CertificatePair(bundle().server.certificate, other.server.key), b"")
            )
        assert client.ask("GET", "/page")[0] == 200

    play(story)


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("", 0)) as taken, pytest.raises(UsageError) as error:
        HttpsServer(application({}, {}), int(taken.getsockname()[1]))
    assert "cannot listen on port" in error.value.brief
    assert "--webhook-port" in str(error.value.next_step)


def test_a_mounted_certificate_is_read_where_it_lies(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tls\.crt: No such file"):
        MountedCertificate(str(tmp_path)).read()
    found = bundle()
    files: dict[str, Any] = {"tls.crt": found.server.certificate, "tls.key": found.server.key}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert MountedCertificate(str(tmp_path)).read().trusted == b""
    (tmp_path / "ca.crt").write_bytes(found.trusted)
    served = MountedCertificate(str(tmp_path)).read()
    assert (served.key_pair, served.trusted) == (found.server, found.trusted)


def test_a_new_certificate_leaves_no_file_open() -> None:
    async def story() -> None:
        server = HttpsServer(application({}, {}), 0)
        found = bundle().server
        server.certify(found.certificate, found.key)
        before = os.listdir("/proc/self/fd")
        for _ in range(3):
            server.certify(found.certificate, found.key)
        assert len(os.listdir("/proc/self/fd")) == len(before)
        server._socket.close()

    asyncio.run(story())


def test_a_certificate_that_cannot_be_used_is_reported_and_looked_at_again() -> None:
    reported: list[tuple[str, ...]] = []

    async def story() -> None:
        enough = asyncio.Event()

        async def kept() -> None:
            if len(reported) == 2:
                enough.set()
            raise UsageError("half written")

        options = SimpleNamespace(check_s=0.01)
        hook: Any = SimpleNamespace(_options=options, missing="a certificate", _wake=asyncio.Event(), _update=kept)
        hook._warnings = SimpleNamespace(update=reported.append)
        keeping = asyncio.create_task(Webhook._keep_updated(hook))
        async with asyncio.timeout(10):
            await enough.wait()
        keeping.cancel()

    asyncio.run(story())
    assert reported[:2] == [("half written",), ("half written",)]


def test_a_mounted_certificate_needs_no_right_to_register_its_authority(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forbidden(api: object, trusted: bytes) -> None:
        raise ForbiddenError("no right")

    monkeypatch.setattr(webhooks_main, "register", forbidden)

    def registered(certificate: object) -> tuple[str, ...]:
        hook: Any = SimpleNamespace(_api=None, _certificate=certificate)
        return asyncio.run(Webhook._register(hook, b"authority"))

    assert registered(MountedCertificate("/nowhere")) == ()
    with pytest.raises(ForbiddenError):
        registered(OwnCertificate.__new__(OwnCertificate))


@pytest.mark.parametrize(
    ("leads", "trusted", "unread", "registered"),
    [
        (True, b"authority", "", [b"authority"]),
        (False, b"authority", "", []),
        (True, b"", "", []),
        (True, b"authority", "nodes were not read yet", []),
    ],
    ids=["leads", "follows", "mounted without an authority", "cannot judge yet"],
)
def test_the_leader_registers_an_authority(leads: bool, trusted: bytes, unread: str, registered: list[bytes]) -> None:
    asked: list[bytes] = []
    reported: list[tuple[str, ...]] = []

    async def observe() -> ServedCertificate:
        return ServedCertificate(bundle().server, trusted)

    async def register(found: bytes) -> tuple[str, ...]:
        asked.append(found)
        return ("registered",)

    hook: Any = SimpleNamespace(_certificate=SimpleNamespace(load=observe), _use_certificate=lambda found: None)
    hook.missing, hook._warnings = unread, SimpleNamespace(update=reported.append)
    hook._leads, hook._register = (lambda: leads), register
    asyncio.run(Webhook._update(hook))
    assert asked == registered
    assert reported == [("registered",) * len(registered)]
