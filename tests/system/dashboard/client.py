"""A client as a browser would be, or as an attacker makes one: cookies are kept, redirects are not followed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from system.dashboard.running import TOKEN, Running


class Client:
    """``csrf`` is what the last page's forms carried."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.http = httpx2.Client(base_url=running.url, timeout=30, follow_redirects=False, trust_env=False)
        self.http.headers["accept"] = "text/html,*/*"

    def get(self, path: str, **headers: str) -> httpx2.Response:
        return self.http.get(path, headers=_named(headers))

    def post(self, path: str, form: dict[str, str] | str, **headers: str) -> httpx2.Response:
        """As a form of a page of ours is posted, unless ``headers`` say otherwise."""
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
        """The secret of this session's forms, as the first page has it."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get("/").text)
        assert found is not None
        return found[1]


def _named(headers: dict[str, str]) -> dict[str, str]:
    """``sec_fetch_site`` is Sec-Fetch-Site; an empty value is a header that is not sent."""
    return {name.replace("_", "-"): value for name, value in headers.items() if value}


@contextmanager
def client(running: Running) -> Iterator[Client]:
    made = Client(running)
    try:
        yield made
    finally:
        made.http.close()
