"""Metrics of a snapshot and their format: units, missing values, escapes, forms, and no unneeded work."""

from __future__ import annotations

import gzip

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from aliquot.errors import UsageError
from aliquot.metrics import instruments as make
from aliquot.metrics.agent_metrics import AgentMetrics, SharedMetrics
from aliquot.metrics.gpu_samples import GpuCollector, bus_id
from aliquot.metrics.listen_address import parse_listen_address
from aliquot.metrics.page import MetricsPage
from aliquot.metrics.snapshot import NodeSnapshot, SnapshotDetails, take_snapshot
from laws.oracle import mig_nodes
from unit.metrics.snapshots import A100, everything, hidden, many, plain

Sample = tuple[dict[str, str], float]
OPEN = {"accept": "application/openmetrics-text;version=1.0.0"}


def page(*observations: NodeSnapshot) -> MetricsPage:
    return MetricsPage(make.registry(), GpuCollector(lambda: observations))


def samples(shown: MetricsPage, name: str) -> list[Sample]:
    families = parse(shown.text().decode())
    return [(dict(s.labels), s.value) for f in families for s in f.samples if s.name == name]


def test_memory_is_bytes_and_shares_are_ratios() -> None:
    shown = page(everything())
    assert samples(shown, "aliquot_instance_memory_used_bytes")[0][1] == 100 * 1024 * 1024
    assert samples(shown, "aliquot_instance_compute_utilization_ratio")[0][1] == 0.5


def test_what_was_not_measured_is_absent_and_never_zero() -> None:
    shown = page(NodeSnapshot("n", plain(), SnapshotDetails(1.0)))
    for name in ("memory_used_bytes", "compute_utilization_ratio", "idle_since_timestamp_seconds"):
        assert samples(shown, f"aliquot_instance_{name}") == []
    assert samples(shown, "aliquot_drift") == samples(shown, "aliquot_gpu_drift") == []


def test_figures_of_another_profile_are_those_of_an_instance_that_is_gone() -> None:
    observation = everything()
    other = tuple(msgspec.structs.replace(u, profile=u.profile and "4g.20gb") for u in observation.details.usage)
    stale = msgspec.structs.replace(observation, details=msgspec.structs.replace(observation.details, usage=other))
    assert samples(page(observation), "aliquot_instance_memory_used_bytes")
    assert not samples(page(stale), "aliquot_instance_memory_used_bytes")


def test_after_a_look_that_failed_nothing_is_reported_of_gpus() -> None:
    shown = page(NodeSnapshot("n"))
    assert samples(shown, "aliquot_look_success") == [({"Hostname": "n"}, 0.0)]
    assert not [f.name for f in parse(shown.text().decode()) if f.name.startswith(("aliquot_gpu", "aliquot_instance"))]


def test_gpus_that_nvml_does_not_see_are_distinguished() -> None:
    found = samples(page(hidden()), "aliquot_gpu_passthrough")
    assert [(labels["gpu"], labels["UUID"]) for labels, _ in found] == [("", ""), ("", "")]
    assert len({labels["pci_bus_id"] for labels, _ in found}) == 2


def test_drift_is_zero_where_something_was_asked_and_is_so() -> None:
    inventory = plain()
    asked = mig_nodes.desired_state(A100, ["3g.20gb", "1g.5gb"])
    assert samples(page(take_snapshot("n", inventory, asked, SnapshotDetails())), "aliquot_drift") == [
        ({"Hostname": "n", "kind": "none"}, 0.0)
    ]
    more = mig_nodes.desired_state(A100, ["3g.20gb", "1g.5gb", "1g.5gb"])
    shown = page(take_snapshot("n", inventory, more, SnapshotDetails()))
    assert samples(shown, "aliquot_drift") == [({"Hostname": "n", "kind": "missing"}, 1.0)]
    assert [value for _, value in samples(shown, "aliquot_gpu_drift")] == [1.0]


def test_holes_are_those_of_what_is_wanted() -> None:
    # Next to 3g.20gb at 0 and 1g.5gb at 4 the slices 5 to 7 are free.
    wide, small = (
        NodeSnapshot("n", plain(), wanted=frozenset({"3g.20gb"})),
        NodeSnapshot("n", plain(), wanted=frozenset({"1g.5gb"})),
    )
    assert [v for _, v in samples(page(wide), "aliquot_gpu_free_memory_slices")] == [3.0]
    assert [v for _, v in samples(page(wide), "aliquot_gpu_stranded_memory_slices")] == [3.0]
    assert [v for _, v in samples(page(small), "aliquot_gpu_stranded_memory_slices")] == [1.0]


def test_a_hostile_name_stays_one_label_value() -> None:
    inventory = plain()
    nasty = 'A100"} 1\naliquot_gpu_lost{gpu="7"} 1\\'
    gpus = (msgspec.structs.replace(inventory.gpus[0], product=nasty),)
    shown = page(NodeSnapshot("n", msgspec.structs.replace(inventory, gpus=gpus)))
    assert [labels["model_name"] for labels, _ in samples(shown, "aliquot_gpu_info")] == [nasty]
    assert len(samples(shown, "aliquot_gpu_lost")) == 1


def test_series_of_a_full_node_are_bounded() -> None:
    text = page(many()).text().decode()
    series = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert len(series) == len({line.rpartition(" ")[0] for line in series}), "a series twice"
    assert len(series) < 750


