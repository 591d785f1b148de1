"""Two hosts whose services can be stopped: a real systemd as process 1 in its own namespaces, and a stand-in on a real
bus.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes import until
from system.systemd.standin import Standin, Unit

BUS = """<busconfig><type>system</type><listen>unix:path={socket}</listen><policy context="default">
<allow user="*"/><allow own="*"/><allow send_type="method_call"/><allow send_type="signal"/>
<allow send_destination="*"/><allow receive_sender="*"/></policy></busconfig>"""
BOOT = Path(__file__).with_name("boot.sh")
SYSTEMD = next((p for p in ("/lib/systemd/systemd", "/usr/lib/systemd/systemd") if os.path.exists(p)), "")
PRIVATE = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", "--kill-child=KILL"]


class StandinHost:
    """A folder that looks like a host's root, with a bus."""

    name = "stand-in"

    def __init__(self, folder: Path) -> None:
        self.root = str(folder)
        self.socket = folder / "run/dbus/system_bus_socket"
        self.socket.parent.mkdir(parents=True)
        self.config = folder / "bus.conf"
        self.config.write_text(BUS.format(socket=self.socket))
        self.start_bus()
        self.standin = Standin(f"unix:path={self.socket}")

    def start_bus(self) -> None:
        self.socket.unlink(missing_ok=True)
        self.bus = subprocess.Popen(["dbus-daemon", f"--config-file={self.config}", "--nofork", "--nopidfile"])
        until(self._listens, "dbus-daemon made no socket")

    def _listens(self) -> bool:
        """Report whether the bus accepts connections. The socket file exists slightly earlier."""
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def close(self) -> None:
        self.standin.close()
        self.bus.kill()
        self.bus.wait()

    def define(self, name: str, **facts: Any) -> None:
        self.standin.units[name] = Unit(name, **facts)

    def start(self, name: str) -> None:
        unit = self.standin.units[name]
        unit.active = "failed" if unit.fails else "active"

    def state(self, name: str) -> str:
        return self.standin.units[name].active

    def lose_bus(self) -> None:
        self.bus.kill()
        self.bus.wait()

    def repair(self, name: str) -> None:
        self.standin.units[name].fails = False


