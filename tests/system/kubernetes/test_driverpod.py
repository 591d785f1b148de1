"""The driver in a pod: readiness that is really checked, and its programs used from a worker thread.

The simulated container runs the simulated node's own nvidia-smi and sriov-manage.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from aliquot.core.engine.programs import DriverPrograms, ProgramResult
from aliquot.errors import HardwareError, NoDriverError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.virtual_machines.harvester import driver_pod as driverpod
from aliquot.kubernetes.virtual_machines.harvester.driver_pod import DriverPod, DriverPodLookup, DriverPods, PodPrograms
from aliquot.sim import lifecycle as control
from support.cluster import StandinCluster
from support.driverpods import CONTAINER, NAMESPACE, below, driver_pod
from support.standin.control import Asked
from support.standin.execs import Command, Container
from support.standin.execs import Ran as CommandOutput

T = TypeVar("T")
NAME = "nvidia-driver-n1"
POD = DriverPod(NAMESPACE, NAME, CONTAINER)
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}"


@pytest.fixture
def cluster(standin_cluster: StandinCluster) -> StandinCluster:
    """Build a node with a driver's pod."""
    standin_cluster.namespace(NAMESPACE)
    standin_cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    standin_cluster.apply(driver_pod("n1"))
    return standin_cluster


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Path]:
    """Return the driver's directory of a simulated node with an A2."""
    state = str(tmp_path / "sim")
    control.start(state, "a2:mdev", "machine", "none")
    yield Path(control.folder(state, "machine")) / "driver"
    control.stop(state, "machine")


def asking(cluster: StandinCluster, job: Callable[[Api], Awaitable[T]]) -> T:
    async def main() -> T:
        async with Api.connect(str(cluster.kubeconfig())) as api:
            return await job(api)

    return asyncio.run(main())


def found(cluster: StandinCluster, *containers: Container) -> DriverPodLookup:
    """Return the lookup when these containers answer, one after the other."""
    cluster.standin.execs.play(NAME, containers[0], NAMESPACE)
    return asking(cluster, lambda api: DriverPods(api, "n1").find())


def used(cluster: StandinCluster, job: Callable[[DriverPrograms], T], pod: DriverPod = POD) -> T:
    """Run ``job`` on a worker thread, as the agent does."""

    async def main(api: Api) -> T:
        return await asyncio.to_thread(job, PodPrograms(api, pod, asyncio.get_running_loop()))

    return asking(cluster, main)


def asked(cluster: StandinCluster) -> list[tuple[str, ...]]:
    return [command.words for command in cluster.standin.execs.asked]


# -- readiness


def test_a_driver_that_is_ready(cluster: StandinCluster, tmp_path: Path) -> None:
    assert found(cluster, below(tmp_path)).pod is not None
    assert asked(cluster) == [("test", "-e", "/tmp/ready")]


def test_a_driver_that_is_still_being_installed_is_not_used(cluster: StandinCluster, driver: Path) -> None:
    # The original's check is ``file /tmp/ready``, which succeeds for a missing file. The programs are unpacked long
    # before the module is loaded, so they alone prove nothing.
    answer = found(cluster, below(driver, files=()))
    assert (answer.pod, answer.reason) == (None, "DriverInstalling")
    assert "/tmp/ready does not exist" in answer.message
    assert answer.next_step == f"kubectl -n {NAMESPACE} logs {NAME} -c {CONTAINER}"
    assert [words[1:] for words in asked(cluster)] == [
        ("-e", "/tmp/ready"),
        ("-x", "/usr/lib/nvidia/sriov-manage"),
        ("-e", "/sys/module/nvidia"),
    ]


def test_another_driver_s_pod_is_ready_when_program_and_module_are_there(cluster: StandinCluster, driver: Path) -> None:
    assert found(cluster, below(driver, files=("/sys/module/nvidia",))).pod is not None


