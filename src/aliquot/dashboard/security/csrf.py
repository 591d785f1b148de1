"""CSRF protection: detection of requests that a page of another site made the browser send.

A cookie does not prove the origin of a request, because the browser sends it with every form.
``SameSite=Strict`` is not enough, because browsers treat all ports of a host as the same site.
On a loopback address, any user of the host can listen on a port.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import Request

OURS = ("same-origin", "none")


def foreign_read(request: Request) -> str:
    """Return why a GET request is refused, "" if it is allowed. Another site may link to a page but not embed it."""
    site = request.headers.get("sec-fetch-site")
    if site is None or site in OURS:
        return ""
    navigating = request.headers.get("sec-fetch-mode") == "navigate"
    if navigating and request.headers.get("sec-fetch-dest") == "document":
        return ""
    return "another site requested this page"


def foreign_write(request: Request, trusted: frozenset[str], *, secure: bool) -> str:
    """Return why a POST request is refused, "" if it is allowed.

    It must come from a page of the same origin, or from a client other than a browser.
    ``trusted`` are the host names of a reverse proxy, with the port unless it is the default one.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in OURS:
        return "another site sent this form"
    origin = request.headers.get("origin")
    if origin is None:
        # Every browser sends one of the two headers with a POST request. Other programs send neither.
        return ""
    parts = urlsplit(origin)
    schemes = ("https",) if secure else ("http", "https")
    if parts.scheme not in schemes or parts.netloc.lower() not in {request.headers["host"].lower(), *trusted}:
        return "another site sent this form"
    return ""


def same(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
