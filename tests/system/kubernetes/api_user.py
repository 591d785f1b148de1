"""Raw requests of one account with its token, so that a test judges exactly the request that it sends."""

from __future__ import annotations

from typing import Any

import msgspec

from support.cluster import Cluster

JSON = "application/json"
APPLY = "application/apply-patch+yaml"


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: Any

    @property
    def allowed(self) -> bool:
        """True if neither RBAC nor an admission policy refused. An object that does not exist is not a refusal."""
        return self.status not in (401, 403)

    @property
    def message(self) -> str:
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)


class ApiUser:
    """``token`` is the token of the user who sends requests."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self.cluster, self.token = cluster, token

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        answer = self.cluster.request(method, path, body, token=self.token)
        return Answer(answer.status, answer.body)

    def must(self, method: str, path: str, body: object = None) -> Any:
        """Send a request of a test's setup. It must succeed."""
        answer = self.ask(method, path, body)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.message}"
        return answer.body

    def apply(self, path: str, body: dict[str, Any]) -> Any:
        """Apply server-side and refuse unknown fields."""
        query = "fieldManager=test-setup&force=true&fieldValidation=Strict"
        return self.cluster.must("PATCH", f"{path}?{query}", body, {"Content-Type": APPLY})