class SystemdHost:
    """A real systemd and a real bus, reached through ``/proc/PID/root`` as an agent reaches its host by a mount."""

    name = "systemd"

    def __init__(self, folder: Path) -> None:
        self.units = folder / "units"
        self.units.mkdir(parents=True)
        self.group = f"aliquot-test-{os.getpid()}-{time.monotonic_ns()}"
        config = folder / "bus.conf"
        config.write_text(BUS.format(socket="/run/dbus/system_bus_socket"))
        plain = "[Unit]\nDefaultDependencies=no\n"
        daemon = f"{shutil.which('dbus-daemon')} --config-file={config} --address=systemd: --nofork --nopidfile"
        files = {
            "test.target": "[Unit]\nRequires=dbus.service\nAfter=dbus.service\n",
            "reboot.target": plain + "AllowIsolate=yes\n",
            "dbus.socket": plain + "[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
            "dbus.service": plain + f"Requires=dbus.socket\n[Service]\nExecStart={daemon} --systemd-activation\n",
        }
        for name, text in files.items():
            (self.units / name).write_text(text)
        self.log = folder / "log"
        with self.log.open("wb") as log:
            command = [*PRIVATE, "sh", str(BOOT), str(folder), self.group, SYSTEMD]
            self.unshare = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self.pid = 0
        try:
            until(self._booted, "systemd does not start")
            self.root = f"/proc/{self.pid}/root"
            until(lambda: "org.freedesktop.systemd1" in self._names(), "systemd does not come to its bus")
        except BaseException:
            print(self.log.read_text(), self._names())
            self.close()
            raise

    def _booted(self) -> bool:
        assert self.unshare.poll() is None, self.log.read_text()
        children = Path(f"/proc/{self.unshare.pid}/task/{self.unshare.pid}/children").read_text().split()
        self.pid = int(children[0]) if children else 0
        return bool(self.pid) and os.path.exists(f"/proc/{self.pid}/root/run/systemd/private")

    def _names(self) -> str:
        address = f"--bus=unix:path=/proc/{self.pid}/root/run/dbus/system_bus_socket"
        command = [
            "dbus-send",
            address,
            "--print-reply",
            "--dest=org.freedesktop.DBus",
            "/",
            "org.freedesktop.DBus.ListNames",
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        self.unshare.kill()
        self.unshare.wait()
        remove = 'mount -t cgroup2 none /mnt && find "/mnt/$0" -depth -type d -exec rmdir {} +'
        until(
            lambda: (
                subprocess.run(["unshare", "--mount", "sh", "-c", remove, self.group], capture_output=True).returncode
                == 0
            ),
            "the control group stays",
        )

    def systemctl(self, *words: str, check: bool = True) -> str:
        command = ["nsenter", "-t", str(self.pid), "-m", "-p", "systemctl", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.strip()

    def define(self, name: str, **facts: Any) -> None:
        if facts.get("masked"):
            (self.units / name).symlink_to("/dev/null")
            self.systemctl("daemon-reload")
            return
        oneshot = facts.get("type") == "oneshot"
        start = "/bin/false" if facts.get("fails") else ("/bin/true" if oneshot else "/bin/sleep 1000")
        lines = ["[Unit]", "DefaultDependencies=no"]
        if requires := facts.get("requires"):
            lines += [f"Requires={requires}", f"After={requires}"]
        lines += ["[Service]", f"Type={facts.get('type', 'simple')}", f"ExecStart={start}"]
        lines += ["RemainAfterExit=yes"] if oneshot else []
        lines += ["ExecStop=/bin/sleep 4"] if facts.get("slow_stop") else []
        lines += ["[Install]", "WantedBy=test.target", ""]
        (self.units / name).write_text("\n".join(lines))
        if facts.get("enabled"):
            wants = self.units / "test.target.wants"
            wants.mkdir(exist_ok=True)
            (wants / name).symlink_to(f"/etc/systemd/system/{name}")
        self.systemctl("daemon-reload")

    def start(self, name: str) -> None:
        self.systemctl("start", name, check=False)

    def state(self, name: str) -> str:
        return self.systemctl("is-active", name, check=False)

    def lose_bus(self) -> None:
        self.systemctl("kill", "-s", "KILL", "dbus.service")

    def repair(self, name: str) -> None:
        file = self.units / name
        file.write_text(file.read_text().replace("/bin/false", "/bin/sleep 1000"))
        self.systemctl("daemon-reload")


Host = StandinHost | SystemdHost


def _cannot_boot() -> str:
    if not SYSTEMD:
        return "no systemd is installed"
    attempt = "mount -t tmpfs x /run && mkdir /run/c && mount -t cgroup2 x /run/c && mkdir /run/c/$0 && rmdir /run/c/$0"
    command = [*PRIVATE, "sh", "-c", attempt, f"aliquot-try-{os.getpid()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no namespaces and control groups of our own: {done.stderr.strip()[:200]}"


@pytest.fixture(scope="session", autouse=True)
def _bus_daemon() -> None:
    if shutil.which("dbus-daemon") is None:
        pytest.skip("no dbus-daemon (apt-get install dbus)")


@pytest.fixture
def standin() -> Iterator[StandinHost]:
    """Start a stand-in host in a folder with a short name: a socket path has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="host-") as folder:
        host = StandinHost(Path(folder))
        yield host
        host.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[SystemdHost]:
    reason = _cannot_boot()
    if reason:
        pytest.skip(reason)
    host = SystemdHost(tmp_path / "host")
    yield host
    host.close()


@pytest.fixture(params=["standin", "systemd"])
def host(request: pytest.FixtureRequest) -> Host:
    found: Host = request.getfixturevalue(request.param)
    return found
