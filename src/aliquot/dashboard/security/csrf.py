"""Requests that another page made a browser send. Cookies alone do not tell: they go along whoever wrote the form.

``SameSite=Strict`` is not enough either: to browsers every port of one host is the same site, and on a loopback address
any user of the machine may have a port.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import Request

OURS = ("same-origin", "none")


def foreign_read(request: Request) -> str:
    """Why this GET is not answered, "" if it is: another site may link to a page, but not load it into its own."""
    site = request.headers.get("sec-fetch-site")
    if site is None or site in OURS:
        return ""
    navigating = request.headers.get("sec-fetch-mode") == "navigate"
    if navigating and request.headers.get("sec-fetch-dest") == "document":
        return ""
    return "another site asked for this page"


def foreign_write(request: Request, trusted: frozenset[str], *, secure: bool) -> str:
    """Why this POST is not taken, "" if it is: it must come from a page of this very origin, or from no browser.

    ``trusted`` are names (with a port where it is not the usual one) that a proxy before us goes by.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in OURS:
        return "another site sent this form"
    origin = request.headers.get("origin")
    if origin is None:
        # Every browser says where a POST comes from, in one of the two. Programs say neither.
        return ""
    parts = urlsplit(origin)
    schemes = ("https",) if secure else ("http", "https")
    if parts.scheme not in schemes or parts.netloc.lower() not in {request.headers["host"].lower(), *trusted}:
        return "another site sent this form"
    return ""


def same(given: str, expected: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell how much of them is."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
