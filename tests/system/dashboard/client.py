"""An HTTP client that acts as a browser or an attacker. It keeps cookies and does not follow redirects."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from system.dashboard.running import TOKEN, Running


class Client:
    """A client of a running dashboard."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.http = httpx2.Client(base_url=running.url, timeout=30, follow_redirects=False, trust_env=False)
        self.http.headers["accept"] = "text/html,*/*"

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return self.http.get(path, headers=_named(headers))

    def post(self, path: str, form: dict[str, str] | str, **headers: str) -> httpx2.Response:
        """Post a form like the dashboard's own pages do. ``headers`` override the defaults."""
        sent = {"origin": self._running.url, "sec_fetch_site": "same-origin", **headers}
        if isinstance(form, str):
            kind = {"content_type": "application/x-www-form-urlencoded"}
            return self.http.post(path, content=form, headers=_named(kind | sent))
        return self.http.post(path, data=form, headers=_named(sent))

    def login(self, token: str = TOKEN) -> Client:
        answer = self.post("/login", {"token": token, "next": "/"})
        assert answer.status_code == 303, answer.text
        return self

    @property
    def csrf(self) -> str:
        """The CSRF token of this session, from the first page."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/").text)
        assert found is not None
        return found[1]


def _named(headers: dict[str, str]) -> dict[str, str]:
    """Convert names: ``sec_fetch_site`` is Sec-Fetch-Site. A header with an empty value is not sent."""
    return {name.replace("_", "-"): value for name, value in headers.items() if value}


@contextmanager
def client(running: Running) -> Iterator[Client]:
    made = Client(running)
    try:
        yield made
    finally:
        made.http.close()
