"""What pages load besides themselves: styles, scripts, pictures. Each is served under a name with its hash in it, so
that a browser keeps it for good and never keeps an old one.
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
    """A file below ``static/``. ``path`` is where it is served."""

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
        """Where the file of this name (``aliquot.css``, ``vendor/x.js``) is served. Raises KeyError for none."""
        return self._by_name[name].path

    @property
    def styles(self) -> tuple[str, ...]:
        """Where the style sheets are served, all of them."""
        return tuple(asset.path for name, asset in sorted(self._by_name.items()) if name.endswith(".css"))

    async def endpoint(self, request: Request) -> Response:
        asset = self._by_path.get(request.url.path)
        if asset is None:
            return PlainTextResponse("there is no such file\n", 404)
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
