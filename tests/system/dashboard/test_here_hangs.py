"""A hanging driver: the dashboard reports it, shows the last state, stays responsive, recovers and stops."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from aliquot.dashboard.local import fleet_poller, node_poller
from aliquot.foundation.driver_calls import VARIABLE
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from system.dashboard import heres
from system.dashboard.heres import HereBed
from system.dashboard.program import Program
from system.dashboard.source_contract import ANN

HANGS_S = 0.6
HANGS = "the driver has not returned from"


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[str]:
    path = f"{tmp_path}/state"
    yield path
    control.stop(path)


@pytest.fixture(params=["one node", "all nodes"])
def bed(state_dir: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[HereBed]:
    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    monkeypatch.setenv(VARIABLE, str(HANGS_S))
    monkeypatch.setattr(node_poller, "UNWATCHED_S", 0.2)
    monkeypatch.setattr(
        fleet_poller, "WAIT_S", HANGS_S / 4
    )  # the server holds this long-poll request, which is not a hang
    with heres.bed(state_dir, fleet=request.param == "all nodes") as made:
        try:
            yield made
        finally:
            made.sim.inject_fault("none")


def test_it_is_shown_and_asks_are_answered_until_the_driver_is_back(bed: HereBed) -> None:
    seen = bed.make_observation().inventory
    bed.sim.inject_fault("hang")
    began = time.monotonic()
    found = bed.preview(bed.good)
    assert [o.node for o in found.obstacles] == ["one"]
    assert HANGS in found.obstacles[0].message
    assert "Xid" in (found.obstacles[0].next_step or "")
    assert time.monotonic() - began < HANGS_S + 3
    count = threading.active_count()
    for _ in range(5):
        assert bed.preview(bed.good).blocked
    assert threading.active_count() <= count + 1, "no more threads wait for the driver"
    bed.loop.run(bed.source._poller.refresh("one", None))
    assert HANGS in bed.make_observation().error
    assert bed.make_observation().inventory == seen
    bed.sim.inject_fault("none")
    bed.eventually(lambda: not bed.preview(bed.good).blocked, "that the driver is back")
    bed.wait(lambda: not bed.make_observation().stale, "that what is shown is fresh")


def test_the_other_nodes_are_followed_meanwhile(bed: HereBed) -> None:
    if bed.source.kind == "node":
        return
    others = [f"v-{n}" for n in range(1, 7)]
    for name in others:
        control.start(bed.state_dir, "a30", name)
    bed.wait(lambda: set(others) <= set(bed.source.fleet.by_name), "the new nodes")
    for name in others[:-1]:  # more than the observer threads
        SimClient(bed.state_dir, name).inject_fault("hang")
        SimClient(bed.state_dir, name).set_mode(0, True)
    last = SimClient(bed.state_dir, others[-1])
    last.set_mode(0, True)
    bed.wait(lambda: all(HANGS in bed.make_observation(name).error for name in others[:-1]), "that they hang")
    bed.wait(lambda: bed.make_observation(others[-1]).inventory.gpus[0].mig.enabled, "the change of the last")  # type: ignore[union-attr]
    for name in others:
        SimClient(bed.state_dir, name).inject_fault("none")


def test_a_change_whose_call_hangs_says_so_and_goes_on(bed: HereBed) -> None:
    found = bed.preview(bed.good)
    bed.sim.inject_fault("hang", call="DeviceCreateGpuInstanceWithPlacement")
    lines: list[str] = []
    heard = threading.Event()

    def report(line: str) -> None:
        lines.append(line)
        if line.startswith("waiting: "):
            heard.set()

    def release() -> None:
        heard.wait(20)
        bed.sim.inject_fault("none")

    helper = threading.Thread(target=release)
    helper.start()
    done = bed.loop.run(bed.source.execute(found, ANN, report))
    helper.join()
    assert done.status == "done"
    assert any(f"waiting: {HANGS} creating a GPU instance" in line for line in lines), lines
    assert bed.profiles() == ["1g.10gb", "1g.10gb", "3g.40gb"]


@pytest.mark.parametrize("call", [None, "DeviceCreateGpuInstanceWithPlacement"], ids=["a read", "a change"])
def test_the_page_ends_although_a_call_hangs(
    state_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str | None
) -> None:
    monkeypatch.setenv(VARIABLE, str(HANGS_S))
    control.start(state_dir, "a100-sxm4-40gb", "one")
    sim = SimClient(state_dir, "one")
    sim.set_mode(0, True)
    with Program(Path(state_dir), "--sim", "one", **{VARIABLE: str(HANGS_S)}) as program:
        http = httpx2.Client(base_url=program.url, timeout=60, trust_env=False, headers={"accept": "text/html"})
        with closing(http):
            http.get(program.link)
            program.until(lambda: 'href="/nodes/one"' in http.get("/").text)
            csrf = re.search(r'name="csrf" value="([^"]+)"', http.get("/history").text)
            assert csrf is not None
            form = {"ask": "cut", "node": "one", "gpu": "0000:01:00.0", "mig": "1g.5gb*7", "csrf": csrf[1]}
            if call is None:
                sim.inject_fault("hang")
            page = http.post("/asks", data=form).headers["location"]
            if call is not None:
                sim.inject_fault("hang", call=call)
                http.post(f"{page}/apply", data={"csrf": csrf[1]})
            program.until(lambda: HANGS in http.get(page).text)
        program.signal(signal.SIGTERM)
        began = time.monotonic()
        code = program.wait()
    assert time.monotonic() - began < 15
    assert code == (0 if call is None else 130)
    assert "Traceback" not in program.reported
    sim.inject_fault("none")
