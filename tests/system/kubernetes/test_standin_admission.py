"""Admission webhooks over TLS with their own authority, on both servers."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from support.cluster import Answer, Cluster
from support.standin.certificates import certificate

JSON = dict[str, Any]
ROOT = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
KIND = {"validating": "ValidatingWebhookConfiguration", "mutating": "MutatingWebhookConfiguration"}


class Hook:
    """A webhook. ``report`` answers the request of a review."""

    def __init__(self) -> None:
        self.asked: list[JSON] = []
        self.report: Callable[[JSON], JSON] = lambda request: {"allowed": True}
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.asked.append(review["request"])
                response = {"uid": review["request"]["uid"], **hook.report(review["request"])}
                body = json.dumps({**review, "request": None, "response": response}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self.authority, key = certificate()
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.authority, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def register(self, cluster: Cluster, kind: str, **more: Any) -> None:
        """Register the webhook for config maps, and wait until the server calls it."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"]}
        bundle = base64.b64encode(self.authority.read_bytes()).decode()
        client = {"url": f"https://127.0.0.1:{self.port}/ask", "caBundle": bundle}
        hook: JSON = {
            "name": "ask.example.com",
            "clientConfig": client,
            "rules": [{**rule, "resources": ["configmaps"]}],
        }
        hook.update(sideEffects="None", admissionReviewVersions=["v1"], timeoutSeconds=2, **more)
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": KIND[kind], "metadata": {"name": "ask"}}
        cluster.must("POST", f"{ROOT}/{kind}webhookconfigurations", {**body, "webhooks": [hook]})

        def asks() -> bool:
            create(cluster, "probe", "?dryRun=All", probe="1")
            return bool(self.asked)

        cluster.wait(asks, "the server to ask the webhook")
        self.asked.clear()


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.server.shutdown()
    found.server.server_close()


def create(cluster: Cluster, name: str, query: str = "", **data: str) -> Answer:
    return cluster.request("POST", MAPS + query, {"metadata": {"name": name}, "data": data})


def test_a_webhook_sees_who_writes_what_and_may_refuse(cluster: Cluster, hook: Hook) -> None:
    hook.register(cluster, "validating")
    assert create(cluster, "cm", a="1").status == 201
    asked = hook.asked[-1]
    assert (asked["operation"], asked["name"], asked["namespace"], asked["oldObject"]) == (
        "CREATE",
        "cm",
        "default",
        None,
    )
    assert asked["userInfo"]["username"] == "admin"
    assert asked["object"]["data"] == {"a": "1"}
    hook.report = lambda request: {"allowed": False, "status": {"message": "not now", "code": 409}}
    refused = cluster.request("PATCH", f"{MAPS}/cm", {"data": {"a": "2"}})
    assert (refused.status, refused.body["message"]) == (
        409,
        'admission webhook "ask.example.com" denied the request: not now',
    )
    assert (hook.asked[-1]["operation"], hook.asked[-1]["oldObject"]["data"]) == ("UPDATE", {"a": "1"})
    hook.report = lambda request: {"allowed": False}
    refused = cluster.request("DELETE", f"{MAPS}/cm")
    assert (refused.status, refused.body["message"]) == (
        400,
        'admission webhook "ask.example.com" denied the request without explanation',
    )
    assert cluster.get(f"{MAPS}/cm")["data"] == {"a": "1"}


def test_what_a_webhook_warns_of_reaches_the_client(cluster: Cluster, hook: Hook) -> None:
    hook.register(cluster, "validating")
    hook.report = lambda request: {"allowed": True, "warnings": ['mind the "gap"', "and the step"]}
    assert '299 - "and the step"' in cluster.request("POST", MAPS, {"metadata": {"name": "cm"}}).headers["warning"]
    done = cluster.kubectl_run("create", "configmap", "other")
    assert done.stderr.splitlines() == ['Warning: mind the "gap"', "Warning: and the step"]


def test_a_webhook_may_change_what_is_written(cluster: Cluster, hook: Hook) -> None:
    hook.register(cluster, "mutating")
    patch = [{"op": "add", "path": "/data/added", "value": "x"}]
    encoded = base64.b64encode(json.dumps(patch).encode()).decode()
    hook.report = lambda request: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}
    assert create(cluster, "cm", a="1").status == 201
    assert cluster.get(f"{MAPS}/cm")["data"] == {"a": "1", "added": "x"}


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
def test_a_webhook_that_is_gone(cluster: Cluster, hook: Hook, policy: str, status: int) -> None:
    hook.register(cluster, "validating", failurePolicy=policy)
    hook.server.shutdown()
    hook.server.server_close()
    answer = create(cluster, "cm", a="1")
    assert answer.status == status
    if policy == "Fail":
        assert answer.body["message"].startswith(
            'Internal error occurred: failed calling webhook "ask.example.com": failed to call webhook: '
        )


def test_match_conditions_and_object_selectors_narrow(cluster: Cluster, hook: Hook) -> None:
    condition = {"name": "not-skipped", "expression": "!('skip' in object.data)"}
    hook.register(cluster, "validating", matchConditions=[condition])
    hook.report = lambda request: {"allowed": False}
    assert create(cluster, "kept", a="1").status == 400
    assert create(cluster, "skipped", skip="1").status == 201
