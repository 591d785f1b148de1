"""The HTTPS server of the extender, and the refusals of its options."""

from __future__ import annotations

import asyncio
import datetime as dt
import http.client
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aliquot.cli.main import main
from aliquot.errors import UsageError
from aliquot.kubernetes.client.watch import FullList
from aliquot.kubernetes.controller.extender import Extender
from aliquot.kubernetes.dra.extender.options import ExtenderOptions
from aliquot.kubernetes.dra.extender.prioritizer import RatingListener
from aliquot.kubernetes.virtual_machines.webhook.certificates import SERVER_LIFE, CertificateBundle, renewed_bundle
from support.processes import until
from unit.kubernetes.dra.extender.requests import CLASSES, published, raw_pod

API: Any = SimpleNamespace(namespace="gpu-operator")
BODY = json.dumps({"Pod": raw_pod({"nvidia.com/mig-1g.5gb": "1"}), "NodeNames": ["n1", "n2"]}).encode()


def ask(
    extender: Extender, method: str, path: str, body: Any = b"", trust: CertificateBundle | None = None
) -> tuple[int, str]:
    if trust is None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as kube-scheduler without a CA
    else:
        context = ssl.create_default_context(cadata=trust.trusted.decode())
    connection = http.client.HTTPSConnection("localhost", extender.server.port, timeout=10, context=context)
    try:
        connection.request(method, path, body, encode_chunked=not isinstance(body, bytes))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def play(
    story: Callable[[Extender], None], certificates: str = "", on_rating: RatingListener = lambda outcome: None
) -> None:
    async def run() -> None:
        extender = Extender(API, ExtenderOptions(0, certificates, check_s=0.05), on_rating=on_rating)
        extender.fleet.claims.apply(FullList((), "1"))
        extender.fleet.classes.apply(FullList(CLASSES, "1"))
        extender.fleet.slices.apply(FullList(published("n1"), "1"))
        parts = (extender.fleet.read_changed(), extender.server.serve(), extender._keep_certified())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.to_thread(story, extender)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def mount(folder: Path) -> CertificateBundle:
    found = renewed_bundle(None, ("localhost",), dt.datetime.now(dt.UTC))
    assert found is not None
    (folder / "tls.crt").write_bytes(found.server.certificate)
    (folder / "tls.key").write_bytes(found.server.key)
    return found


def test_it_rates_nodes_and_refuses_everything_else() -> None:
    def story(extender: Extender) -> None:
        status, text = ask(extender, "POST", "/prioritize", BODY)
        assert (status, json.loads(text)) == (200, [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 0}])
        chunks = iter([BODY[:20], BODY[20:]])
        assert ask(extender, "POST", "/prioritize", chunks) == (status, text)
        status, text = ask(extender, "POST", "/prioritize", b'{"Pod"')
        assert (status, text.startswith("not ExtenderArgs: ")) == (400, True)
        large = BODY[:-1] + b" " * (8 * 1024 * 1024) + b"}"
        assert ask(extender, "POST", "/prioritize", large[: 5 * 1024 * 1024])[0] == 400
        assert ask(extender, "POST", "/prioritize", large)[0] == 413
        assert ask(extender, "GET", "/prioritize")[0] == 405
        assert ask(extender, "POST", "/filter", BODY)[0] == 404
        assert ask(extender, "GET", "/healthz") == (200, "ok\n")

    play(story)


def test_a_mounted_certificate_is_proved_and_may_change(tmp_path: Path) -> None:
    first = mount(tmp_path)

    def story(extender: Extender) -> None:
        assert ask(extender, "POST", "/prioritize", BODY, first)[0] == 200
        (tmp_path / "tls.crt").write_text("half")
        second = mount(tmp_path)
        for _ in range(100):
            try:
                assert ask(extender, "GET", "/healthz", b"", second)[0] == 200
                break
            except ssl.SSLError:
                continue
        assert ask(extender, "GET", "/healthz", b"", second)[0] == 200

    play(story, str(tmp_path))


def test_a_folder_without_a_certificate_and_a_taken_port_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"tls\.crt: No such file") as error:
        Extender(API, ExtenderOptions(0, str(tmp_path)))
    assert "--dra-extender-cert-dir" in str(error.value.next_step)
    taken = Extender(API, ExtenderOptions(0))
    try:
        with pytest.raises(UsageError, match="--dra-extender-port cannot listen on port"):
            Extender(API, ExtenderOptions(taken.server.port))
    finally:
        taken.server.close()


def test_its_own_certificate_is_renewed_before_it_expires() -> None:
    def served(extender: Extender) -> str:
        return ssl.get_server_certificate(("localhost", extender.server.port))

    def story(extender: Extender) -> None:
        first, now = served(extender), dt.datetime.now(dt.UTC)
        time.sleep(0.2)
        assert served(extender) == first
        extender.clock = lambda: now + SERVER_LIFE * 0.7
        until(lambda: served(extender) != first, "the next certificate", 10)

    play(story)


def test_pods_are_counted_by_what_became_of_them() -> None:
    counted: list[str] = []
    odd = {"Pod": raw_pod({"example.com/nic": "1"}), "NodeNames": ["n1"]}

    def story(extender: Extender) -> None:
        ask(extender, "POST", "/prioritize", BODY)
        ask(extender, "POST", "/prioritize", json.dumps(odd).encode())
        extender.fleet.classes.synced = False
        ask(extender, "POST", "/prioritize", BODY)

    play(story, on_rating=counted.append)
    assert counted == ["rated", "no_gpu", "not_ready"]


@pytest.mark.parametrize("words", [["--dra-extender-score", "first-fit"], ["--dra-extender-cert-dir", "/x"]])
def test_options_without_a_port_are_refused(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRA_EXTENDER_PORT", raising=False)
    assert main(["controller", *words]) == 2
    reported = capsys.readouterr().err
    assert "needs --dra-extender-port" in reported
    assert "aliquot controller --dra-extender-port 8444" in reported
