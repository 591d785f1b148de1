"""Run a written list of requests against a cluster, and make the answers comparable.

The list and the real server's answers are in ``tests/recorded/kube-apiserver``; ``tools/record_apiserver.py`` writes
them. Values that differ from run to run (uids, times, versions, generated names) are replaced by their name.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from typing import Any

from support.cluster import Cluster

JSON = dict[str, Any]
UNTIL_S = 15.0
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_AGE = re.compile(r"^(\d+[smhdy])+$")
_PATCHED = re.compile(r'Invalid value: "\{.*\}\\?n?": json:', re.DOTALL)
_VERSIONS = re.compile(r"((?:resource version|current|object meta|in precondition): )\d+|\(\d+\)")
_LEFT_OUT = ("description", "storageVersionHash", "serverAddress", "gitCommit", "goVersion", "compiler")
_RANDOM = re.compile(r"\b(A|gen|cm)-[a-z0-9]{5}\b")


class Replay:
    """The run of a scenario: later steps use values saved by earlier ones as ``{{name}}``."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.saved: dict[str, str] = {}

    def run(self, step: JSON) -> JSON:
        """Run a step and return its normalized answer."""
        end = time.monotonic() + UNTIL_S
        while True:
            found = self._watch(step) if "watch" in step else self._request(step)
            wanted = step.get("until")
            if wanted is None or found["status"] == wanted or time.monotonic() > end:
                break
            time.sleep(0.05)
        for name, path in (step.get("save") or {}).items():
            self.saved[name] = _at(found["raw"], path)
        return {"status": found["status"], "body": normal(found["raw"])}

    def _filled(self, value: Any) -> Any:
        if isinstance(value, str):
            return re.sub(r"\{\{(\w+)\}\}", lambda found: self.saved[found[1]], value)
        if isinstance(value, dict):
            return {self._filled(key): self._filled(one) for key, one in value.items()}
        return [self._filled(one) for one in value] if isinstance(value, list) else value

    def _headers(self, step: JSON) -> dict[str, str]:
        found = {"User-Agent": step.get("agent", "recorder/1")}
        if "type" in step:
            found["Content-Type"] = step["type"]
        if "accept" in step:
            found["Accept"] = step["accept"]
        return found

    def _token(self, step: JSON) -> str | None:
        """Return None for the administrator, "" for an anonymous request, else a saved or literal token."""
        token = step.get("token")
        return None if token is None else self._filled(token)

    def _request(self, step: JSON) -> JSON:
        answer = self.cluster.request(
            step["method"],
            self._filled(step["path"]),
            self._filled(step.get("body")),
            self._headers(step),
            token=self._token(step),
        )
        return {"status": answer.status, "raw": answer.body}

    def _watch(self, step: JSON) -> JSON:
        """Return so many lines of a watch, or all until it ends."""
        connection = self.cluster.connection(timeout_s=5)
        token = self._token(step)
        headers = {**self._headers(step), "Authorization": f"Bearer {token or self.cluster.token}"}
        try:
            connection.request("GET", self._filled(step["path"]), headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                return {"status": answer.status, "raw": json.loads(answer.read())}
            return {"status": 200, "raw": list(_lines(answer, step["watch"]))}
        finally:
            connection.close()


def _lines(answer: http.client.HTTPResponse, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count and (line := answer.readline()):
        found.append(json.loads(line))
    return found


def _at(value: Any, path: str) -> str:
    for part in path.split("."):
        value = value[int(part)] if isinstance(value, list) else value[part]
    return str(value)


def normal(value: Any, key: str = "") -> Any:
    """Return a value without the parts that differ from run to run. The real server validates some objects up to eight
    times and repeats the causes as often, so each counts once, in any order. Managed fields are ordered by their times,
    which differ here.
    """
    if isinstance(value, dict):
        generated = value.get("generateName") if key == "metadata" else None
        found = {name: normal(one, name) for name, one in value.items() if name not in _LEFT_OUT}
        if generated and found.get("name", "").startswith(generated):
            found["name"] = f"{generated}<random>"
        return found
    if isinstance(value, list):
        rows = [normal(one, key) for one in value]
        if key == "causes":
            return sorted((row for n, row in enumerate(rows) if row not in rows[:n]), key=json.dumps)
        if key == "managedFields":
            rows.sort(key=lambda row: [row.get(k, "") for k in ("operation", "manager", "subresource")])
        return rows
    if key in ("resourceVersion", "uid", "token", "continue") and value:
        return f"<{key}>"
    return _text(value, key) if isinstance(value, str) else value


def _text(value: str, key: str) -> str:
    if key == "cells" and _AGE.match(value):
        return "<age>"
    value = _RANDOM.sub(r"\1-<random>", value.partition("\n@@ ")[0])
    value = _PATCHED.sub("Invalid value: <object>: json:", value)
    value = _UID.sub("<uid>", _TIME.sub("<time>", value))
    return _VERSIONS.sub(lambda found: f"{found[1]}<version>" if found[1] else "(<version>)", value)
