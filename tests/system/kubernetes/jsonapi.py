"""A small HTTP client for requests that a test sends beside the code under test."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from typing import Any

from support.cluster_real import ADMIN_TOKEN, RealServer


class Json:
    """The administrator's access to a real API server."""

    def __init__(self, server: RealServer) -> None:
        self._url = server.url
        self._context = ssl.create_default_context(cafile=str(server.ca))
        self._context.check_hostname = False

    def get(self, path: str) -> dict[str, Any] | None:
        """Return an object, or None if there is none."""
        try:
            return self.send("GET", path)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def send(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        request = urllib.request.Request(
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
