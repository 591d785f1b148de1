"""Authentication: tokens that change on disk, plugins that create credentials, certificates, impersonation. Over real
TLS.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aliquot.errors import ConfigError
from aliquot.kubernetes.client import credentials, transport
from aliquot.kubernetes.client.errors import ApiRequest, ApiUnavailableError, UnauthorizedError
from aliquot.kubernetes.client.objects import Node
from system.kubernetes.api_scripted import Scripted, Seen, Wire, api, node


class ApiUser:
    """A server that accepts the right tokens or certificates."""

    def __init__(self, *tokens: str, names: tuple[str, ...] = ()) -> None:
        self.tokens = set(tokens)
        self.names = names

    async def play(self, seen: Seen, wire: Wire) -> None:
        token = seen.headers.get("authorization", "").removeprefix("Bearer ")
        if token in self.tokens or (seen.certificate and seen.certificate in self.names):
            await wire.answer(node("n", 1))
        else:
            await wire.refuse(401, "Unauthorized", "Unauthorized")


def tried(server: Scripted) -> list[str]:
    return [seen.headers.get("authorization", "") for seen in server.seen]


def test_a_token_that_was_renewed_on_disk_is_read_when_the_old_one_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    user = ApiUser("one")

    async def main() -> None:
        async with Scripted(user.play) as server, api(tmp_path, server.url, user={"tokenFile": "token"}) as client:
            await client.get(Node, "n")
            token.write_text("two\n")
            await client.get(Node, "n")
            assert tried(server) == ["Bearer one", "Bearer one"]
            user.tokens = {"two"}
            await client.patch(Node, "n", {})
            assert tried(server)[2:] == ["Bearer one", "Bearer two"]
            user.tokens = {"three"}
            with pytest.raises(UnauthorizedError):
                await client.get(Node, "n")
            assert len(server.seen) == 5  # the same token is not sent twice

    asyncio.run(main())


def test_a_token_is_read_again_by_time_too(tmp_path: Path) -> None:
    file, now = tmp_path / "token", {"s": 0.0}
    file.write_text("one")
    token = credentials.TokenFileCredentials(str(file), clock=lambda: now["s"])

    async def at(seconds: float) -> str | None:
        now["s"] = seconds
        return await token.header()

    assert asyncio.run(at(0)) == "Bearer one"
    file.write_text("two")
    assert asyncio.run(at(credentials.TOKEN_FILE_AGE_S - 1)) == "Bearer one"
    assert asyncio.run(at(credentials.TOKEN_FILE_AGE_S)) == "Bearer two"
    file.write_text("")  # read during the write: the last good one stays
    assert asyncio.run(at(500)) == "Bearer two"
    file.unlink()
    assert asyncio.run(at(900)) == "Bearer two"


def test_no_token_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with api(tmp_path, "http://127.0.0.1:1", user={"tokenFile": "absent"}) as client:
            with pytest.raises(UnauthorizedError, match="absent cannot be read"):
                await client.get(Node, "n")

    asyncio.run(main())


def plugin(folder: Path, status: object, *, code: int = 0, extra: str = "") -> dict[str, object]:
    """Write an exec plugin that prints ``status``, and records each run and its KUBERNETES_EXEC_INFO."""
    version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    script = folder / "plugin"
    script.write_text(
        f'#!/bin/sh\n{extra}\necho "$KUBERNETES_EXEC_INFO|$1|$WHO" >> {folder}/runs\n'
        f"cat <<'E'\n{answer}\nE\nexit {code}\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {
        "apiVersion": version, "command": "./plugin", "args": ["login"], "env": [{"name": "WHO", "value": "us"}],
        "installHint": "get the plugin", "interactiveMode": "IfAvailable", "provideClusterInfo": True,
    }}  # fmt: skip


def runs(folder: Path) -> list[str]:
    return (folder / "runs").read_text().splitlines()


def test_a_plugin_runs_once_and_again_when_its_token_is_refused(tmp_path: Path) -> None:
    api_user = ApiUser("one")

    async def main() -> None:
        user = plugin(tmp_path, {"token": "one"})
        async with Scripted(api_user.play) as server, api(tmp_path, server.url, user=user) as client:
            await asyncio.gather(*(client.get(Node, "n") for _ in range(5)))
            assert len(runs(tmp_path)) == 1
            plugin(tmp_path, {"token": "two"})
            api_user.tokens = {"two"}
            await asyncio.gather(*(client.get(Node, "n") for _ in range(5)))
            assert len(runs(tmp_path)) == 2  # five refusals, one run
            info, argument, who = runs(tmp_path)[0].split("|")
            assert (argument, who) == ("login", "us")
            assert json.loads(info) == {
                "apiVersion": "client.authentication.k8s.io/v1",
                "kind": "ExecCredential",
                "spec": {"interactive": False, "cluster": {"server": server.url}},
            }

    asyncio.run(main())


def test_a_credential_that_expires_is_replaced_before(tmp_path: Path) -> None:
    api_user = ApiUser("x")

    async def main() -> None:
        for end, expected in (("2001-01-01T00:00:00Z", 3), ("2101-01-01T00:00:00Z", 1)):
            (tmp_path / "runs").unlink(missing_ok=True)
            user = plugin(tmp_path, {"token": "x", "expirationTimestamp": end})
            async with Scripted(api_user.play) as server, api(tmp_path, server.url, user=user) as client:
                for _ in range(3):
                    await client.get(Node, "n")
            assert len(runs(tmp_path)) == expected

    asyncio.run(main())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"code": 3, "extra": "echo not logged in >&2"}, "ended with status 3"),
        ({"status": {}}, "neither a token nor a client certificate"),
        ({"status": 7}, "did not print an ExecCredential"),
        ({"extra": "exec sleep 60"}, "did not end within"),
    ],
)
def test_a_plugin_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(credentials, "PLUGIN_TIMEOUT_S", 0.5)
    user = plugin(tmp_path, **{"status": {"token": "x"}, **given})

    async def main() -> None:
        async with api(tmp_path, "http://127.0.0.1:1", user=user) as client:
            with pytest.raises(UnauthorizedError, match=message) as caught:
                await client.get(Node, "n")
            assert str(tmp_path / "plugin") in caught.value.brief
            assert caught.value.next_step == "get the plugin"
            if "ended" in message:
                assert caught.value.details == ("not logged in",)

    asyncio.run(main())


def test_a_plugin_that_is_not_there(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "x"})
    (tmp_path / "plugin").unlink()

    async def main() -> None:
        async with api(tmp_path, "http://127.0.0.1:1", user=user) as client:
            with pytest.raises(UnauthorizedError, match="cannot be started: No such file"):
                await client.get(Node, "n")

    asyncio.run(main())


class Authority:
    """A certificate authority in a folder, made with openssl."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self.name = folder, name
        folder.mkdir(exist_ok=True)
        self._openssl("req", "-x509", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", f"/CN={name}")

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.crt"

    def issue(self, name: str, alternative: str = "IP:127.0.0.1") -> tuple[Path, Path]:
        """Issue a certificate and its key."""
        (self.folder / "ext").write_text(f"subjectAltName={alternative}\n")
        self._openssl("req", *NEW_KEY, "-keyout", f"{name}.key", "-out", "csr", "-subj", f"/CN={name}")
        self._openssl(
            "x509", "-req", "-in", "csr", "-CA", f"{self.name}.crt", "-CAkey", f"{self.name}.key",
            "-CAcreateserial", "-days", "2", "-extfile", "ext", "-out", f"{name}.crt",
        )  # fmt: skip
        return self.folder / f"{name}.crt", self.folder / f"{name}.key"

    def serve(self, alternative: str = "IP:127.0.0.1") -> ssl.SSLContext:
        """Return a server's TLS context of this authority. It requests client certificates of the same authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue("server", alternative))
        context.load_verify_locations(self.certificate)
        context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    return Authority(tmp_path / "pki")


def test_a_plugin_may_give_a_client_certificate(tmp_path: Path, authority: Authority) -> None:
    def pair(name: str) -> dict[str, str]:
        certificate, key = authority.issue(name)
        return {"clientCertificateData": certificate.read_text(), "clientKeyData": key.read_text()}

    api_user = ApiUser(names=("first",))

    async def main() -> None:
        user = plugin(tmp_path, pair("first"))
        async with (
            Scripted(api_user.play, authority.serve()) as server,
            api(
                tmp_path, server.url, cluster={"certificate-authority": str(authority.certificate)}, user=user
            ) as client,
        ):
            await client.get(Node, "n")
            assert len(runs(tmp_path)) == 1
            plugin(tmp_path, pair("second"))
            api_user.names = ("second",)
            await client.get(Node, "n")
            assert [seen.certificate for seen in server.seen] == ["first", "first", "second"]
            info = json.loads(runs(tmp_path)[0].split("|")[0])
            sent = base64.b64decode(info["spec"]["cluster"]["certificate-authority-data"])
            assert sent == authority.certificate.read_bytes()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["files", "data", "data wins"])
def test_a_client_certificate_from_the_kubeconfig(tmp_path: Path, authority: Authority, how: str) -> None:
    certificate, key = authority.issue("me")

    def given(name: str, path: Path) -> dict[str, str]:
        if how == "files":
            return {name: f"pki/{path.name}"}
        inline = {f"{name}-data": base64.b64encode(path.read_bytes()).decode()}
        return inline | {name: "pki/absent"} if how == "data wins" else inline

    async def main() -> None:
        user = given("client-certificate", certificate) | given("client-key", key)
        cluster = given("certificate-authority", authority.certificate)
        async with (
            Scripted(ApiUser(names=("me",)).play, authority.serve()) as server,
            api(tmp_path, server.url, cluster=cluster, user=user) as client,
        ):
            assert (await client.get(Node, "n")).name == "n"

    asyncio.run(main())


def test_certificates_that_were_renewed_on_disk_are_read(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both ends change to a new authority. The client is not restarted.
    young = Authority(tmp_path / "young")
    ca = tmp_path / "ca.crt"
    shutil.copy(young.certificate, ca)

    async def main() -> None:
        async with (
            Scripted(ApiUser("t").play, authority.serve()) as server,
            api(tmp_path, server.url, cluster={"certificate-authority": str(ca)}, user={"token": "t"}) as client,
        ):
            with pytest.raises(ApiUnavailableError, match="its certificate is not trusted"):
                await client.get(Node, "n")
            ca.write_text("half written")
            with pytest.raises(ApiUnavailableError):
                await client.get(Node, "n")
            shutil.copy(authority.certificate, ca)
            assert (await client.get(Node, "n")).name == "n"

    asyncio.run(main())


def test_a_server_known_by_another_name(tmp_path: Path, authority: Authority) -> None:
    cluster = {"certificate-authority": str(authority.certificate)}

    async def main() -> None:
        async with Scripted(ApiUser("t").play, authority.serve("DNS:kubernetes.example")) as server:
            async with api(tmp_path, server.url, cluster=cluster, user={"token": "t"}) as client:
                with pytest.raises(ApiUnavailableError, match="not trusted: IP address mismatch"):
                    await client.get(Node, "n")
            cluster["tls-server-name"] = "kubernetes.example"
            async with api(tmp_path, server.url, cluster=cluster, user={"token": "t"}) as client:
                assert (await client.get(Node, "n")).name == "n"

    asyncio.run(main())


def test_impersonation_and_passwords(tmp_path: Path) -> None:
    async def play(seen: Seen, wire: Wire) -> None:
        await wire.answer(node("n", 1))

    async def main() -> None:
        user = {"username": "u", "password": "p", "as": "someone", "as-groups": ["g"]}
        async with Scripted(play) as server, api(tmp_path, server.url, user=user) as client:
            await client.get(Node, "n")
        headers = server.seen[0].headers
        assert headers["authorization"] == f"Basic {base64.b64encode(b'u:p').decode()}"
        assert (headers["impersonate-user"], headers["impersonate-group"]) == ("someone", "g")

    asyncio.run(main())


def test_a_kubeconfig_with_a_broken_certificate_is_a_fault_of_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("nothing")
    for authority in ("ca.crt", "absent.crt"):
        with pytest.raises(ConfigError, match="cannot create an API client from"):
            api(tmp_path, "https://127.0.0.1:1", cluster={"certificate-authority": authority})


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "gopher://127.0.0.1:1", "http://[::1"])
def test_a_proxy_that_cannot_be_used_is_a_fault_of_the_kubeconfig(tmp_path: Path, proxy: str) -> None:
    with pytest.raises(ConfigError, match="cannot create an API client from"):
        api(tmp_path, "https://127.0.0.1:1", cluster={"proxy-url": proxy})


def test_a_retired_connection_lives_until_its_last_user_is_done(tmp_path: Path) -> None:
    # A watch continues over the old certificate while new calls use the new one.
    async def play(seen: Seen, wire: Wire) -> None:
        if seen.watching:
            await wire.begin()
            await asyncio.sleep(0.3)
            await wire.chunk(b"late\n")
            await wire.end()
        else:
            await wire.answer(node("n", 1))

    async def main() -> None:
        async with Scripted(play) as server, api(tmp_path, server.url) as client:
            carrier: transport.Transport = client.session.transport
            call = transport.HttpCall(ApiRequest("watch", "nodes"), "GET", "/x", {"watch": "true"})
            async with client.session.stream(call) as stream:
                previous = carrier._client
                previous.stamps = ((0, 0, 0),)
                carrier._checked_at = float("-inf")
                await client.get(Node, "n")
                assert carrier._client is not previous
                assert [chunk async for chunk in stream.chunks()] == [b"late\n"]
                assert not previous.http.is_closed
            assert previous.http.is_closed

    asyncio.run(main())
