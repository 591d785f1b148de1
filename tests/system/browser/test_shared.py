"""Tasks of Harvester users: virtual functions, dozens of vGPUs, MIG configurations, devices of VMs."""

from __future__ import annotations

import re

import msgspec
from playwright.sync_api import Page, expect

from aliquot.dashboard.change_requests import AttachDevices, DetachDevices
from aliquot.dashboard.routes import ROUTES
from aliquot.dashboard.view_models import VirtualizationView, VmDeviceRow, VmRow
from system.browser import audit
from system.browser.conftest import Opens
from system.browser.fleet import Environment
from system.dashboard import stub
from system.dashboard.running import running
from system.dashboard.stub import StubSource

LIVE_MS = 30_000
SECOND = "0000:02:00.0"


def confirmed(page: Page) -> None:
    expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
    page.locator(".confirm button").click()
    expect(page.locator("#outcome .end.good")).to_contain_text("Done", timeout=LIVE_MS)


def test_functions_on_three_vgpus_at_once_a_fourth_too_many_and_off_again(
    environment: Environment, someone: Opens
) -> None:
    page = someone(environment).page
    page.goto(f"{environment.url}/sriov")
    row = page.locator("tr", has_text=SECOND)
    row.get_by_role("button", name=f"Plan: enable the virtual functions of {SECOND}").click()
    expect(page.locator(".promise")).to_contain_text("enable virtual functions")
    confirmed(page)
    page.goto(f"{environment.url}/sriov")
    expect(row).to_contain_text("16 of 16 enabled", timeout=LIVE_MS)
    row.get_by_role("link", name="show places").click()
    expect(page.get_by_label("GPU", exact=True)).to_have_value(f"desks-1/{SECOND}")
    expect(page.locator("tbody tr")).to_have_count(16)
    for place in page.get_by_role("checkbox").all()[:3]:
        place.check()
    page.get_by_label("Type for all selected places").select_option("A2-8Q")
    page.get_by_role("button", name="Plan: create vGPUs").click()
    expect(page.get_by_role("heading", name="No valid plan")).to_be_visible()
    expect(page.locator(".obstacle")).to_contain_text("A2-8Q")
    page.go_back()
    for place in page.get_by_role("checkbox").all()[:3]:
        place.check()
    page.get_by_label("Type for all selected places").select_option("A2-4Q")
    page.get_by_role("button", name="Plan: create vGPUs").click()
    expect(page.locator("tr.create")).to_have_count(3)
    confirmed(page)
    page.goto(f"{environment.url}/vgpus?parent=desks-1/{SECOND}")
    expect(page.get_by_role("cell", name=re.compile("^A2-4Q "))).to_have_count(3, timeout=LIVE_MS)
    page.get_by_role("button", name=re.compile("Plan: create a vGPU on ")).first.click()
    confirmed(page)
    page.goto(f"{environment.url}/vgpus?parent=desks-1/{SECOND}")
    expect(page.locator("p.note")).to_contain_text("is full: 4 vGPUs (A2-4Q)", timeout=LIVE_MS)
    assert not audit.faults(page)
    for place in page.get_by_role("checkbox").all():
        place.check()
    page.get_by_role("button", name="Plan: destroy vGPUs").click()
    confirmed(page)
    page.goto(f"{environment.url}/sriov")
    row.get_by_role("button", name=f"Plan: disable the virtual functions of {SECOND}").click()
    confirmed(page)
    page.goto(f"{environment.url}/vgpus?parent=desks-1/{SECOND}")
    expect(page.locator("#places")).to_contain_text("no place for a vGPU", timeout=LIVE_MS)


def test_a_mig_configuration_is_set_and_disabled(environment: Environment, someone: Opens) -> None:
    page = someone(environment).page
    page.goto(f"{environment.url}/mig?q=infer-1")
    gpu = page.locator("article", has_text="0000:04:00.0")
    expect(gpu).to_contain_text("disabled")
    gpu.get_by_label("2g.12gb", exact=True).fill("2")
    gpu.get_by_role("button", name="Plan these instances on").click()
    confirmed(page)
    page.goto(f"{environment.url}/mig?q=infer-1")
    expect(gpu).to_contain_text("enabled · synced", timeout=LIVE_MS)
    expect(gpu.get_by_label("2g.12gb", exact=True)).to_have_value("2")
    gpu.get_by_role("button", name="Plan: disable MIG on").click()
    confirmed(page)


def machines() -> VirtualizationView:
    """Return two VMs. One may take several of the free devices, the other only one."""
    q = [VmDeviceRow(f"q{n}", "edge-a2", "NVIDIA A2-4Q", "0000:08:00.0", several=True) for n in range(3)]
    c = [VmDeviceRow(f"c{n}", "edge-a2", "NVIDIA A2-4C", "0000:08:00.0", several=False) for n in range(2)]
    return msgspec.structs.replace(
        stub.virtual(),
        vms=(
            VmRow("desk", "team", "edge-a2", False, (q[0],), (q[1], c[0])),
            VmRow("bare", "team", "edge-a2", False, (), (q[2], c[1])),
        ),
    )


def test_rules_are_reported_before_a_device_is_attached(someone: Opens) -> None:
    source = StubSource(stub.fleet(), machines())
    with running(source, ROUTES) as served:
        page = someone(served).page
        page.goto(f"{served.url}/machines")
        assert not audit.faults(page)
        pending, bare = (page.locator("article", has_text=name) for name in ("team/desk", "team/bare"))
        expect(pending).to_contain_text("Only one vGPU of a VM can have the boot display (ramFB)")
        closed = pending.get_by_role("checkbox", name=re.compile("A2-4C"))
        expect(closed).to_be_disabled()
        expect(closed).to_have_accessible_description(re.compile("a VM can have only one of this type"))
        single = bare.get_by_role("checkbox", name=re.compile("A2-4C"))
        expect(single).to_have_accessible_description("a VM can have only one of this type")
        pending.get_by_role("checkbox", name=re.compile(r"\(q1\)")).check()
        pending.get_by_role("button", name="Plan: attach the selected devices").click()
        expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
        page.goto(f"{served.url}/machines")
        pending.get_by_role("checkbox", name=re.compile(r"\(q0\)")).check()
        pending.get_by_role("button", name="Plan: detach the selected devices").click()
        expect(page.get_by_role("heading", name="Apply this plan?")).to_be_visible()
        page.goto("about:blank")
    assert source.asked == [
        AttachDevices(namespace="team", vm="desk", node="edge-a2", devices=("q1",)),
        DetachDevices(namespace="team", vm="desk", node="edge-a2", devices=("q0",)),
    ]
