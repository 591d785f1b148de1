"""Names that an attacker chose to break the page: no script runs, and nothing is wider than the screen."""

from __future__ import annotations

import msgspec
import pytest
from playwright.sync_api import Page, expect

from aliquot.dashboard.routes import ROUTES
from aliquot.dashboard.view_models import ChangePreview, Obstacle
from system.browser import audit, bed
from system.browser.conftest import Opens
from system.dashboard import stub
from system.dashboard.running import running
from system.dashboard.stub import HOSTILE, StubSource

replace = msgspec.structs.replace
FIXED = ("/", "/mig", "/sriov", "/vgpus", "/machines", "/history")


def source() -> StubSource:
    """Return a source in which every external text is hostile."""
    bad, rtl, long = HOSTILE[0], HOSTILE[1], HOSTILE[2]
    rows = stub.virtual()
    place = replace(rows.vgpus[-1], name=bad, parent_product=long, types=(bad, rtl), state=bad)
    virtual = replace(
        rows,
        sriov=(replace(rows.sriov[0], node=bad, product=long, name=rtl, state=bad),),
        vgpus=(place, replace(place, name=long, type=long, uuid=bad, holders=(rtl, bad))),
        migs=tuple(replace(r, node=long, status=bad) for r in rows.migs),
        missing=(bad, long),
        no_vms=(rtl,),
    )
    obstacle = Obstacle(bad, long, rtl, bad, (bad, rtl, long), bad, bad)
    blocked = ChangePreview(
        bad, (bad,), stub.changing().pictures, obstacles=(obstacle,), notes=(long,), warnings=(bad,)
    )
    return StubSource(stub.fleet(), virtual, preview=blocked, configs=HOSTILE)


def calm(page: Page, where: str, width: int) -> None:
    assert page.evaluate("window.ran") is None, where
    assert page.locator("main script, main img, main iframe, main [onerror]").count() == 0, where
    assert audit.wide(page) <= width, where


@pytest.mark.parametrize("size", [bed.PHONE, bed.DESKTOP], ids=["phone", "desk"])
def test_names_are_names(someone: Opens, size: dict[str, int]) -> None:
    with running(source(), ROUTES) as served:
        visitor = someone(served, size=size)
        visitor.expect("status of 404")
        page = visitor.page
        page.on("dialog", lambda dialog: visitor.failure.append(f"a dialog: {dialog.message}"))
        calm(page, "login", size["width"])
        nodes = page.locator(".fleet tbody th a").evaluate_all("all => all.map((a) => a.pathname)")
        assert len(nodes) == len(stub.fleet().nodes)
        for path in (*FIXED, *nodes):
            page.goto(served.url + path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            calm(page, path, size["width"])
        page.goto(f"{served.url}/nodes/dgx-1/gpus/0000:07:00.0")
        page.get_by_role("button", name="Plan this geometry").click()
        expect(page.locator(".obstacle")).to_contain_text(HOSTILE[0])
        calm(page, "plan", size["width"])
        page.goto("about:blank")
