"""Every page with fixed observations: valid HTML, accessible names, and the important facts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec
import pytest

from aliquot.dashboard import formatting as words
from aliquot.dashboard.change_requests import FitInstance, PartitionGpu
from aliquot.dashboard.pages import geometry_input as typed
from aliquot.dashboard.pending_changes import PendingChanges
from aliquot.dashboard.routes import ROUTES
from aliquot.dashboard.view_models import (
    CLUSTER,
    ChangeOutcome,
    ChangePreview,
    ObservedFleet,
    ObservedNode,
    Person,
    VirtualizationView,
)
from system.dashboard import stub
from system.dashboard.pagedraw import WHO, document, html, shown
from system.dashboard.stub import HOSTILE, StubSource

replace = msgspec.structs.replace


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "now", lambda: stub.NOW + 12)


@pytest.fixture(scope="module")
def source() -> StubSource:
    return StubSource(stub.fleet(), stub.virtual(), configs=("train", HOSTILE[4]))


def gpu_path(node: str, n: int = 0) -> str:
    pci = stub.dgx().gpus[n].pci
    return f"{words.path('nodes', node)}/gpus/{pci}"


FIXED = ["/", "/mig", "/sriov", "/vgpus", "/machines", "/history", "/?q=a2", "/?show=drift", "/?sort=holes", "/?q=zzz"]
FIXED += ["/history?node=dgx-1", "/vgpus?parent=edge-a2/0000:08:00.0", "/vgpus?parent=nothing", "/mig?q=zz&from=7"]


@pytest.mark.parametrize("path", FIXED)
def test_every_list_is_well_formed(source: StubSource, path: str) -> None:
    document(source, path)


def test_every_node_and_gpu_is_well_formed(source: StubSource) -> None:
    for number in source.fleet.nodes:
        if "/" in number.name:
            continue  # no route matches: a node cannot have this name
        document(source, words.path("nodes", number.name))
        document(source, words.path("pictures", number.name))
        for gpu in number.inventory.gpus if number.inventory else ():
            document(source, words.path("nodes", number.name, "gpus", gpu.pci))


def test_every_profile_that_one_wants_is_answered(source: StubSource) -> None:
    for n in range(8):
        for want in ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "9g.9gb", "<b>"):
            document(source, f"{gpu_path('dgx-1', n)}?want={want.replace('+', '%2B')}")


def test_what_is_not_there_is_reported(source: StubSource) -> None:
    for path in ("/nodes/nobody", "/nodes/dgx-1/gpus/0000:ff:00.0", "/plans/none"):
        read = document(source, path)
        assert shown(source, path).status == 404
        assert "not found" in read.text


def test_before_everything_was_looked_at_nothing_is_reported_not_to_be_there() -> None:
    starting = StubSource(ObservedFleet())
    for path in ("/nodes/dgx-1", gpu_path("dgx-1", 0)):
        assert shown(starting, path).status == 202
        assert "Loading" in document(starting, path).text
    unavailable = StubSource(ObservedFleet(error="the API server is away"))
    assert shown(unavailable, "/nodes/dgx-1").status == 404


def test_the_fleet_in_figures(source: StubSource) -> None:
    text = document(source, "/").text
    assert "13 nodes" in text
    assert "22 GPUs" in text
    assert "1 lost" in text
    assert "4 GPUs with holes" in text
    assert "5 nodes not responding" in text
    assert "24 (+1)" in text, "one more 1g.10gb if idle instances moved"


def test_an_empty_fleet_says_what_to_type() -> None:
    text = document(StubSource(ObservedFleet(ready=True)), "/").text
    assert "aliquot sim start dgx-a100" in text
    waiting = document(StubSource(ObservedFleet()), "/").text
    assert "first time" in waiting
    assert "sim start" not in waiting, "the fleet may not be empty"
    unavailable = ObservedFleet(ready=True, error="the API server is away", next_step="kubectl get --raw /readyz")
    assert "the API server is away" in document(StubSource(unavailable), "/").text


def test_filters_and_orders(source: StubSource) -> None:
    def rows(path: str) -> list[str]:
        regions = [r for r in shown(source, path).regions if r.id.startswith("row-")]
        return [r.context["row"].name for r in regions]

    assert rows("/?show=drift") == ["dgx-1"]
    assert set(rows("/?show=lost")) == {"dgx-1"}
    assert "gone-1" in rows("/?show=stale")
    assert rows("/?q=H100") == ["dgx-h100"]
    assert rows("/?show=holes&sort=holes")[0] == "dgx-1"
    assert len(rows("/?show=nonsense&sort=nonsense")) == len(source.fleet.nodes)
    numbered = StubSource(ObservedFleet(tuple(ObservedNode(f"n{n}", revision=n) for n in (10, 2, 1)), ready=True))
    names = [r.context["row"].name for r in shown(numbered, "/").regions if r.id.startswith("row-")]
    assert names == ["n1", "n2", "n10"]


def test_hostile_names_are_text(source: StubSource) -> None:
    for path in ["/", "/machines", "/history", *(words.path("nodes", n) for n in HOSTILE if "/" not in n)]:
        page = html(source, path)
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "\u202e" not in document(source, path).text
        assert "\x00" not in document(source, path).text


def test_a_gpu_says_what_is_on_it(source: StubSource) -> None:
    text = document(source, gpu_path("dgx-1", 0)).text
    assert "1g.5gb on slice 1, idle; 3g.20gb on slices 4-7, held by process 4711 (python)" in text
    assert "idle for 3 h" in text
    assert "not measured" in text
    assert "37 % busy" in text
    full = document(source, gpu_path("dgx-1", 1)).text
    assert "all 7 compute slices are in use" in full
    assert "not measured" in full, "no usage was read of this GPU"
    assert "fallen off the bus" in document(source, gpu_path("dgx-1", 5)).text


def test_where_one_would_go_and_what_would_help(source: StubSource) -> None:
    fits = document(source, f"{gpu_path('dgx-1', 0)}?want=2g.10gb").text
    assert "fits now, on slices 2-3" in fits
    room = html(source, f"{gpu_path('dgx-1', 6)}?want=3g.20gb")
    assert "would if idle instances moved" in room
    assert 'value="make-room"' in room
    gives_up = document(source, f"{gpu_path('dgx-1', 2)}?want=3g.20gb").text
    assert "every solution needs an instance that is held" in gives_up
    unknown = document(source, f"{gpu_path('dgx-1', 2)}?want=9g.9gb").text
    assert "has no profile 9g.9gb" in unknown


def test_drift_is_drawn_and_can_be_repaired(source: StubSource) -> None:
    page = html(source, "/nodes/dgx-1")
    assert "3g.20gb should be here" in page
    assert 'class="block idle odd"' in page
    assert 'value="repair"' in page


def test_stale_data_says_so_and_cannot_be_acted_on(source: StubSource) -> None:
    page = html(source, "/nodes/gone-1")
    assert "as last read" in page
    assert "has not answered since" in page
    assert 'value="make-room"' not in page
    assert "Changes can be planned when it responds again" in html(source, gpu_path("gone-1", 1))


def test_who_may_not_sees_why(source: StubSource) -> None:
    reader = Person("bob", reads_only=True)
    page = html(source, gpu_path("dgx-1", 0), reader)
    assert "You have read-only access." in page
    assert 'class="trouble"' not in page, "not an alert"
    assert '<button type="submit" class="primary">' not in page
    few = StubSource(stub.fleet(), stub.virtual(), forbidden=("vgpus", "functions", "layout", "attach"))
    for path in ("/vgpus", "/sriov", "/mig", "/machines"):
        assert "you may not ask for" in document(few, path).text


def test_what_is_missing_for_virtual_machines_is_reported() -> None:
    lacking = StubSource(
        stub.fleet(), VirtualizationView(missing=("the controller is not installed: helm upgrade ...",))
    )
    lacking.kind = CLUSTER
    for path in ("/sriov", "/vgpus", "/mig", "/machines"):
        read = document(lacking, path)
        assert "the controller is not installed" in read.text
        assert read.tags.get("button", 0) == 1, "the only button is the one that logs out"


def test_a_full_gpu_is_explained(source: StubSource) -> None:
    text = document(source, "/vgpus").text
    assert "is full: 4 vGPUs" in text
    assert "12 places, empty" in text
    assert "ramFB" in document(source, "/machines").text


# -- plans


def pending_page(source: StubSource, pending: PendingChanges, *, apply: bool = False) -> str:
    async def go() -> str:
        made = await pending.add(PartitionGpu(node="dgx-1", gpu=stub.dgx().gpus[2].pci, mig="3g.20gb"), WHO)
        if apply:
            pending.apply(made, WHO)
            await pending.settle(30)
        return f"/plans/{made.id}"

    return asyncio.run(go())


def test_a_plan_says_what_it_does_before_it_is_done() -> None:
    source = StubSource(stub.fleet())
    pending = PendingChanges(source)
    read = document(source, pending_page(source, pending), pending=pending)
    assert "destroy b (2g.10gb on slices 4-5) and c (1g.5gb on slice 6) and create d (3g.20gb" in read.text
    assert "1 instance stays untouched" in read.text
    assert "Destroy and create on GPU 0000:47:00.0" in read.text
    assert "blocks d" in read.text
    assert "keep 1, destroy 2, create 1" in read.text


@pytest.mark.parametrize(
    ("done", "words_there", "again"),
    [
        (ChangeOutcome("done", "as asked"), "Done: as asked", False),
        (ChangeOutcome("refused", "it moved since", code="MOVED"), "Refused, nothing changed: it moved since", True),
        (
            ChangeOutcome("undone", "the driver refused", ("detail",), next_step="aliquot show"),
            "Failed and reverted: the driver refused",
            True,
        ),
        (ChangeOutcome("partial", "half"), "Failed, partly reverted: half", True),
    ],
)
def test_how_it_ended(done: ChangeOutcome, words_there: str, again: bool) -> None:
    source = StubSource(stub.fleet(), done=done)
    pending = PendingChanges(source)
    path = pending_page(source, pending, apply=True)
    read = document(source, path, pending=pending)
    assert words_there in read.text
    assert ("Plan again" in read.text) is again
    assert "/apply" not in html(source, path, pending=pending)


def test_a_blocked_plan_names_holders_and_next_steps() -> None:
    source = StubSource(stub.fleet(), preview=stub.blocked())
    pending = PendingChanges(source)
    path = pending_page(source, pending)
    read = document(source, path, pending=pending)
    for word in ("No valid plan", "HELD", "process 4711 (python)", "4g.20gb,2g.10gb", "aliquot show", "Nothing was"):
        assert word in read.text
    page = html(source, path, pending=pending)
    assert "/apply" not in page
    assert 'name="policy" value="force"' in page
    assert 'name="policy" value="wait"' in page


def test_nothing_to_do_is_reported() -> None:
    source = StubSource(stub.fleet(), preview=ChangePreview("nothing", ("dgx-1",), summary="nothing to do"))
    pending = PendingChanges(source)
    assert "already matches the request" in document(source, pending_page(source, pending), pending=pending).text


# -- size


def test_a_thousand_nodes_stay_light(record_property: Callable[[str, object], None]) -> None:
    source = StubSource(stub.many(1000))
    one = document(StubSource(stub.many(100)), "/").count
    began = time.perf_counter()
    page = html(source, "/")
    cold = time.perf_counter() - began
    began = time.perf_counter()
    html(source, "/")
    warm = time.perf_counter() - began
    record_property("cold_s", round(cold, 3))
    record_property("warm_s", round(warm, 3))
    read = document(source, "/")
    per_row = (read.count - one) / 900
    record_property("elements_per_row", per_row)
    print(f"1000 x 8 GPUs: {cold:.2f} s cold, {warm:.2f} s warm, {per_row:.1f} elements a row, {len(page)} bytes")
    assert per_row <= 12
    assert read.tags.get("svg", 0) < 20, "pictures come only for rows in view"
    assert page.count("data-pictures=") == 1000
    strip = document(source, "/pictures/node-0003")
    assert strip.count <= 12
    assert "GPU 0:" in html(source, "/pictures/node-0003")


def test_a_row_is_drawn_again_only_when_its_node_changed() -> None:
    fleet = stub.many(50)
    before = {r.id: r.key for r in shown(StubSource(fleet), "/").regions}
    observations = list(fleet.nodes)
    observations[7] = replace(observations[7], error="away", revision=99999)
    after = {r.id: r.key for r in shown(StubSource(replace(fleet, nodes=tuple(observations), revision=2)), "/").regions}
    differ = {id for id in after if before[id] != after[id]}
    assert differ == {f"row-{words.key(observations[7].name)}", "figures"}


def test_asks_of_the_pages_are_read(source: StubSource) -> None:
    from aliquot.dashboard.forms import parse_change_request

    asked = {"ask": "make-room", "node": "dgx-1", "gpu": "0000:B7:00.0", "profile": "3g.20gb", "csrf": "x"}
    form = {name: (value,) for name, value in asked.items()}
    assert parse_change_request(form) == FitInstance(node="dgx-1", gpu="0000:b7:00.0", profile="3g.20gb")


def test_every_page_has_a_path_and_a_name() -> None:
    assert len({route.path for route in ROUTES}) == len(ROUTES) == len({route.name for route in ROUTES})


def test_what_was_typed_wrongly_is_shown_beside_its_faults(source: StubSource) -> None:
    path = f"{gpu_path('dgx-1', 0)}?mig=3g.20gb%2Cnonsense%2C2g.99gb"
    page = html(source, path)
    assert 'value="3g.20gb,nonsense,2g.99gb"' in page
    assert "is not a MIG profile name" in page
    assert 'aria-invalid="true"' in page
    document(source, path)
    assert "aria-invalid" not in html(source, gpu_path("dgx-1", 0))
    ask = PartitionGpu(node="dgx-1", gpu=stub.dgx().gpus[0].pci, mig="nonsense & <b>")
    assert typed.form_path(source.fleet, ask) == f"{gpu_path('dgx-1', 0)}?mig=nonsense+%26+%3Cb%3E#forms"
    assert typed.form_path(source.fleet, replace(ask, mig="3g.20gb")) == "", "nothing is wrong with it"
    assert typed.form_path(source.fleet, replace(ask, node="nobody")) == ""


def test_many_rows_come_in_parts() -> None:
    rows = tuple(replace(stub.virtual().migs[0], node=f"n{n:03}") for n in range(130))
    source = StubSource(stub.fleet(), VirtualizationView(migs=rows))
    first = document(source, "/mig")
    assert "1 to 48 of 130" in first.text
    assert "/mig?from=48" in first.links
    last = document(source, "/mig?from=96")
    assert "97 to 130 of 130" in last.text
    assert "n129" in last.text
    assert "1 to 48 of 130" in document(source, "/mig?from=-1&x=y").text
    assert "n077" in document(source, "/mig?q=n077").text
