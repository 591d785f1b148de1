"""Static files of the pages: style sheets, scripts, images.

Each URL contains a hash of the content, so that browsers can cache the file forever and never use an old version.
"""

from __future__ import annotations

import hashlib
import mimetypes
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

FOR_GOOD = "public, max-age=31536000, immutable"
KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


class Asset(msgspec.Struct, frozen=True):
    """A file below ``static/``. ``path`` is its URL path."""

    name: str
    path: str
    kind: str
    body: bytes


class Assets:
    """All files below ``static/``, read once."""

    def __init__(self) -> None:
        self._by_name = {asset.name: asset for asset in _all()}
        self._by_path = {asset.path: asset for asset in self._by_name.values()}

    def url(self, name: str) -> str:
        """Return the URL path of a file (``aliquot.css``, ``vendor/x.js``). Raises KeyError if there is none."""
        return self._by_name[name].path

    @property
    def styles(self) -> tuple[str, ...]:
        """The URL paths of all style sheets."""
        return tuple(asset.path for name, asset in sorted(self._by_name.items()) if name.endswith(".css"))

    async def endpoint(self, request: Request) -> Response:
        asset = self._by_path.get(request.url.path)
        if asset is None:
            return PlainTextResponse("file not found\n", 404)
        return Response(asset.body, headers={"content-type": asset.kind, "cache-control": FOR_GOOD})


def _all() -> list[Asset]:
    found: list[Asset] = []

    def walk(folder: Traversable, prefix: str) -> None:
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif not entry.name.startswith("."):
                found.append(_asset(f"{prefix}{entry.name}", entry.read_bytes()))

    walk(resources.files("aliquot.dashboard") / "static", "")
    return found


def _asset(name: str, body: bytes) -> Asset:
    stem, dot, ending = name.rpartition(".")
    mark = hashlib.sha256(body).hexdigest()[:12]
    kind = KINDS.get(dot + ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Asset(name, f"/static/{stem}.{mark}.{ending}", kind, body)
