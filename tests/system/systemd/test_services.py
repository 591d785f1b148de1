"""Stop and start of the host's services, on a real systemd and on a stand-in, over a real bus."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from aliquot.hardware.systemd.errors import NoSystemdError, ServicesError
from aliquot.hardware.systemd.services import Services
from aliquot.hardware.systemd.units import StoppedServices, StoppedUnit
from support.processes import until
from system.systemd.conftest import Host, StandinHost, SystemdHost


class Notes:
    """The records, with the state of the units when each was written."""

    def __init__(self, host: Host, *watched: str) -> None:
        self.host, self.watched = host, watched
        self.records: list[StoppedServices] = []
        self.states: list[str] = []

    def __call__(self, stopped: StoppedServices) -> None:
        self.records.append(msgspec.json.decode(msgspec.json.encode(stopped), type=StoppedServices))
        self.states += [self.host.state(name) for name in self.watched]


def stop(host: Host, names: Sequence[str], note: Notes | None = None, *, seconds: float = 10.0) -> StoppedServices:
    return asyncio.run(Services(host.root, stop_s=seconds).stop(names, note or Notes(host)))


def start(host: Host, stopped: StoppedServices, *, seconds: float = 10.0) -> tuple[str, ...]:
    return asyncio.run(Services(host.root, start_s=seconds).start(stopped))


def never(stopped: StoppedServices) -> None:
    pytest.fail(f"nothing should stop: {stopped}")


def running(host: Host, name: str, **facts: object) -> str:
    host.define(name, **facts)
    host.start(name)
    assert host.state(name) == "active"
    return name


def test_what_runs_stops_is_recorded_first_and_starts_again(host: Host) -> None:
    running(host, "nvsm.service", enabled=True)
    running(host, "by-hand.service")
    running(host, "nv_peer_mem.service", type="oneshot")
    host.define("idle.service", enabled=True)
    names = ["nvsm.service", "by-hand.service", "nv_peer_mem.service", "idle.service", "missing.service"]
    note = Notes(host, *names[:3])
    stopped = stop(host, names, note)
    assert stopped.names == ("nvsm.service", "by-hand.service", "nv_peer_mem.service")
    assert note.records == [stopped]
    assert note.states == ["active"] * 3
    assert [host.state(name) for name in names[:4]] == ["inactive"] * 4
    assert start(host, stopped) == ()
    assert [host.state(name) for name in names[:4]] == ["active"] * 3 + ["inactive"]


def test_nothing_runs_nothing_is_recorded(host: Host) -> None:
    host.define("idle.service", enabled=True)
    note = Notes(host)
    assert stop(host, ["idle.service", "missing.service"], note) == StoppedServices()
    assert note.records == []


def test_services_that_stop_with_one_start_again_too(host: Host) -> None:
    running(host, "nvidia-dcgm.service")
    running(host, "site-exporter.service", requires="nvidia-dcgm.service")
    stopped = stop(host, ["nvidia-dcgm.service"])
    assert stopped.names == ("site-exporter.service", "nvidia-dcgm.service")
    assert host.state("site-exporter.service") == "inactive"
    start(host, stopped)
    assert host.state("site-exporter.service") == "active"


def test_what_had_failed_is_started_and_may_fail_again(host: Host) -> None:
    host.define("broken.service", enabled=True, fails=True, type="exec")
    host.define("broken-by-hand.service", fails=True, type="exec")
    for name in ("broken.service", "broken-by-hand.service"):
        host.start(name)
        assert host.state(name) == "failed"
    stopped = stop(host, ["broken.service", "broken-by-hand.service"])
    assert stopped == StoppedServices((StoppedUnit("broken.service", failed=True),))
    start(host, stopped)
    host.repair("broken.service")
    assert start(host, stopped) == ()
    assert host.state("broken.service") == "active"


def test_a_service_that_does_not_stop_is_named_and_the_rest_can_start(host: Host) -> None:
    running(host, "first.service")
    running(host, "stubborn.service", slow_stop=True)
    running(host, "last.service")
    note = Notes(host)
    with pytest.raises(
        ServicesError, match=r"stubborn\.service of the host does not stop: it did not stop within 0\.5 s"
    ):
        stop(host, ["first.service", "stubborn.service", "last.service"], note, seconds=0.5)
    assert host.state("first.service") == "inactive"
    assert host.state("last.service") == "active"
    assert note.records[0].names == ("first.service", "stubborn.service", "last.service")
    start(host, note.records[0])
    assert host.state("first.service") == "active"
    assert host.state("stubborn.service") == "active"


def test_failures_to_start_are_joined_and_stop_no_other_unit(host: Host) -> None:
    for name in ("a.service", "b.service"):
        host.define(name, fails=True, type="oneshot")
    host.define("masked.service", masked=True)
    host.define("good.service")
    record = StoppedServices(
        tuple(StoppedUnit(n) for n in ("good.service", "a.service", "gone.service", "masked.service", "b.service"))
    )
    with pytest.raises(ServicesError) as caught:
        start(host, record)
    assert caught.value.brief == "3 services of the host did not start again (5 were stopped)"
    assert [line.partition(":")[0] for line in caught.value.details] == ["b.service", "masked.service", "a.service"]
    assert caught.value.remaining == ("a.service", "masked.service", "b.service")
    assert "is masked" in caught.value.details[1]
    assert host.state("good.service") == "active"


def test_a_record_of_before_is_kept(host: Host) -> None:
    # The agent died after it had stopped one of two units: the next run must not forget that unit.
    host.define("stopped.service", enabled=True)
    running(host, "other.service")
    earlier = StoppedServices((StoppedUnit("stopped.service"),))
    note = Notes(host)
    stopped = asyncio.run(Services(host.root).stop(["stopped.service", "other.service"], note, earlier))
    assert stopped.names == ("stopped.service", "other.service")
    assert note.records == [stopped]
    start(host, stopped)
    assert host.state("stopped.service") == "active"


def test_nothing_stops_without_a_record(host: Host) -> None:
    running(host, "a.service")

    def full(stopped: StoppedServices) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        asyncio.run(Services(host.root).stop(["a.service"], full))
    assert host.state("a.service") == "active"


def test_the_bus_that_disappears_during_a_stop_is_reported(host: Host) -> None:
    running(host, "stubborn.service", slow_stop=True)
    note = Notes(host)
    timer = threading.Timer(0.5, host.lose_bus)
    timer.start()
    with pytest.raises(ServicesError, match="the bus went away"):
        stop(host, ["stubborn.service"], note, seconds=20.0)
    timer.join()
    assert note.records[0].names == ("stubborn.service",)


def test_a_bus_that_restarts_during_a_start_is_found_again(systemd: SystemdHost) -> None:
    for name in ("a.service", "b.service"):
        running(systemd, name)
    stopped = stop(systemd, ["a.service", "b.service"])
    slow = systemd.units / "b.service"
    slow.write_text(slow.read_text().replace("[Service]", "[Service]\nExecStartPre=/bin/sleep 3"))
    systemd.systemctl("daemon-reload")
    timer = threading.Timer(0.5, systemd.lose_bus)
    timer.start()
    assert start(systemd, stopped) == ()
    timer.join()
    assert [systemd.state(n) for n in stopped.names] == ["active", "active"]


def test_a_unit_that_restarts_itself_is_running(systemd: SystemdHost) -> None:
    # Between two attempts the unit is ``activating`` and would start again in the middle of the change.
    systemd.define("flapping.service", fails=True)
    file = systemd.units / "flapping.service"
    file.write_text(file.read_text().replace("[Service]", "[Service]\nRestart=always\nRestartSec=60"))
    systemd.systemctl("daemon-reload")
    systemd.start("flapping.service")
    until(lambda: systemd.state("flapping.service") == "activating", "it does not restart")
    assert stop(systemd, ["flapping.service"]).names == ("flapping.service",)
    assert systemd.state("flapping.service") in ("inactive", "failed")


def test_a_limit_on_starts_is_lifted(systemd: SystemdHost) -> None:
    running(systemd, "often.service", enabled=True)  # otherwise systemd forgets the unit and its count
    file = systemd.units / "often.service"
    file.write_text(file.read_text().replace("[Unit]", "[Unit]\nStartLimitBurst=2\nStartLimitIntervalSec=600"))
    systemd.systemctl("daemon-reload")
    for _ in range(4):
        start(systemd, stop(systemd, ["often.service"]))
    assert systemd.state("often.service") == "active"


def test_a_unit_that_is_restarting_counts_as_running(systemd: SystemdHost) -> None:
    running(systemd, "slow.service")
    file = systemd.units / "slow.service"
    file.write_text(file.read_text().replace("[Install]", "ExecStop=/bin/sleep 3\n[Install]"))
    systemd.systemctl("daemon-reload")
    systemd.systemctl("restart", "--no-block", "slow.service")
    until(lambda: systemd.state("slow.service") == "deactivating", "it does not go down")
    stopped = stop(systemd, ["slow.service"])
    assert stopped.names == ("slow.service",)
    assert systemd.state("slow.service") in ("inactive", "failed")


def test_lost_signals_cost_time_alone(standin: StandinHost) -> None:
    running(standin, "a.service")
    standin.standin.silent = True
    stopped = stop(standin, ["a.service"])
    assert start(standin, stopped) == ()
    assert standin.state("a.service") == "active"


def test_a_systemd_that_does_not_answer_is_reported(standin: StandinHost, monkeypatch: pytest.MonkeyPatch) -> None:
    running(standin, "a.service")
    standin.standin.deaf = True
    monkeypatch.setattr("aliquot.hardware.systemd.services.REPLY_S", 0.3)
    with pytest.raises(ServicesError, match="no answer to"):
        stop(standin, ["a.service"])


def test_a_systemd_that_refuses_is_reported(standin: StandinHost) -> None:
    running(standin, "a.service")
    standin.standin.forbidden = True
    with pytest.raises(ServicesError, match=r"a\.service of the host does not stop: Permission denied"):
        stop(standin, ["a.service"])
    with pytest.raises(ServicesError) as caught:
        start(standin, StoppedServices((StoppedUnit("a.service"),)))
    assert caught.value.details == ("a.service: Permission denied",)


# -- hosts without systemd


def test_a_host_without_systemd_has_nothing_to_stop(tmp_path: Path) -> None:
    # Talos has /run but no bus. mig-manager fails there before it does anything.
    (tmp_path / "run").mkdir()
    services = Services(str(tmp_path))
    assert asyncio.run(services.stop(["nvsm.service"], never)) == StoppedServices()
    with pytest.raises(NoSystemdError, match=r"nvsm\.service"):
        asyncio.run(services.start(StoppedServices((StoppedUnit("nvsm.service"),))))


def test_nothing_asked_needs_no_host(tmp_path: Path) -> None:
    services = Services(str(tmp_path / "nowhere"))
    assert asyncio.run(services.stop([], never)) == StoppedServices()
    assert asyncio.run(services.start(StoppedServices())) == ()


def test_a_mount_that_is_missing_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NoSystemdError, match="nothing of the host is mounted"):
        asyncio.run(Services(str(tmp_path)).stop(["nvsm.service"], never))


def test_systemd_without_a_bus_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    with pytest.raises(NoSystemdError, match="its bus has no socket"):
        asyncio.run(Services(str(tmp_path)).stop(["nvsm.service"], never))


def test_an_unserved_socket_is_reported(standin: StandinHost) -> None:
    standin.lose_bus()
    with pytest.raises(NoSystemdError, match="cannot be used: Connection refused"):
        stop(standin, ["a.service"])


@pytest.mark.parametrize("booted", [False, True])
def test_a_bus_without_systemd(standin: StandinHost, booted: bool) -> None:
    # A host with another init has nothing to stop. A systemd that is not on its bus is an error.
    standin.standin.close()
    if not booted:
        assert stop(standin, ["a.service"]) == StoppedServices()
        return
    (Path(standin.root) / "run/systemd/system").mkdir(parents=True)
    with pytest.raises(ServicesError, match=r"org\.freedesktop\.systemd1"):
        stop(standin, ["a.service"])
