"""Vendored files match the reviewed ones, and all files that pages load exist."""

from __future__ import annotations

import hashlib
import re
from importlib import resources

from aliquot.dashboard.assets import Assets

STATIC = resources.files("aliquot.dashboard") / "static"
HTMX = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"


def test_htmx_is_the_released_one_with_its_licence() -> None:
    """The file equals dist/htmx.min.js of the npm package htmx.org 4.0.1."""
    body = (STATIC / "vendor/htmx-4.0.1.min.js").read_bytes()
    assert hashlib.sha256(body).hexdigest() == HTMX
    assert "Zero-Clause BSD" in (STATIC / "vendor/htmx-LICENSE.txt").read_text()


def test_pages_load_nothing_from_elsewhere() -> None:
    for entry in STATIC.iterdir():
        if entry.is_file():
            assert not re.search(r"https?://(?!www\.w3\.org/)|url\(", entry.read_text()), entry.name
    for entry in (resources.files("aliquot.dashboard") / "templates").iterdir():
        text = entry.read_text()
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", text), entry.name
        assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=|\|\s*safe\b", text), entry.name


def test_a_file_has_another_address_when_it_has_other_content() -> None:
    found = Assets()
    url = found.url("live.js")
    mark = hashlib.sha256((STATIC / "live.js").read_bytes()).hexdigest()[:12]
    assert url == f"/static/live.{mark}.js"
    assert found.styles
