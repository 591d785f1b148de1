"""The security middleware: interrupted requests, internal errors, and allowed host names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aliquot.dashboard.security.headers import HEADERS, SecurityMiddleware


def _asked(error: BaseException | None, host: str = "localhost") -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if error is not None:
            raise error
        await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=9")]})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/x", "headers": [(b"host", host.encode())]}
    asyncio.run(SecurityMiddleware(app)(scope, None, send))  # type: ignore[arg-type]
    return sent


def test_an_answer_has_the_headers_and_keeps_its_own() -> None:
    (start,) = _asked(None)
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    assert headers["cache-control"] == "max-age=9"
    assert HEADERS.items() <= headers.items()


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (asyncio.CancelledError(), "INFO", "GET /x was interrupted by the shutdown"),
        (ZeroDivisionError(), "ERROR", "internal error in GET /x"),
    ],
)
def test_what_does_not_end_well_is_logged_once(
    error: BaseException, level: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert _asked(error) == []
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [(level, text)]


def test_another_name_is_misdirected() -> None:
    start, _ = _asked(None, "evil.example")
    assert start["status"] == 421
