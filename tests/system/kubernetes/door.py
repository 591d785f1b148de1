"""One account's way in: raw requests with its token, so that what is asked is what is judged."""

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
        """Neither RBAC nor an admission policy said no. That there is no such object is no refusal."""
        return self.status not in (401, 403)

    @property
    def message(self) -> str:
        return str(self.body.get("message", "")) if isinstance(self.body, dict) else str(self.body)


class Door:
    """``token`` is whose request it is."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self.cluster, self.token = cluster, token

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        answer = self.cluster.request(method, path, body, token=self.token)
        return Answer(answer.status, answer.body)

    def must(self, method: str, path: str, body: object = None) -> Any:
        """What setting up a test needs: it works, or the test is wrong."""
        answer = self.ask(method, path, body)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.message}"
        return answer.body

    def apply(self, path: str, body: dict[str, Any]) -> Any:
        """Server-side apply that refuses unknown fields."""
        query = "fieldManager=test-setup&force=true&fieldValidation=Strict"
        return self.cluster.must("PATCH", f"{path}?{query}", body, {"Content-Type": APPLY})