def test_what_was_ready_is_asked_again_only_after_its_container_restarted(
    cluster: StandinCluster, tmp_path: Path
) -> None:
    cluster.standin.execs.play(NAME, below(tmp_path), NAMESPACE)

    async def job(api: Api) -> None:
        pods = DriverPods(api, "n1")
        assert (await pods.find()).pod
        assert (await pods.find()).pod
        assert len(asked(cluster)) == 1
        cluster.standin.execs.play(NAME, below(tmp_path, files=()), NAMESPACE)
        body = driver_pod("n1")
        body["status"]["containerStatuses"][0] |= {"containerID": "containerd://2", "restartCount": 1}
        await asyncio.to_thread(cluster.apply, body)
        assert (await pods.find()).reason == "DriverInstalling"
        cluster.standin.execs.play(NAME, below(tmp_path), NAMESPACE)
        assert (await pods.find()).pod

    asking(cluster, job)


def test_a_pod_that_cannot_be_asked_says_why(cluster: StandinCluster) -> None:
    no_test = 'unable to start container process: exec: "test": executable file not found in $PATH: unknown'
    answer = found(cluster, lambda c: CommandOutput(refusal=no_test))
    assert answer.reason == "DriverPodUnknown"
    assert 'exec: "test": executable file not found' in answer.message
    cluster.standin.execs.stop(NAME, NAMESPACE)
    answer = asking(cluster, lambda api: DriverPods(api, "n1").find())
    assert answer.reason == "DriverPodAway"
    assert "no running container of that name" in answer.message