def test_the_form_is_the_askers_choice() -> None:
    shown = page(everything())
    plain_form, open_form = shown.render({}), shown.render(OPEN)
    assert plain_form.content_type.startswith("text/plain; version=0.0.4")
    assert open_form.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert open_form.body.endswith(b"# EOF\n")
    assert open_form.body.count(b"# EOF\n") == 1
    assert b"EOF" not in plain_form.body


@pytest.mark.parametrize(
    ("accepted", "small"),
    [("gzip", True), ("deflate, gzip;q=1.0", True), ("", False), ("gzip;q=0", False), ("br", False), ("GZIP", True)],
)
def test_it_is_compressed_where_that_is_taken(accepted: str, small: bool) -> None:
    answer = page(many()).render({"accept-encoding": accepted})
    assert (answer.headers == {"Content-Encoding": "gzip"}) == small
    body = gzip.decompress(answer.body) if small else answer.body
    assert b"aliquot_gpu_info" in body


def _ours(page: bytes) -> list[bytes]:
    """Return the lines without the metrics of the process itself, which grow from page to page."""
    return [line for line in page.splitlines() if not line.startswith(b"process_")]


def test_what_did_not_change_is_not_written_again() -> None:
    written: list[int] = []
    now = [many()]

    def observe() -> tuple[NodeSnapshot, ...]:
        written.append(1)
        return (now[0],)

    shown = MetricsPage(make.registry(), GpuCollector(observe), lambda: id(now[0]))
    first = shown.render({}).body
    assert _ours(shown.render({}).body) == _ours(first)
    shown.render(OPEN)
    shown.render(OPEN)
    assert len(written) == 2, "once for each form"
    now[0] = hidden()
    assert b"00000000:0A:00.0" in shown.render({}).body
    assert len(written) == 3


@pytest.mark.parametrize(("pci", "long"), [("0000:0a:00.0", "00000000:0A:00.0"), ("10000:3b:1f.7", "00010000:3B:1F.7")])
def test_addresses_are_as_nvml_writes_them(pci: str, long: str) -> None:
    assert bus_id(pci) == long


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("9837", ("127.0.0.1", 9837)),
        ("0.0.0.0:9837", ("0.0.0.0", 9837)),
        (":9837", ("0.0.0.0", 9837)),
        ("[::1]:9837", ("::1", 9837)),
        ("gpu-1:0", ("gpu-1", 0)),
    ],
)
def test_a_place_to_listen(text: str, found: tuple[str, int]) -> None:
    assert parse_listen_address(text) == found


@pytest.mark.parametrize(
    "text", ["", ":", "host", "host:", "1.2.3.4:65536", "a:b:1", "host:-1", "host:1e3", "host:\uff11"]
)
def test_no_place_to_listen(text: str) -> None:
    with pytest.raises(UsageError):
        parse_listen_address(text)


def test_a_name_or_label_that_is_not_in_the_table_cannot_be_exported() -> None:
    registry = make.registry()
    with pytest.raises(KeyError):
        make.gauge("aliquot_made_up", registry)
    with pytest.raises(ValueError, match="is a gauge in the table"):
        make.counter("aliquot_gpus", registry)
    with pytest.raises(ValueError, match="has the labels Hostname"):
        make.MetricFamilies().add("aliquot_gpus", (), 1)


def test_a_page_never_tells_a_look_that_is_over() -> None:
    # Snapshots come and go and reuse addresses in memory: data cached for one must not be used for a later one.
    metrics, inventory, between = AgentMetrics("n", "aliquot_agent", ()), plain(), SnapshotDetails(0.5)
    times = [SnapshotDetails(float(at)) for at in range(1, 50)]
    for seen in times:
        metrics._record_snapshot(NodeSnapshot("n", inventory, seen), ())
        assert [v for _, v in samples(metrics.page, "aliquot_last_look_timestamp_seconds")] == [seen.at]
        metrics._record_snapshot(NodeSnapshot("n", inventory, between), ())


class TestTheRolesOfOneProcess:
    def test_the_gpus_are_there_once_and_what_is_blocked_adds_up(self) -> None:
        shared = SharedMetrics("n")
        first, second = (AgentMetrics("n", family, (), shared) for family in ("aliquot_devices", "aliquot_agent"))
        first._record_snapshot(NodeSnapshot("n", plain(), SnapshotDetails(2.0, blocked=("HELD",))), ())
        second._record_snapshot(NodeSnapshot("n", plain(), SnapshotDetails(1.0, (), ("HELD",), 3)), ())
        assert len(samples(shared.page, "aliquot_gpu_info")) == len(plain().gpus)
        assert samples(shared.page, "aliquot_wish_blocked")[0][1] == 2
        assert samples(shared.page, "aliquot_unhealthy_devices")[0][1] == 3
        assert samples(shared.page, "aliquot_last_look_timestamp_seconds")[0][1] == 2

    def test_a_role_that_reads_nothing_hides_no_gpus(self) -> None:
        shared = SharedMetrics("n")
        AgentMetrics("n", "aliquot_devices", (), shared)
        AgentMetrics("n", "aliquot_agent", (), shared)._record_snapshot(NodeSnapshot("n", plain()), ())
        assert len(samples(shared.page, "aliquot_gpu_info")) == len(plain().gpus)
        assert samples(shared.page, "aliquot_look_success") == [({"Hostname": "n"}, 1.0)]
