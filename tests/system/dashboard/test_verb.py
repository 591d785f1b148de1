"""The command ``aliquot dashboard``: what it shows, who can log in, how it stops."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from aliquot.cli.commands.dashboard import has_gpus, listen_address
from aliquot.errors import UsageError
from aliquot.sim import lifecycle as control
from system.dashboard.program import Program, aliquot


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("state")
    started = aliquot(directory, "sim", "start", "a100-sxm4-40gb*2", "--name", "one", "--latency", "measured")
    assert started.returncode == 0, started.stderr
    yield directory
    control.stop(str(directory))


def _login(program: Program) -> httpx2.Client:
    http = httpx2.Client(base_url=program.url, timeout=60, trust_env=False, headers={"accept": "text/html"})
    assert http.get(program.link).status_code == 303
    return http


def _csrf(http: httpx2.Client) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', http.get("/history").text)
    assert found is not None
    return found[1]


def test_a_user_opens_the_link_and_ctrl_c_ends_it(state: Path) -> None:
    with Program(state) as program:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/login\?token=[\w-]{43}", program.link)
        program.until(lambda: "Press Ctrl-C to stop" in program.reported)
        assert "the one simulated node" in program.reported
        with closing(_login(program)) as http:
            program.until(lambda: 'href="/nodes/one"' in http.get("/").text)
        program.until(lambda: "Press Ctrl-C to stop" in program.reported)
        token = re.search(r"with the token (\S+)", program.reported)
        assert token is not None
        assert httpx2.get(f"{program.url}/", headers={"authorization": f"Bearer {token[1]}"}).status_code == 200
        program.signal()
        assert program.wait() == 0
        assert "Traceback" not in program.reported


@pytest.mark.parametrize("bearer", [False, True])
def test_it_ends_with_pages_open(state: Path, bearer: bool) -> None:
    with Program(state, "--sim", "one") as program:
        with closing(_login(program)) as http:
            program.until(lambda: "Press Ctrl-C to stop" in program.reported)
            token = re.search(r"with the token (\S+)", program.reported)
            assert token is not None
            if bearer:
                http.cookies.clear()
                http.headers["authorization"] = f"Bearer {token[1]}"
            with http.stream("GET", "/live?page=/") as answer:
                lines = answer.iter_lines()
                assert next(lines) == "event: hello"
                program.signal(signal.SIGTERM)
                began = time.monotonic()
                assert "ended" not in "".join(lines), "a shutdown is not a logout"
                assert program.wait() == 0
        assert time.monotonic() - began < 30
        assert "simulated node one" in program.reported
        assert "Traceback" not in program.reported


def test_a_change_under_way_is_waited_for(state: Path) -> None:
    with Program(state) as program, closing(_login(program)) as http:
        program.until(lambda: 'href="/nodes/one"' in http.get("/").text)
        form = {"ask": "cut", "node": "one", "gpu": "0000:01:00.0", "mig": "1g.5gb*7", "csrf": _csrf(http)}
        plan = http.post("/asks", data=form)
        assert plan.status_code == 303, plan.text
        assert http.post(f"{plan.headers['location']}/apply", data={"csrf": form["csrf"]}).status_code == 303
        program.signal()
        assert program.wait() == 0
    assert "A change is in progress" in program.reported, "a reset takes seconds here, as on real GPUs"
    assert re.search(r"INFO done: .*0000:01:00\.0.*: Done: ", program.reported), program.reported
    assert aliquot(state, "show", "--sim", "one").stdout.count("1g.5gb") >= 7


def test_a_port_that_is_taken_is_reported_with_a_way_out(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = aliquot(state, "dashboard", "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "aliquot dashboard --listen 127.0.0.1:0" in done.stderr


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("--listen", "0.0.0.0:0"), "the traffic can be read on the network"),
        (("--listen", "[::]:0"), "the traffic can be read on the network"),
        (("--listen", "nonsense:port"), "is not ADDRESS:PORT"),
        (("--listen", "::1:8470"), "in brackets"),
        (("--listen", "127.0.0.1:70000"), "is not ADDRESS:PORT"),
        (
            ("--listen", "203.0.113.7:0", "--tls-cert", "/nowhere/c", "--tls-key", "/nowhere/k"),
            "cannot use the certificate",
        ),
        (("--tls-cert", "c"), "go together"),
        (("--fleet", "--sim", "one"), "only one of --fleet and --sim can be given"),
        (("--sim", "two"), "two"),
        (("--token-file", "/nowhere/token"), "cannot read the token file"),
        (("--token-file", "/dev/null"), "one word of at least 16 characters"),
        (("--allowed-host", "https://x/"), "'https://x/'"),
        (("-f", "/nowhere/file.yaml"), "cannot read the config file"),
    ],
)
def test_what_cannot_be_is_reported_in_a_sentence(state: Path, words: tuple[str, ...], output: str) -> None:
    done = aliquot(state, "dashboard", *(() if "--listen" in words else ("--listen", "127.0.0.1:0")), *words)
    assert done.returncode in (2, 20), done.stderr
    assert output in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_with_nothing_to_show_it_says_how_to_get_something(tmp_path: Path) -> None:
    if has_gpus():
        pytest.skip("this machine has GPUs to show")
    done = aliquot(tmp_path, "dashboard")
    assert done.returncode == 20
    assert "aliquot sim start" in done.stderr


def test_a_token_of_ones_own_is_never_printed(state: Path, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("my-very-own-secret-token\n")
    secret.chmod(0o600)
    with Program(state, "--token-file", str(secret), "--read-only", "--allowed-host", "gpu.example.org") as program:
        assert program.link == f"{program.url}/"
        program.until(lambda: "Press Ctrl-C to stop" in program.reported)
        http = httpx2.Client(base_url=program.url, trust_env=False, timeout=30)
        with http:
            proxied = {"host": "gpu.example.org", "origin": "https://gpu.example.org", "x-forwarded-proto": "https"}
            answer = http.post("/login", data={"token": "my-very-own-secret-token"}, headers=proxied)
            assert answer.status_code == 303
            assert "secure" in answer.headers["set-cookie"].lower()
            foreign = {**proxied, "origin": "https://evil.example"}
            assert http.post("/login", data={"token": "my-very-own-secret-token"}, headers=foreign).status_code == 403
        program.signal()
        assert program.wait() == 0
        assert "my-very-own" not in program.reported + program.link
        assert "changes are disabled" in program.reported


def test_where_the_page_is_served_is_read_as_people_write_it() -> None:
    assert listen_address("127.0.0.1:8470") == ("127.0.0.1", 8470)
    assert listen_address("9000") == ("127.0.0.1", 9000)
    assert listen_address("localhost") == ("localhost", 8470)
    assert listen_address("[::1]:0") == ("::1", 0)
    assert listen_address("[::1]") == ("::1", 8470)
    for wrong in ("", ":8470", "a:b", "[::1", "1.2.3.4:٣", "[::1]x"):
        with pytest.raises(UsageError):
            listen_address(wrong)


def test_gpus_are_found_on_the_bus_without_a_driver(tmp_path: Path) -> None:
    device = tmp_path / "0000:01:00.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x040300\n")
    assert not has_gpus(str(tmp_path)), "a sound device"
    (device / "class").write_text("0x030200\n")
    assert has_gpus(str(tmp_path))
    assert not has_gpus(str(tmp_path / "nowhere"))
