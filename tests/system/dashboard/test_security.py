"""Protection against strangers, other pages in the browser, and other programs on the host."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import httpx2
import pytest
from starlette.requests import Request

from aliquot.dashboard import connection_limits as patience
from aliquot.dashboard.security import login_throttle as attempts
from aliquot.dashboard.security import request_guard as gate
from aliquot.dashboard.security import sessions
from aliquot.dashboard.security.login import local_path
from aliquot.dashboard.security.request_guard import MOST_BYTES
from aliquot.dashboard.security.token_authenticator import TokenAuthenticator
from aliquot.dashboard.view_models import Person
from system.dashboard import client as clients
from system.dashboard.client import Client
from system.dashboard.running import TOKEN, Running, running
from system.dashboard.toy import ROUTES, TEMPLATES, ToySource

ASK = {"ask": "cut", "node": "n1", "gpu": "0000:07:00.0", "mig": "1g.5gb"}
EVERY_PATH = ("/", "/login", "/healthz", "/nowhere", "/static/nothing.js", "/broken", "/live?page=/", "/plans/x")


def test_unauthenticated_clients_see_only_the_login_page(client: Client) -> None:
    for path in ("/", "/plans/x", "/broken"):
        answer = client.get(path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login"), path
    assert client.get("/live?page=/", accept="text/event-stream").status_code == 401
    assert client.post("/asks", ASK).status_code == 303
    assert client.post("/plans/x/apply", {}).headers["location"].startswith("/login")
    assert client.get("/", authorization="Bearer wrong-wrong-wrong").status_code == 401
    assert client.get("/", authorization="Basic YTpi").status_code == 401
    for path in ("/", "/nowhere"):
        assert "n1" not in client.get(path).text


def test_a_wrong_token_is_reported_in_a_sentence_and_never_repeated(client: Client) -> None:
    answer = client.post("/login", {"token": "my-secret-guess", "next": "/"})
    assert answer.status_code == 401
    assert "Invalid token" in answer.text
    assert "the token of the test" in answer.text
    assert "my-secret-guess" not in answer.text
    assert "set-cookie" not in answer.headers
    assert client.post("/login", {"token": "x" * 20_000}).status_code == 401
    assert (
        client.post("/login", {"token": "wörter \ud83d\ude00 %00".encode("utf-8", "replace").decode()}).status_code
        == 401
    )


def test_wrong_tokens_are_throttled_and_the_right_one_enters_from_the_same_address(
    client: Client, served: Running
) -> None:
    """One guesser behind a proxy must not lock out its other users."""
    answers = [client.post("/login", {"token": f"guess-{n}"}) for n in range(8)]
    assert answers[0].status_code == 401
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert client.get("/", authorization="Bearer guess-9").status_code == 429
    assert client.get("/", authorization=f"Bearer {TOKEN}").status_code == 200
    with clients.client(served) as other:
        assert other.post("/login", {"token": TOKEN}).status_code == 303
        assert other.get("/").status_code == 200
    assert client.get("/", authorization="Bearer guess-10").status_code == 429, (
        "a valid token does not end the throttle"
    )
    assert client.http.get(served.link).status_code == 303, "a ticket cannot be guessed: it is not throttled"


class CountingAuthenticator:
    """An authenticator that admits TOKEN, and counts its calls and how many run at a time."""

    hint = "the token"

    def __init__(self) -> None:
        self.asked = self.open = self.most = 0

    async def admit(self, token: str) -> Person | None:
        self.asked += 1
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0.001)
        self.open -= 1
        return Person("x") if token == TOKEN else None


def test_guesses_reach_the_api_server_a_few_at_a_time_and_a_refused_token_not_again() -> None:
    """In a cluster, each check is a request to the API server."""
    user = CountingAuthenticator()
    guard = gate.RequestGuard(user, sessions.LoginSessions(), secure=True, trusted=frozenset(), port=8470)
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": [], "client": ("192.0.2.1", 5)})

    async def status(token: str) -> int:
        try:
            await guard.admit(request, token)
        except gate.RequestRefusedError as refusal:
            return refusal.status
        return 200

    async def main() -> None:
        assert [await status("old") for _ in range(attempts.FREE + 3)] == [401] * attempts.FREE + [429] * 3
        assert user.asked == attempts.FREE, "a token that was refused so often is not checked again"
        user.most = 0
        statuses = await asyncio.gather(*(status(TOKEN if n == 30 else f"guess-{n}") for n in range(40)))
        assert statuses.count(429) == 39
        assert statuses[30] == 200
        assert user.most == attempts.CHECKS

    asyncio.run(main())


def test_a_refused_token_is_asked_about_again_after_its_wait() -> None:
    now = [1000.0]
    counted = attempts.LoginAttempts(lambda: now[0])
    for _ in range(attempts.FREE + 20):
        counted.count_wrong("192.0.2.1", "old")
    assert counted.wait("192.0.2.1", "old") == attempts.BACKOFF.longest
    assert counted.wait("192.0.2.2", "old") == 0, "also counted by address"
    assert counted.wait("192.0.2.1", "new") == 0
    now[0] += attempts.BACKOFF.longest
    assert counted.wait("192.0.2.1", "old") == 0
    counted.count_wrong("192.0.2.1", "old")
    assert counted.wait("192.0.2.1", "old") == attempts.BACKOFF.longest
    counted.forget("192.0.2.1", "old")
    assert counted.wait("192.0.2.1", "old") == 0
    now[0] += attempts.FORGET_S + 1
    counted.count_wrong("192.0.2.1", "old")
    assert counted.throttled_for("192.0.2.1") == 0, "forgotten"


def test_a_ticket_works_once_and_gives_a_strict_cookie(client: Client, served: Running) -> None:
    link = served.link
    answer = client.http.get(link)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "Path=/" in cookie
    assert "Domain" not in cookie
    assert client.get("/").status_code == 200
    with clients.client(served) as other:
        again = other.http.get(link)
        assert again.status_code == 401
        assert "used already" in again.text
        assert link.rpartition("=")[2] not in again.text


def test_a_ticket_that_another_site_links_to_goes_on_by_a_page(client: Client, served: Running) -> None:
    """A redirect would count as the other site's request, without the strict cookie."""
    answer = client.http.get(served.link, headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0;url=/"' in answer.text
    assert "set-cookie" in answer.headers
    reported = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    with clients.client(served) as anonymous:
        assert 'content="0;url=/plans/x?a=1&amp;b=2"' in anonymous.http.get("/plans/x?a=1&b=2", headers=reported).text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example", "sec_fetch_site": "cross-site"},
        {"origin": "http://evil.example", "sec_fetch_site": ""},
        {"origin": "http://127.0.0.1:1", "sec_fetch_site": "same-site"},
        {"origin": "http://127.0.0.1:1", "sec_fetch_site": ""},
        {"origin": "null", "sec_fetch_site": ""},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_a_form_of_another_page_is_refused_even_with_cookie_and_secret(
    client: Client, source: ToySource, headers: dict[str, str]
) -> None:
    client.login()
    form = {**ASK, "csrf": client.csrf}
    for path in ("/asks", "/plans/x/apply", "/plans/x/again", "/logout", "/login"):
        answer = client.post(path, form, **headers)
        assert answer.status_code == 403, path
        assert "another site" in answer.text.lower()
    assert client.get("/").status_code == 200, "still logged in"


@pytest.mark.parametrize("csrf", ["", "wrong", "ä" * 43])
def test_a_form_without_the_secret_of_its_session_is_refused(client: Client, csrf: str) -> None:
    client.login()
    for path in ("/asks", "/plans/x/apply", "/plans/x/again", "/logout"):
        answer = client.post(path, {**ASK, "csrf": csrf} if csrf else ASK, origin="", sec_fetch_site="")
        assert answer.status_code == 403, path
        assert "earlier login" in answer.text


def test_the_secret_of_another_session_is_worth_nothing(client: Client, served: Running) -> None:
    client.login()
    with clients.client(served) as other:
        other.login()
        assert client.csrf != other.csrf
        assert client.post("/asks", {**ASK, "csrf": other.csrf}).status_code == 403


def test_a_name_that_points_here_is_not_answered(client: Client) -> None:
    """With DNS rebinding, the browser treats the attacker's name as the origin and lets the attacker's page read."""
    client.login()
    for host in (
        "evil.example",
        "evil.example:8470",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "2130706433",
        "",
    ):
        answer = client.http.get("/", headers={"host": host})
        assert answer.status_code in (400, 421), host
        assert "n1" not in answer.text
    for host in ("localhost", "LOCALHOST:8470", "127.0.0.1:99", "[::1]:8470", "10.0.0.7"):
        assert client.http.get("/healthz", headers={"host": host}).status_code == 200, host


def test_another_page_cannot_load_ours_into_itself(client: Client) -> None:
    client.login()
    for site in ("cross-site", "same-site"):
        for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe"), ("no-cors", "script")):
            headers = {"sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": dest}
            assert client.get("/", **headers).status_code == 403, headers
            assert client.get("/live?page=/", **headers).status_code == 403
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert client.get("/", **link).status_code == 200, "it may link to it"


@pytest.mark.parametrize("path", EVERY_PATH)
@pytest.mark.parametrize("inside", [False, True])
def test_headers_go_with_every_answer(client: Client, path: str, inside: bool) -> None:
    if inside:
        client.login()
    with client.http.stream("GET", path) as answer:
        headers = answer.headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "form-action 'self'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers
    assert not any(name.startswith("access-control") for name in headers)


def test_assets_are_kept_for_good_under_a_name_with_their_hash(client: Client, served: Running) -> None:
    url = served.site.assets.url("live.js")
    answer = client.get(url)
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")
    for wrong in ("/static/live.js", "/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"):
        assert client.get(wrong).status_code == 404, wrong


def test_a_form_too_large_too_odd_or_too_long_is_refused_and_the_server_lives(client: Client) -> None:
    client.login()
    csrf = client.csrf
    assert client.post("/asks", {"csrf": csrf, "x": "y" * MOST_BYTES}).status_code == 413
    assert client.post("/asks", "&".join(f"f{n}=1" for n in range(gate.MOST_FIELDS + 1))).status_code == 400
    assert client.post("/asks", "csrf=%ff%fe", content_type="application/x-www-form-urlencoded").status_code == 400
    assert client.post("/asks", "{}", content_type="application/json").status_code == 415
    assert client.post("/asks", "{}", content_type="text/plain").status_code == 415
    wrong = client.post("/asks", {"csrf": csrf, "ask": "format-my-disk"})
    assert wrong.status_code == 400
    assert "<title>" in wrong.text
    assert client.get("/").status_code == 200


def test_a_fault_of_ours_tells_nothing_of_the_program(client: Client) -> None:
    client.login()
    answer = client.get("/broken")
    assert answer.status_code == 500
    for inside in ("secret in a fault", "ZeroDivision", "Traceback", ".py"):
        assert inside not in answer.text
    assert "internal error of Aliquot" in answer.text


def test_a_page_that_is_not_there_names_the_nearest(client: Client) -> None:
    client.login()
    answer = client.get("/nodes/n")
    assert answer.status_code == 404
    assert 'href="/nodes/n1"' in answer.text


def test_hostile_addresses_are_shown_as_text(client: Client) -> None:
    client.login()
    answer = client.get("/<script>alert(1)</script>?x=<img src=x onerror=alert(1)>")
    assert answer.status_code == 404
    assert "<script>alert" not in answer.text
    assert "<img src=x" not in answer.text
    answer = client.get("/login?next=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "", "/a\r\nb", "/\tb"],
)
def test_the_login_redirects_to_no_other_site(target: str) -> None:
    assert local_path(target) == "/"


def test_the_way_back_after_the_login_is_kept(client: Client) -> None:
    target = client.get("/plans/x?a=1").headers["location"]
    assert target == "/login?next=%2Fplans%2Fx%3Fa%3D1"
    answer = client.post("/login", {"token": TOKEN, "next": "/plans/x?a=1"})
    assert answer.headers["location"] == "/plans/x?a=1"


def test_a_session_ends_on_logout_unused_and_after_half_a_day(client: Client, served: Running) -> None:
    client.login()
    assert client.post("/logout", {"csrf": client.csrf}).headers["location"] == "/login"
    assert client.get("/").status_code == 303
    now = [1000.0]
    served.site.sessions._clock = lambda: now[0]
    client.login()
    now[0] += sessions.IDLE_S - 1
    assert client.get("/").status_code == 200
    now[0] += sessions.IDLE_S + 1
    assert client.get("/").status_code == 303
    client.login()
    for _ in range(13):
        now[0] += sessions.IDLE_S - 1
        last = client.get("/").status_code
    assert last == 303
    assert len(served.site.sessions) == 0


def test_an_old_cookie_is_worth_nothing_after_another_login(client: Client) -> None:
    client.login()
    before = dict(client.http.cookies)
    client.login()
    after = dict(client.http.cookies)
    assert before != after
    client.http.cookies.clear()
    for name, value in before.items():
        client.http.cookies.set(name, value)
    assert client.get("/").status_code == 303


def test_sessions_and_guesses_take_bounded_memory(served: Running) -> None:
    kept = sessions.LoginSessions()
    first, _ = kept.open(Person("a"))
    for _ in range(sessions.MOST):
        kept.open(Person("b"))
    assert len(kept) == sessions.MOST
    assert kept.find(first) is None
    counted = attempts.LoginAttempts()
    for n in range(attempts.MOST + 10):
        counted.count_wrong(f"2001:db8:{n:x}::1", f"guess-{n}")
    assert len(counted._addresses) == len(counted._credentials) == attempts.MOST
    for n in range(20):
        counted.count_wrong(f"2001:db8:ffff:ffff::{n:x}", f"guess-{n}")
    assert counted.throttled_for("2001:db8:ffff:ffff::99") > 0, "a /64 is one client"


def test_programs_say_their_token_each_time_and_need_no_form(client: Client, source: ToySource) -> None:
    client.http.headers["authorization"] = f"Bearer {TOKEN}"
    assert "n1" in client.get("/").text
    assert client.post("/asks", ASK, origin="", sec_fetch_site="").status_code == 303
    assert client.post("/asks", ASK, origin="http://evil.example", sec_fetch_site="").status_code == 403
    assert client.post("/asks", ASK, sec_fetch_site="cross-site").status_code == 403


def test_a_program_that_asks_for_more_than_half_a_day_has_live_pages_all_the_time() -> None:
    """A proxy that sends the token has neither login nor logout."""
    now, person = [1000.0], Person("proxy")
    kept = sessions.LoginSessions(lambda: now[0])
    authenticator = TokenAuthenticator(TOKEN, person, "the token")
    guard = gate.RequestGuard(authenticator, kept, secure=True, trusted=frozenset(), port=8470, clock=lambda: now[0])
    messages = [(b"authorization", f"Bearer {TOKEN}".encode())]
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": messages, "client": ("192.0.2.1", 5)})

    async def main() -> None:
        while now[0] < 1000 + sessions.ABSOLUTE_S * 1.2:
            caller = await guard.caller(request)
            assert caller is not None
            assert await guard.still_valid(caller.session)
            now[0] += 25 * 60

    asyncio.run(main())


def test_a_wrong_token_of_a_program_counts_once(client: Client, served: Running) -> None:
    client.http.headers["authorization"] = "Bearer wrong"
    assert [client.get("/").status_code for _ in range(attempts.FREE)] == [401] * attempts.FREE
    assert served.site.guard.attempts.total == attempts.FREE


def test_two_pages_of_one_machine_do_not_log_each_other_out() -> None:
    def cookie(port: int, secure: bool) -> str:
        authenticator = TokenAuthenticator(TOKEN, Person("x"), "the token")
        return gate.RequestGuard(
            authenticator, sessions.LoginSessions(), secure=secure, trusted=frozenset(), port=port
        ).cookie

    assert cookie(8470, True).startswith("__Host-")
    assert len({cookie(port, secure) for port in (8470, 8471) for secure in (True, False)}) == 4


def test_who_may_only_look_changes_nothing(source: ToySource) -> None:
    from aliquot.dashboard.application_context import SiteSettings

    looking = SiteSettings(read_only=True)
    with running(source, ROUTES, templates=TEMPLATES, settings=looking) as served, clients.client(served) as client:
        client.login()
        for path in ("/asks", "/plans/x/apply", "/plans/x/again"):
            answer = client.post(path, {**ASK, "csrf": client.csrf})
            assert answer.status_code == 403
            assert "read-only access" in answer.text
        assert "(read-only)" in client.get("/").text
        assert client.post("/logout", {"csrf": client.csrf}).status_code == 303
    assert not source.applied


def test_a_source_that_is_not_ready_is_reported(client: Client, source: ToySource) -> None:
    from aliquot.dashboard.view_models import ObservedFleet

    client.login()
    csrf = client.csrf
    source.fleet = ObservedFleet()
    answer = client.post("/asks", {**ASK, "csrf": csrf})
    assert answer.status_code == 503
    assert "retry-after" in answer.headers


_AS_UNPRIVILEGED = """
import encodings.idna, os, sys, urllib.request
os.setuid(65534)
asked = urllib.request.Request(sys.argv[1], headers={"cookie": sys.argv[2], "accept": "application/json"})
try:
    print(urllib.request.urlopen(asked, timeout=30).status)
except urllib.error.HTTPError as refusal:
    print(refusal.code)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_cookie_that_another_user_of_the_machine_got_hold_of_opens_nothing(client: Client, served: Running) -> None:
    """Browsers send it to every port of 127.0.0.1, and any user can listen on one."""
    client.login()
    cookie = "; ".join(f"{name}={value}" for name, value in client.http.cookies.items())
    words = [sys.executable, "-I", "-c", _AS_UNPRIVILEGED, f"{served.url}/", cookie]
    other = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert other.stdout.strip() == "401", other
    assert client.get("/").status_code == 200, "the owner stays logged in"
    own = [sys.executable, "-I", "-c", _AS_UNPRIVILEGED.replace("os.setuid(65534)", ""), f"{served.url}/", cookie]
    assert subprocess.run(own, capture_output=True, text=True, timeout=60, check=False).stdout.strip() == "200"


def test_unauthenticated_clients_cannot_take_every_open_file(
    monkeypatch: pytest.MonkeyPatch, source: ToySource
) -> None:
    """A change needs them too and must not fail. Prompt requests are still answered."""
    monkeypatch.setattr(patience.LimitedConnection, "most", 40)
    with running(source, ROUTES, templates=TEMPLATES) as served, clients.client(served) as one, ExitStack() as stack:
        one.login()
        before = len(os.listdir("/proc/self/fd"))
        address = ("127.0.0.1", int(served.url.rpartition(":")[2]))
        for _ in range(300):
            stack.enter_context(socket.create_connection(address, timeout=30))
        with clients.client(served) as other:
            assert other.get("/healthz").text == "ok\n"
        assert len(os.listdir("/proc/self/fd")) - before < 300 + 40 + 80
        assert one.get("/").status_code == 200


def test_who_opens_a_connection_and_dawdles_is_cut_off(monkeypatch: pytest.MonkeyPatch, source: ToySource) -> None:
    monkeypatch.setattr(patience.LimitedConnection, "request_s", 0.3)
    monkeypatch.setattr(gate, "BODY_S", 0.3)
    lines = ("POST /login HTTP/1.1", "Host: localhost", "Content-Length: 20")
    head = "\r\n".join((*lines, "Content-Type: application/x-www-form-urlencoded", "", ""))
    with running(source, ROUTES, templates=TEMPLATES) as served:
        port = int(served.url.rpartition(":")[2])
        for answer, then in ((b"", b""), (b"GET / HTTP/1.1\r\nHo", b""), (head.encode() + b"tok", b"HTTP/1.1 408")):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
                began = time.monotonic()
                connection.sendall(answer)
                got = b""
                try:
                    while part := connection.recv(65536):
                        got += part
                except ConnectionResetError:
                    pass
                assert got.startswith(then)
                assert time.monotonic() - began < 15
        with clients.client(served) as client:
            client.login()
            time.sleep(0.5)
            assert client.get("/").status_code == 200, "a connection may be idle between two requests"


def test_who_reads_no_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch, source: ToySource) -> None:
    monkeypatch.setattr(patience.LimitedConnection, "most", 2)
    monkeypatch.setattr(patience.LimitedConnection, "stuck_s", 0.3)
    with running(source, ROUTES, templates=TEMPLATES) as served, ExitStack() as stack:
        path = served.site.assets.url("vendor/htmx-4.0.1.min.js")
        asked = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 400
        port = int(served.url.rpartition(":")[2])
        for _ in range(2):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", port))
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.send(asked)
        deadline = time.monotonic() + 20
        while True:
            with suppress(httpx2.HTTPError), clients.client(served) as other:
                if other.get("/healthz").text == "ok\n":
                    return
            assert time.monotonic() < deadline, "two clients that read nothing block all others"
            time.sleep(0.1)


def test_nothing_secret_is_logged_and_no_line_can_be_forged(
    client: Client, served: Running, caplog: pytest.LogCaptureFixture
) -> None:
    from aliquot.dashboard.log import log

    link = served.link
    client.http.get(link)
    client.post("/login", {"token": "guess-guess-guess"})
    client.get("/broken")
    client.get("/broken", authorization=f"Bearer {TOKEN}")
    log.warning("said %s", "one\n2026 INFO forged \x1b[31m")
    assert "ZeroDivisionError" in caplog.text, "the log contains what the page hides"
    for secret in (link.rpartition("=")[2], "guess-guess-guess", TOKEN, *dict(client.http.cookies).values()):
        assert secret not in caplog.text
    assert "said one?2026 INFO forged ?[31m" in caplog.text


def test_a_token_that_was_taken_back_ends_its_session(source: ToySource) -> None:
    from aliquot.dashboard.view_models import Person
    from aliquot.errors import BlockedError

    with running(source, ROUTES, templates=TEMPLATES, person=Person("anna", token=TOKEN)) as served:
        now, answers = [time.monotonic()], ["yes"]
        served.site.guard._clock = lambda: now[0]

        async def admit(token: str) -> Person | None:
            assert token == TOKEN
            if answers[0] == "unavailable":
                raise BlockedError("the API server is away")
            return Person("anna", token=TOKEN, groups=("staff",)) if answers[0] == "yes" else None

        served.user.admit = admit  # type: ignore[method-assign]
        with clients.client(served) as client:
            client.login()
            for answer, status in (("yes", 200), ("unavailable", 200), ("no", 303), ("yes", 303)):
                answers[0] = answer
                now[0] += gate.RECHECK_S + 1
                assert client.get("/").status_code == status, answer


def test_the_logout_takes_the_cookie_back_as_it_was_given(client: Client) -> None:
    client.login()
    answer = client.post("/logout", {"csrf": client.csrf})
    name, *attributes = answer.headers["set-cookie"].lower().split("; ")
    assert name.endswith('=""')
    assert {"max-age=0", "httponly", "samesite=strict"} <= set(attributes)
    assert answer.headers["clear-site-data"] == '"cache"'
