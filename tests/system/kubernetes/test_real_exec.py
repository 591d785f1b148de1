"""Commands in real containers: a real API server, a real kubelet, a real runtime. Both versions of the protocol.

The stand-in answers as observed here (``standin/execs.py``).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from aliquot.core.engine.programs import ProgramResult
from aliquot.errors import NoDriverError
from aliquot.kubernetes.client import exec as exec_module
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiUnavailableError, NotFoundError
from aliquot.kubernetes.client.exec import CommandResult, NoContainerError, UnfinishedError, exec_
from aliquot.kubernetes.kinds.kubevirt import LAUNCHER_COMMAND
from aliquot.kubernetes.virtual_machines.harvester.driver_pod import DriverPod, DriverPods, PodPrograms
from aliquot.kubernetes.virtual_machines.kubevirt import launcher_pod as launcher
from support.cluster import RealCluster
from support.cluster_real import RealServer
from system.kubernetes.realnode import RealNode, why_not

T = TypeVar("T")
UUIDS = ("b2107403-110c-45b0-af87-32cc91597b8a", "2a4cb2c6-1d33-4f5e-9b64-7fb3a2a4d0ee")
VARIABLE = f"MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4A={','.join(UUIDS)}"
SCRIPT = f"exec busybox env {VARIABLE} busybox sleep 3600"  # no shell sets a name with a hyphen, only the kubelet does
READY = "busybox mkdir -p /tmp; busybox --install -s /bin; busybox sleep 1; : > /tmp/ready; exec busybox sleep 3600"
SH = ("busybox", "sh", "-c")


class Site:
    """A cluster of one real node, named so that the API server finds its kubelet on loopback."""

    def __init__(self, server: RealServer, folder: Path, node: RealNode) -> None:
        self.node = node
        self.cluster = RealCluster(server, folder)

    def asking(self, job: Callable[[Api], Awaitable[T]]) -> T:
        async def main() -> T:
            async with Api.connect(str(self.cluster.kubeconfig())) as api:
                return await job(api)

        return asyncio.run(main())

    def run(self, *words: str, pod: str = "p", timeout_s: float = 20, stdin: bytes = b"") -> CommandResult:
        return self.asking(lambda api: exec_(api, pod, "default", "main", words, timeout_s, stdin=stdin))

    def pod(self, name: str, script: str) -> None:
        self.node.create(name, {}, script)

        def runs() -> bool:
            rows = (self.node.pod(name) or {}).get("status", {}).get("containerStatuses", [])
            return any(row.get("ready") for row in rows)

        self.node.wait(runs, 60)


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    server: RealServer = request.getfixturevalue("real_server")
    folder = Path(tempfile.mkdtemp(prefix="node-"))
    node = RealNode(server, folder, "localhost")
    site = Site(server, folder, node)
    try:
        site.pod("p", SCRIPT)
        yield site
    finally:
        node.close()
        site.cluster.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["v5", "v4"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(exec_module, "PROTOCOLS", (f"{request.param}.channel.k8s.io",))
    return str(request.param)


def test_output_errors_and_exit_status(site: Site, protocol: str) -> None:
    assert site.run("busybox", "echo", "a  b", "$c", "&d=e") == CommandResult(0, "a  b $c &d=e\n", "")
    assert site.run(*SH, "echo out; echo err >&2; exit 3") == CommandResult(3, "out\n", "err\n")
    assert site.run(*SH, "kill -9 $$").status == 137
    assert len(site.run(*SH, "busybox yes | busybox head -c 3000000").out) == 3_000_000


def test_a_program_that_is_not_there_ends_as_in_a_shell(site: Site, protocol: str) -> None:
    ended = site.run("nvidia-smi")
    assert (ended.status, ended.out) == (127, "")
    assert ended.err.startswith('exec: "nvidia-smi": executable file not found')
    assert site.run("/usr/lib/nvidia/sriov-manage", "-e", "ALL").status == 127
    assert site.run("/out").status == 126


def test_input_and_its_end(site: Site) -> None:
    data = b"line\n" * 50_000
    assert site.run("busybox", "wc", "-c", stdin=data).out.strip() == str(len(data))


def test_a_command_that_does_not_end_runs_on(site: Site, protocol: str) -> None:
    # A timeout is not a failure that may be retried: Kubernetes does not end the command.
    word = f"30{protocol[1]}"
    with pytest.raises(UnfinishedError, match="did not end within 1 s and may still run") as caught:
        site.run(*SH, f"echo begun; busybox sleep {word}", timeout_s=1)
    assert caught.value.details == ("last output: begun",)
    assert f"busybox sleep {word}" in site.run("busybox", "ps").out


def test_a_container_that_ended_and_a_pod_that_never_was(site: Site, protocol: str) -> None:
    name = f"done-{protocol}"
    site.node.create(name, {}, "exec busybox true")
    site.node.wait(lambda: (site.node.pod(name) or {}).get("status", {}).get("phase") == "Succeeded", 60)
    with pytest.raises(NoContainerError, match=r'container not found \("main"\)'):
        site.run("busybox", "true", pod=name)
    with pytest.raises(NotFoundError):
        site.run("busybox", "true", pod="never")


def test_a_launcher_s_environment(site: Site) -> None:
    # ``env`` prints the environment from the kubelet. Here the script of the first process sets it, so the test reads
    # that process.
    text = site.run("busybox", "cat", "/proc/1/environ").out
    assert launcher.devices(text) == {"mdev": {"NVIDIA_COM_NVIDIA_A2-4A": UUIDS}, "pci": {}}
    assert site.run("busybox", *LAUNCHER_COMMAND).out.startswith("PATH=")


def test_a_driver_s_pod_is_ready_when_its_file_is_there(site: Site) -> None:
    site.pod("driver", READY)
    path = "/api/v1/namespaces/default/pods/driver"
    site.cluster.must("PATCH", path, {"metadata": {"labels": {"app": "nvidia-driver-daemonset"}}})

    async def job(api: Api) -> tuple[DriverPod, ProgramResult]:
        pods = DriverPods(api, "localhost", "default")
        end = asyncio.get_running_loop().time() + 30
        while (found := await pods.find()).pod is None:
            assert found.reason == "DriverInstalling", found
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.2)
        programs = PodPrograms(api, found.pod, asyncio.get_running_loop())
        return found.pod, await asyncio.to_thread(programs.run, ["busybox", "uname"], 10)

    pod, ran = site.asking(job)
    assert ran == ProgramResult(0, "Linux\n")
    assert pod.container == "main"
    assert pod.container_id.startswith("containerd://")
    site.node.delete("driver")

    async def gone(api: Api) -> None:
        programs = PodPrograms(api, pod, asyncio.get_running_loop())
        await asyncio.to_thread(programs.run, ["busybox", "uname"], 10)

    with pytest.raises(NoDriverError, match="no command can run in pod default/driver"):
        site.asking(gone)


def test_a_kubelet_that_is_unavailable(site: Site, protocol: str) -> None:
    site.node.stop()
    try:
        with pytest.raises(ApiUnavailableError, match="the API server cannot reach the kubelet of pod default/p"):
            site.run("busybox", "true")
    finally:
        site.node.start()

    def back() -> bool:
        try:
            return site.run("busybox", "true").status == 0
        except ApiUnavailableError:
            return False

    site.node.wait(back, 30)