def test_a_missing_right_is_named(cluster: StandinCluster) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    cluster.must("POST", f"{rbac}/clusterroles", {"metadata": {"name": "a"}, "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"}
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": "default"}
    body = {"metadata": {"name": "a"}, "roleRef": ref, "subjects": [subject]}
    cluster.must("POST", f"{rbac}/clusterrolebindings", body)

    async def main() -> DriverPodLookup:
        async with Api.connect(str(cluster.kubeconfig(serviceaccount="agent"))) as api:
            return await DriverPods(api, "n1").find()

    answer = asyncio.run(main())
    assert answer.reason == "Forbidden"
    assert "lacks permission to get pods/exec nvidia-driver-n1 in namespace harvester-system" in answer.message
    assert answer.next_step.startswith(f"kubectl auth can-i get pods/{NAME} --subresource=exec -n {NAMESPACE}")


# -- programs


def test_the_driver_s_own_programs_answer(cluster: StandinCluster, driver: Path) -> None:
    cluster.standin.execs.play(NAME, below(driver), NAMESPACE)

    def job(programs: DriverPrograms) -> tuple[ProgramResult, ProgramResult, ProgramResult]:
        assert programs.location == f"pod {NAMESPACE}/{NAME}"
        listed = programs.run(["nvidia-smi", "-L"], 20)
        pci = programs.run(["nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"], 20).out.strip()
        address = pci.lower().removeprefix("0000")
        return listed, programs.run(["/usr/lib/nvidia/sriov-manage", "-e", address], 60), programs.run(["nosuch"], 5)

    listed, switched, missing = used(cluster, job)
    assert listed.status == 0
    assert "NVIDIA A2" in listed.out
    assert switched.status == 0, switched.output
    assert missing.status == 127


def test_a_pod_that_is_gone_is_no_driver(cluster: StandinCluster) -> None:
    cluster.must("DELETE", f"{PATH}?gracePeriodSeconds=0")
    with pytest.raises(NoDriverError, match=f"no command can run in pod {NAMESPACE}/{NAME}: pods .* not found"):
        used(cluster, lambda programs: programs.run(["nvidia-smi"], 5))


def test_a_program_that_hangs_is_the_hardware_s_fault_and_takes_no_longer_than_allowed(
    cluster: StandinCluster,
) -> None:
    def hang(_: Command) -> CommandOutput:
        time.sleep(3)
        return CommandOutput()

    cluster.standin.execs.play(NAME, hang, NAMESPACE)
    started = time.monotonic()
    with pytest.raises(HardwareError, match=r"exit status of nvidia-smi in pod .* is unknown: .*within 0\.3 s"):
        used(cluster, lambda programs: programs.run(["nvidia-smi"], 0.3))
    assert time.monotonic() - started < 2.5


def test_a_connection_lost_half_way_is_not_tried_again(cluster: StandinCluster) -> None:
    # The agent observes whether virtual functions were switched and does not guess: the second try would hit another
    # state.
    times: list[Command] = []

    def cut(command: Command) -> CommandOutput:
        times.append(command)
        raise ConnectionError

    cluster.standin.execs.play(NAME, cut, NAMESPACE)
    with pytest.raises(HardwareError, match="the connection closed before the command ended"):
        used(cluster, lambda programs: programs.run(["sriov-manage", "-e", "ALL"], 5))
    assert len(times) == 1


def test_a_connection_lost_while_opening_is_not_tried_again_either(cluster: StandinCluster) -> None:
    # The request was sent, so the command may be running.
    cluster.standin.execs.play(NAME, lambda c: CommandOutput(), NAMESPACE)
    tries: list[str] = []

    def gate(request: Asked) -> None:
        if "/exec" in request.path and request.when == "after":
            tries.append(request.path)
            raise ConnectionError

    cluster.standin.control.gate = gate
    with pytest.raises(HardwareError, match="did not answer"):
        used(cluster, lambda programs: programs.run(["nvidia-smi"], 5))
    assert len(tries) == 1


def test_a_command_that_was_not_begun_waits_for_the_api_server(
    cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driverpod, "PAUSE_S", 0.1)
    cluster.standin.execs.play(NAME, lambda c: CommandOutput(0, b"done"), NAMESPACE)
    cluster.standin.stop_listening()
    threading.Timer(0.5, cluster.standin.listen_again).start()
    assert used(cluster, lambda programs: programs.run(["nvidia-smi"], 5)).out == "done"


def test_an_api_server_that_stays_unavailable_is_no_driver(
    cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driverpod, "PAUSE_S", 0.1)
    monkeypatch.setattr(driverpod, "PATIENCE_S", 0.5)
    with cluster.unavailable(), pytest.raises(NoDriverError, match="Connection refused"):
        used(cluster, lambda programs: programs.run(["nvidia-smi"], 5))


def test_a_loop_that_stands_still_keeps_no_worker_waiting(cluster: StandinCluster) -> None:
    begun, raised = threading.Event(), list[BaseException]()

    def hang(_: Command) -> CommandOutput:
        begun.set()
        time.sleep(1)
        return CommandOutput()

    cluster.standin.execs.play(NAME, hang, NAMESPACE)
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()
    client = Api.connect(str(cluster.kubeconfig()))

    def work() -> None:
        with pytest.raises(NoDriverError, match="any more: the agent is stopping") as caught:
            PodPrograms(client, POD, loop).run(["nvidia-smi"], 60)
        raised.append(caught.value)

    worker = threading.Thread(target=work)
    worker.start()
    assert begun.wait(5)
    loop.call_soon_threadsafe(loop.stop)
    running.join(5)
    worker.join(5)
    assert len(raised) == 1
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), client.aclose(), return_exceptions=True))
    loop.close()


def test_an_agent_that_ends_lets_its_worker_go(cluster: StandinCluster) -> None:
    # The loop ends while a thread waits for a command, and the thread is notified at once.
    begun, raised = threading.Event(), list[BaseException]()

    def hang(_: Command) -> CommandOutput:
        begun.set()
        time.sleep(1)
        return CommandOutput()

    cluster.standin.execs.play(NAME, hang, NAMESPACE)

    def work(programs: DriverPrograms) -> None:
        try:
            programs.run(["nvidia-smi"], 60)
        except NoDriverError as error:
            raised.append(error)
            try:
                programs.run(["nvidia-smi"], 60)
            except NoDriverError as again:
                raised.append(again)

    threads: list[threading.Thread] = []

    async def main(api: Api) -> None:
        programs = PodPrograms(api, POD, asyncio.get_running_loop())
        threads.append(threading.Thread(target=work, args=(programs,)))
        threads[0].start()
        await asyncio.to_thread(begun.wait, 5)

    asking(cluster, main)
    threads[0].join(10)
    assert not threads[0].is_alive()
    assert [str(error) for error in raised] == [
        f"no command can run in pod {NAMESPACE}/{NAME} any more: the agent is stopping"
    ] * 2
