"""Access to a driver in its own pod: lookup, readiness check, and execution of its programs from worker threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as LateError

from aliquot.core.engine.programs import ProgramResult
from aliquot.errors import HardwareError, NoDriverError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import (
    ApiError,
    ApiUnavailableError,
    ConnectionBrokenError,
    ForbiddenError,
    ThrottledError,
    UnauthorizedError,
)
from aliquot.kubernetes.client.exec import CommandResult, UnfinishedError, exec_
from aliquot.kubernetes.client.pods import Pod
from aliquot.kubernetes.virtual_machines.harvester.driver_pods import (
    NAMESPACE,
    SELECTOR,
    DriverPod,
    DriverPodLookup,
    DriverPodReason,
    choose_pod,
)

__all__ = ["NAMESPACE", "SELECTOR", "DriverPod", "DriverPodLookup", "DriverPods", "PodPrograms"]

READY_FILE = "/tmp/ready"
"""Harvester's driver pods create this file last, when the driver is built and loaded and its daemons run."""
SRIOV_MANAGE, LOADED = "/usr/lib/nvidia/sriov-manage", "/sys/module/nvidia"
"""The signs of readiness in other driver pods: the program and the loaded module. The program may be unpacked long
before the driver is loaded.
"""
PROBE_S = 10.0
PATIENCE_S = 15.0
"""Seconds for which a command that was not started waits for an unreachable API server: a change that is half done
needs it.
"""
PAUSE_S = 1.0
MARGIN_S = 20.0
POLL_S = 1.0


class DriverPods:
    """The driver pod of a node. A ready pod is not probed again until its container restarts."""

    def __init__(self, api: Api, node: str, namespace: str = NAMESPACE) -> None:
        self._api = api
        self._node = node
        self._namespace = namespace
        self._ready_pod: DriverPod | None = None

    async def find(self) -> DriverPodLookup:
        """Find the driver pod and probe it. The result says why a pod cannot be used. Raise ApiError if pods cannot
        be listed.
        """
        fields = {"spec.nodeName": self._node}
        return await self.check_pods(await self._api.list(Pod, self._namespace, labels=SELECTOR, fields=fields))

    async def check_pods(self, pods: Sequence[Pod]) -> DriverPodLookup:
        """Choose among pods that a watch already has, and probe the chosen one."""
        found = choose_pod(pods, self._node, self._namespace)
        if found.pod is None or found.pod == self._ready_pod:
            return found
        checked = await self._check_ready(found.pod)
        self._ready_pod = checked.pod
        return checked

    async def _check_ready(self, pod: DriverPod) -> DriverPodLookup:
        try:
            ended = await self._test(pod, "-e", READY_FILE)
            if ended.status == 1 and (await self._test(pod, "-x", SRIOV_MANAGE)).status == 0:
                ended = await self._test(pod, "-e", LOADED)
        except UnauthorizedError:
            raise
        except ApiError as error:
            reason: DriverPodReason = "Forbidden" if isinstance(error, ForbiddenError) else "DriverPodAway"
            return DriverPodLookup(None, reason, error.brief, error.next_step or "")
        logs = f"kubectl -n {pod.namespace} logs {pod.name} -c {pod.container}"
        if ended.status == 0:
            return DriverPodLookup(pod)
        if ended.status != 1:
            output = (ended.err or ended.out).strip() or f"exit status {ended.status}"
            return DriverPodLookup(
                None, "DriverPodUnknown", f"the readiness of {pod.location} could not be checked: {output}", logs
            )
        text = f"the driver in {pod.location} is not installed yet: {READY_FILE} does not exist"
        return DriverPodLookup(None, "DriverInstalling", text, logs)

    async def _test(self, pod: DriverPod, *words: str) -> CommandResult:
        return await exec_(self._api, pod.name, pod.namespace, pod.container, ["test", *words], PROBE_S)


class PodPrograms:
    """The driver's programs in a pod (``engine.programs.DriverPrograms``).

    ``run`` is for threads other than the loop's, and several may call it concurrently. A command that was not started
    is tried again for PATIENCE_S while the API server is unreachable. A command that was started is never repeated.
    """

    def __init__(self, api: Api, pod: DriverPod, loop: asyncio.AbstractEventLoop) -> None:
        self._api = api
        self._pod = pod
        self._loop = loop
        self._closed = False

    @property
    def location(self) -> str:
        return self._pod.location

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult:
        """Run a command and return its result.

        Raise NoDriverError if it could not be started, HardwareError if its result is unknown.
        """
        try:
            ended = self._wait(tuple(command), timeout_s)
        except (UnfinishedError, ConnectionBrokenError) as error:
            raise HardwareError(error.brief, details=error.details, next_step=error.next_step) from error
        except ApiError as error:
            brief = f"no command can run in {self.location}: {error.brief}"
            raise NoDriverError(brief, details=error.details, next_step=error.next_step) from error
        return ProgramResult(ended.status, ended.out, ended.err)

    def _wait(self, command: tuple[str, ...], timeout_s: float) -> CommandResult:
        end = time.monotonic() + timeout_s + PATIENCE_S + MARGIN_S
        future = self._submit(command, timeout_s)
        while True:
            try:
                return future.result(POLL_S)
            except LateError:
                if not self._loop.is_running():
                    raise self._shutdown_error() from None
                if time.monotonic() > end:
                    future.cancel()
                    raise HardwareError(f"no answer from {self.location} for {timeout_s + PATIENCE_S:g} s") from None
            except CancelledError:
                raise self._shutdown_error() from None

    def _submit(self, command: tuple[str, ...], timeout_s: float) -> Future[CommandResult]:
        if self._closed:
            raise self._shutdown_error()
        coroutine = self._run_command(command, timeout_s)
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop is closed
            coroutine.close()
            raise self._shutdown_error() from error

    def _shutdown_error(self) -> NoDriverError:
        """Return the error for commands after the end of the event loop, with which the agent ends."""
        self._closed = True
        return NoDriverError(f"no command can run in {self.location} any more: the agent is stopping")

    async def _run_command(self, command: tuple[str, ...], timeout_s: float) -> CommandResult:
        pod, end = self._pod, self._loop.time() + PATIENCE_S
        while True:
            try:
                return await exec_(self._api, pod.name, pod.namespace, pod.container, command, timeout_s)
            except ConnectionBrokenError:
                raise
            except (ApiUnavailableError, ThrottledError):
                if self._loop.time() + PAUSE_S > end:
                    raise
                await asyncio.sleep(PAUSE_S)
