"""Harvester's workflow: enable functions, create three vGPUs at once, attach two to a VM, and remove all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aliquot.dashboard.change_requests import AttachDevices, DetachDevices, SetLayout, SetVgpus, SwitchFunctions
from aliquot.dashboard.view_models import VgpuRow
from support.admissions import resource_claim
from support.cluster import Cluster
from support.kubevirt.objects import machine, machines
from support.resource_claims import create_claim
from system.dashboard.clusterbed import Bed, bed
from system.harvester.conftest import MakeSite, make_site
from system.kubernetes.conftest import cluster, real_cluster, real_server, standin_cluster

__all__ = ["cluster", "make_site", "real_cluster", "real_server", "standin_cluster"]
NODE, PF = "n1", "0000:08:00.0"
TYPE = "NVIDIA A2-4Q"


@pytest.fixture
def page(cluster: Cluster) -> Iterator[Bed]:
    with bed(cluster) as made:
        yield made


def row_of(page: Bed, name: str) -> VgpuRow:
    return next(row for row in page.source.virtual.vgpus if row.name == name)


def test_the_walk(page: Bed, make_site: MakeSite, cluster: Cluster) -> None:
    site = make_site({NODE: "a2:mdev:bus08"}, pods=False)
    page.until(lambda: [row for row in page.source.virtual.sriov if row.product], "the GPU with its product")
    (row,) = page.source.virtual.sriov
    assert (row.node, row.gpu, row.enabled, row.why_not) == (NODE, PF, False, "")
    assert "A2" in row.product
    done = page.ask(SwitchFunctions(gpus=(f"{NODE}/{PF}",), on=True))
    assert done.status == "done", done
    page.until(lambda: len([v for v in page.source.virtual.vgpus if v.types]) >= 3, "places")
    assert page.source.virtual.sriov[0].enabled

    places = [v for v in page.source.virtual.vgpus if TYPE in v.types][:3]
    assert {v.parent for v in places} == {PF}
    preview = page.preview(SetVgpus(places=tuple(f"{NODE}/{v.name}" for v in places), type=TYPE))
    assert [a.verb for a in preview.actions] == ["create"] * 3
    assert page.execute(preview).status == "done"
    page.until(lambda: sum(v.type == TYPE for v in page.source.virtual.vgpus) == 3, "three vGPUs")
    off = page.preview(SwitchFunctions(gpus=(f"{NODE}/{PF}",), on=False))
    assert "while vGPUs" in off.obstacles[0].message
    assert page.source.virtual.sriov[0].why_not

    held = create_claim(
        cluster, resource_claim("lab", "virt-launcher-lab-x7k2p", uuid=row_of(page, places[0].name).uuid)
    )
    page.until(lambda: row_of(page, places[0].name).holders, "the holder by a claim")
    (words,) = row_of(page, places[0].name).holders
    assert (
        f"{places[0].name} is in use by ResourceClaim lab of pod virt-launcher-lab-x7k2p in namespace default" in words
    )
    cluster.must("DELETE", held)
    page.until(lambda: not row_of(page, places[0].name).holders, "the claim's end")

    body = machine("desk", ())
    body["spec"] |= {"runStrategy": "Halted"}
    body["spec"].pop("running", None)
    cluster.must("POST", machines("default"), body)
    page.until(lambda: page.source.virtual.vms, "the machine")
    (pending,) = page.source.virtual.vms
    assert len(pending.free) == 3
    assert {d.node for d in pending.free} == {NODE}
    two = tuple(d.id for d in pending.free[:2])
    preview = page.preview(AttachDevices(namespace="default", vm="desk", node=NODE, devices=two))
    assert not preview.obstacles
    assert any("ramFB" in w and two[0] in w for w in preview.warnings), preview.warnings
    done = page.execute(preview)
    assert done.status == "done", done
    gpus = cluster.get(f"{machines('default')}/desk")["spec"]["template"]["spec"]["domain"]["devices"]["gpus"]
    assert [g["name"] for g in gpus] == list(two)
    assert [g["virtualGPUOptions"]["display"]["ramFB"]["enabled"] for g in gpus] == [True, False]
    page.until(lambda: len(page.source.virtual.vms[0].devices) == 2, "both are shown")
    page.until(lambda: len(page.source.virtual.vms[0].free) == 1, "one is left")
    used = next(v for v in page.source.virtual.vgpus if v.name == two[0])
    assert used.holders
    assert used.why_not

    taken = page.preview(AttachDevices(namespace="default", vm="desk", node=NODE, devices=(two[0],)))
    assert [o.rule for o in taken.obstacles] == ["NOT_FREE"]
    late = page.preview(DetachDevices(namespace="default", vm="desk", node=NODE, devices=two))
    cluster.must("PATCH", f"{machines('default')}/desk", {"metadata": {"labels": {"touched": "meanwhile"}}})
    refused = page.execute(late)
    assert (refused.status, refused.code) == ("refused", "MOVED"), refused
    assert page.ask(DetachDevices(namespace="default", vm="desk", node=NODE, devices=two)).status == "done"
    page.until(lambda: len(page.source.virtual.vms[0].free) == 3, "all are free")
    everything = tuple(f"{NODE}/{v.name}" for v in places)
    assert page.ask(SetVgpus(places=everything, type="")).status == "done"
    page.until(lambda: not any(v.type for v in page.source.virtual.vgpus), "none is left")
    assert page.ask(SwitchFunctions(gpus=(f"{NODE}/{PF}",), on=False)).status == "done"
    assert site.agents[NODE].log() is not None


def test_a_layout_is_set_while_it_is_off_alone(page: Bed, make_site: MakeSite) -> None:
    make_site({NODE: "a100-sxm4-40gb:mdev:bus04"}, pods=False)
    page.until(lambda: page.source.virtual.sriov, "the GPU")
    pf = page.source.virtual.sriov[0].gpu
    done = page.ask(SwitchFunctions(gpus=(f"{NODE}/{pf}",), on=True))
    assert done.status == "done", (done, page.reported)
    page.until(lambda: page.source.virtual.migs and page.source.virtual.migs[0].profiles, "the MIG configuration")
    (row,) = page.source.virtual.migs
    assert (row.enabled, [p.name for p in row.profiles if p.requested]) == (False, [])
    bad = page.preview(SetLayout(node=NODE, gpu=pf, counts={"3g.20gb": 3}, enabled=True))
    assert bad.obstacles
    ask = SetLayout(node=NODE, gpu=pf, counts={"3g.20gb": 1, "1g.5gb": 2}, enabled=True)
    preview = page.preview(ask)
    assert [p.planned.partition("  ")[0] for p in preview.pictures] == ["3g.20gb:1,1g.5gb:2"]
    done = page.execute(preview)
    assert done.status == "done", done
    page.until(lambda: page.source.virtual.migs[0].status == "synced", "synced")
    there = {p.name: p.present for p in page.source.virtual.migs[0].profiles if p.present}
    assert there == {"3g.20gb": 1, "1g.5gb": 2}
    under_way = page.preview(SetLayout(node=NODE, gpu=pf, counts={"7g.40gb": 1}, enabled=True))
    assert "must be disabled before" in under_way.obstacles[0].message
    assert page.ask(SetLayout(node=NODE, gpu=pf, counts={}, enabled=False)).status == "done"
    page.until(lambda: page.source.virtual.migs[0].status.startswith("disabled"), "disabled")


def test_what_is_missing_is_reported(page: Bed, cluster: Cluster) -> None:
    page.until(lambda: page.source.fleet.ready, "a look")
    page.until(lambda: page.source.virtual.missing and page.source.virtual.no_vms, "sentences")
    output = " ".join(page.source.virtual.missing)
    assert "does not have Harvester's kinds" in output
    assert "KubeVirt is not installed" in page.source.virtual.no_vms[0]
