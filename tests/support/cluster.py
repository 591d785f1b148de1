"""A common interface for both API servers that the suite runs on: the stand-in and a real kube-apiserver with etcd.

``tests/system/kubernetes/conftest.py`` has the fixtures. A test takes ``cluster`` and runs twice. On the real server
it is skipped with the reason if there is none. Neither runs controllers or a scheduler: ``controllers.py`` simulates
them.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from support.cluster_real import ADMIN_TOKEN, ASSETS, RealServer, assets
from support.standin import Standin
from support.standin.kubeconfig import kubeconfig

JSON = dict[str, Any]
READY_S = 60.0
SHORTEST_S = 0.02
"""The shortest pause between two polls, however many writes there are."""
_SHORT_LIVED = {"GOGC": "off", "GOMAXPROCS": "1"}
"""For a Go program that runs briefly: garbage collection and idle threads cost a quarter of its CPU time."""
_OWN_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Answer(msgspec.Struct, frozen=True):
    """The answer to a raw request; ``body`` is decoded JSON, or the text if it is not JSON."""

    status: int
    body: Any
    headers: dict[str, str]


class Cluster(ABC):
    """A running API server, which is empty at the start of each test except for its own namespaces.

    Attributes:
        name: ``standin`` or ``real``
        url: where it listens, on loopback
        ca: the certificate that its own is signed with
        token: of a user who may do everything
        folder: for kubeconfigs and other files of this test
    """

    name: str
    url: str
    ca: Path
    token: str
    folder: Path

    def __init__(self) -> None:
        self._idle: list[http.client.HTTPSConnection] = []
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}

    def kubeconfig(self, namespace: str | None = None, serviceaccount: str | None = None) -> Path:
        """Write a kubeconfig file for the administrator or a service account, which is created if it does not exist.

        The default namespace of a client that uses it is ``namespace``, else ``default``.
        """
        where = namespace or "default"
        path = self.folder / f"kubeconfig-{where}-{serviceaccount or 'admin'}"
        token = self.service_account_token(where, serviceaccount) if serviceaccount else self.token
        text = kubeconfig(self.url, token, ca=str(self.ca), namespace=where, user=serviceaccount or "admin")
        # In one step: another agent of the same account may be reading it.
        with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as file:
            file.write(text)
        return Path(file.name).replace(path)

    def service_account_token(self, namespace: str, name: str) -> str:
        """Return a new token of an account. Create the namespace and the account if they do not exist."""
        self.namespace(namespace)
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        if self.request("GET", f"{path}/{name}").status == 404:
            self.must("POST", path, {"metadata": {"name": name}})
        answer = self.must("POST", f"{path}/{name}/token", {"spec": {}})
        token: str = answer["status"]["token"]
        return token

    def namespace(self, name: str) -> str:
        """Create a namespace if it does not exist, and return its name."""
        if self.request("GET", f"/api/v1/namespaces/{name}").status == 404:
            self.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def kubectl(self, *args: str, stdin: str | None = None, config: Path | None = None, check: bool = True) -> str:
        """Return what ``kubectl`` prints on standard output, with ``check=False`` also if it fails.

        Raises:
            AssertionError: it failed; the text is its standard error
        """
        done = self.kubectl_run(*args, stdin=stdin, config=config)
        assert done.returncode == 0 or not check, f"kubectl {' '.join(args)}: {done.stderr or done.stdout}"
        return done.stdout

    def kubectl_run(
        self, *args: str, stdin: str | None = None, config: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the real ``kubectl`` and return its completed process. If there is none, skip the test."""
        if shutil.which("kubectl") is None:
            import pytest  # the demonstrations do not need it

            pytest.skip("no kubectl (apt-get install kubernetes-client)")
        own = {"KUBECONFIG": str(config or self.kubeconfig()), "HOME": str(self.folder)}
        return subprocess.run(
            ["kubectl", *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **_SHORT_LIVED, **own},
        )

    def apply(self, manifests: str | JSON | list[JSON], *, namespace: str = "default") -> None:
        """Apply YAML text or objects server-side, in their order, without ``kubectl``. Their status is written too."""
        if isinstance(manifests, str):
            manifests = [row for row in yaml.load_all(manifests, yaml.CSafeLoader) if row]
        for row in manifests if isinstance(manifests, list) else [manifests]:
            self._apply(row, namespace)

    def _apply(self, value: JSON, namespace: str) -> None:
        plural, namespaced = self._resource(value["apiVersion"], value["kind"])
        where = value["metadata"].get("namespace", namespace)
        inside = f"/namespaces/{where}" if namespaced else ""
        path = f"{_root(value['apiVersion'])}{inside}/{plural}/{value['metadata']['name']}"
        media = {"Content-Type": "application/apply-patch+yaml"}
        self.must("PATCH", f"{path}?fieldManager=test-setup&force=true", value, media)
        if "status" in value and value["kind"] in ("Pod", "DaemonSet", "PodDisruptionBudget"):
            self.must("PATCH", f"{path}/status?fieldManager=test-setup&force=true", value, media)

    def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        if (api_version, kind) not in self._resources:
            rows = self.must("GET", _root(api_version))["resources"]
            row = next(row for row in rows if row["kind"] == kind and "/" not in row["name"])
            self._resources[api_version, kind] = row["name"], row["namespaced"]
        return self._resources[api_version, kind]

    def get(self, path: str) -> JSON:
        """Return the object or list at a path.

        Raises:
            AssertionError: the answer was not a success
        """
        return self.must("GET", path)

    def must(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> JSON:
        """Send a request that cannot fail and return the body.

        Raises:
            AssertionError: it failed
        """
        answer = self.request(method, path, body, headers)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.body}"
        found: JSON = answer.body
        return found

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """Send one raw request as the administrator, or with another token ("" for none). Bodies other than bytes and
        text are sent as JSON, with PATCH as a merge patch if no type is given.
        """
        send = {"Content-Type": "application/merge-patch+json" if method == "PATCH" else "application/json"}
        send.update({"User-Agent": "aliquot-tests/1", **(headers or {})})
        if token != "":
            send["Authorization"] = f"Bearer {token or self.token}"
        data = body if isinstance(body, bytes | str | None) else json.dumps(body)
        answer, text = self._exchange(method, path, data, send, timeout_s)
        try:
            decoded = msgspec.json.decode(text)
        except msgspec.DecodeError:
            decoded = text.decode()
        return Answer(answer.status, decoded, {key.lower(): value for key, value in answer.getheaders()})

    def _exchange(
        self, method: str, path: str, data: bytes | str | None, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Send one request over an idle connection, else over a new one: a handshake costs more than most requests."""
        while True:
            reused = None
            with contextlib.suppress(IndexError):
                reused = self._idle.pop()
            connection = reused or self.connection(timeout_s)
            try:
                if reused:
                    reused.sock.settimeout(timeout_s)
                connection.request(method, path, data, dict(headers))
                answer = connection.getresponse()
                text = answer.read()
            except (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError):
                connection.close()
                if not reused:
                    raise
                continue  # the server closed it while it was idle
            except BaseException:
                connection.close()
                raise
            if answer.will_close or connection.sock is None:
                connection.close()
            else:
                self._idle.append(connection)
            return answer, text

    def hang_up(self) -> None:
        """Close the idle connections."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def connection(self, timeout_s: float = 30.0) -> http.client.HTTPSConnection:
        """Open a new connection that trusts only this server."""
        address = urlsplit(self.url)
        return http.client.HTTPSConnection(
            address.hostname or "", address.port, timeout=timeout_s, context=_trusting(str(self.ca))
        )

    def wait(self, ready: Callable[[], Any], what: str = "it", timeout_s: float = 10.0) -> Any:
        """Wait for a true value of ``ready`` and return it.

        Raises:
            AssertionError: there was none in time
        """
        end, pause = time.monotonic() + timeout_s, SHORTEST_S
        while True:
            if found := ready():
                return found
            assert time.monotonic() < end, f"waited {timeout_s} s for {what}"
            self.pause(pause)
            pause = min(pause * 1.4, 0.1)

    def pause(self, seconds: float) -> None:
        """Wait before the next poll. If the server reports writes, a write since the last pause ends this pause."""
        time.sleep(seconds)

    @property
    def revision(self) -> int | None:
        """A number that grows with each write; None if the server has none. Answers change only if it does."""
        return None

    @abstractmethod
    def unavailable(self, how: str = "refuse") -> contextlib.AbstractContextManager[None]:
        """Make the server unavailable inside the block: ``refuse`` (connections) or ``hang`` (no answer). Watches end
        (``refuse``) or fall silent. Afterwards it is available again, with the same objects.
        """

    @abstractmethod
    def expire(self) -> None:
        """Forget the history, so that a watch from before gets 410. Open watches end."""

    @abstractmethod
    def close(self) -> None:
        """End the server, or clean it if it is reused by the next test."""


@functools.lru_cache(maxsize=32)
def _trusting(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


class StandinCluster(Cluster):
    """A fresh stand-in for each test; ``standin.control`` has more switches."""

    name = "standin"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.standin = Standin().start()
        self.folder, self.url, self.token = folder, self.standin.url, self.standin.admin
        self.ca = self.standin.ca or Path()
        self._paused_at = 0

    def pause(self, seconds: float) -> None:
        time.sleep(min(seconds, SHORTEST_S))
        self._paused_at = self.standin.store.beyond(self._paused_at, seconds - SHORTEST_S)

    @property
    def revision(self) -> int:
        return self.standin.store.revision

    @contextlib.contextmanager
    def unavailable(self, how: str = "refuse") -> Iterator[None]:
        if how == "hang":
            with self.standin.control.during("hang"):
                yield
            return
        self.hang_up()
        self.standin.stop_listening()
        try:
            yield
        finally:
            self.standin.listen_again()

    def expire(self) -> None:
        self.hang_up()
        self.standin.store.expire()
        self.standin.control.drop()

    def close(self) -> None:
        self.hang_up()
        self.standin.close()


class RealCluster(Cluster):
    """A test's view of the session's real server."""

    name = "real"

    def __init__(self, server: RealServer, folder: Path) -> None:
        super().__init__()
        self.server, self.folder = server, folder
        self.url, self.token, self.ca = server.url, ADMIN_TOKEN, server.ca

    def ready(self) -> bool:
        """Report whether it answers and has its own namespaces."""
        if not self.server.alive():
            raise RuntimeError(f"kube-apiserver ended:\n{self.server.log()}")
        try:
            if not self.ca.exists() or self.request("GET", "/readyz").status != 200:
                return False
            return all(self.request("GET", f"/api/v1/namespaces/{n}").status == 200 for n in _OWN_NAMESPACES)
        except (OSError, http.client.HTTPException):
            return False

    def wait_ready(self) -> None:
        self.wait(self.ready, "kube-apiserver to be ready", READY_S)

    @contextlib.contextmanager
    def unavailable(self, how: str = "refuse") -> Iterator[None]:
        self.hang_up()
        with self.server.frozen() if how == "hang" else self.server.stopped():
            yield
        self.wait_ready()

    def expire(self) -> None:
        """Forget the history by starting the server again. Compaction is not enough: the server answers watches from
        its cache, and a new server has a new cache.
        """
        self.namespace("default")
        self.must("PATCH", "/api/v1/namespaces/default", {"metadata": {"annotations": {"expired": str(time.time())}}})
        self.server.compact()
        with self.server.stopped():
            pass
        self.wait_ready()

    def close(self) -> None:
        from support.cluster_clean import clean

        clean(self)
        self.hang_up()


def kubectl_minor() -> int:
    """Return kubectl's minor version, such as 32 of 1.32, or 0 without kubectl. Before 27,
    ``kubectl apply`` requests documents that the stand-in lacks (OpenAPI v2, in protobuf). All other verbs work.
    """
    if shutil.which("kubectl") is None:
        return 0
    found = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, text=True)
    digits = "".join(c for c in json.loads(found.stdout)["clientVersion"]["minor"] if c.isdigit())
    return int(digits or 0)


def why_not_real() -> str:
    """Return why the suite cannot run on a real server, or "" if it can."""
    if assets() is None:
        folder = os.environ.get("KUBEBUILDER_ASSETS", ASSETS)
        return f"no kube-apiserver and etcd in KUBEBUILDER_ASSETS ({folder})"
    return "" if shutil.which("openssl") else "no openssl"


def summary() -> str:
    """Return which servers the Kubernetes tests run on, for the end of a test run."""
    reason = why_not_real()
    if reason:
        return f"kubernetes suite: stand-in only: {reason}"
    found = subprocess.run([(assets() or Path()) / "kube-apiserver", "--version"], capture_output=True, text=True)
    return f"kubernetes suite: stand-in and real kube-apiserver {found.stdout.removeprefix('Kubernetes v').strip()}"
