"""The DRA driver as kubelet sees it: found in a directory, registered, asked over real gRPC."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpclib.exceptions import GRPCError

from aliquot.errors import AliquotError, BlockedError
from aliquot.kubernetes.device_plugin.grpc_sockets import PATH_LIMIT, NoReplyError
from aliquot.kubernetes.dra.plugin import services
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference, DeviceState, PreparedClaim, PreparedDevice
from aliquot.kubernetes.dra.plugin.endpoint import DriverEndpoint, EndpointPaths
from aliquot.kubernetes.dra.plugin.errors import OtherDriverError
from aliquot.kubernetes.dra.plugin.services import SERVICES
from support.drakubelet import DraKubelet

DRIVER = "gpu.aliquot.dev"
TRAIN, BAD = ClaimReference("u1", "team", "train"), ClaimReference("u2", "team", "bad")
DEVICE = PreparedDevice(("r/sub",), "n1-aliquot", "gpu-0-mig-1g5gb-19-0", ("k8s.gpu.aliquot.dev/claim=u1-x",))


class Claims:
    """Prepares every claim but ``bad``, and forgets to answer for the uids in ``silent``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[ClaimReference, ...]]] = []
        self.silent: set[str] = set()

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, PreparedClaim | AliquotError]:
        self.calls.append(("prepare", tuple(claims)))
        bad = BlockedError("claim team/bad: held by pod a/b", next_step="kubectl get pods -n a")
        return {
            c.uid: bad if c.name == "bad" else PreparedClaim(c.uid, (DEVICE,))
            for c in claims
            if c.uid not in self.silent
        }

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, AliquotError | None]:
        self.calls.append(("unprepare", tuple(claims)))
        return {c.uid: AliquotError("disk full", next_step="df") if c.name == "bad" else None for c in claims}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a directory with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="dra-") as made:
        yield Path(made)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


@asynccontextmanager
async def served(folder: Path, claims: Any = None, **more: Any) -> AsyncIterator[DriverEndpoint]:
    """Run the endpoint below a kubelet's directory."""
    (folder / "plugins_registry").mkdir(exist_ok=True)
    endpoint = DriverEndpoint(DRIVER, EndpointPaths.below(str(folder), DRIVER, **more), 0.02)
    await endpoint.start(claims or Claims())
    try:
        yield endpoint
    finally:
        await endpoint.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.01)


def test_kubelet_registers_it_and_prepares_claims(folder: Path) -> None:
    async def test() -> None:
        claims, kubelet = Claims(), DraKubelet(folder)
        async with served(folder, claims) as endpoint:
            assert "not asked" in endpoint.problem
            found = (await kubelet.look())[DRIVER]
            assert (found.type, tuple(found.supported_versions)) == ("DRAPlugin", SERVICES)
            assert endpoint.problem == ""
            answers = await kubelet.prepare(DRIVER, [TRAIN, BAD, TRAIN])
            assert claims.calls == [("prepare", (TRAIN, BAD))]
            (device,) = answers["u1"].devices
            assert (list(device.request_names), device.pool_name) == (["r/sub"], "n1-aliquot")
            assert (device.device_name, tuple(device.cdi_device_ids)) == (DEVICE.device, DEVICE.cdi_ids)
            assert not device.HasField("share_id")
            assert answers["u1"].error == ""
            assert answers["u2"].error == "claim team/bad: held by pod a/b | next: kubectl get pods -n a"
            ended = await kubelet.unprepare(DRIVER, [TRAIN, BAD])
            assert (ended["u1"].error, ended["u2"].error) == ("", "disk full | next: df")
        assert not os.listdir(folder / "plugins_registry")

    run(test)


def test_an_older_kubelet_gets_the_same_answers(folder: Path) -> None:
    async def test() -> None:
        kubelet = DraKubelet(folder)
        async with served(folder):
            await kubelet.look()
            newer = await kubelet.prepare(DRIVER, [TRAIN], "v1.DRAPlugin")
            assert await kubelet.prepare(DRIVER, [TRAIN], "v1beta1.DRAPlugin") == newer
            assert (await kubelet.unprepare(DRIVER, [TRAIN], "v1beta1.DRAPlugin"))["u1"].error == ""
            with pytest.raises(GRPCError, match="unknown method"):
                await kubelet.prepare(DRIVER, [TRAIN], "v2.DRAPlugin")

    run(test)


def test_every_claim_of_a_call_gets_an_answer(folder: Path) -> None:
    async def test() -> None:
        claims, kubelet = Claims(), DraKubelet(folder)
        claims.silent = {"u1"}
        async with served(folder, claims):
            await kubelet.look()
            answers = await kubelet.prepare(DRIVER, [TRAIN, BAD])
            assert set(answers) == {"u1", "u2"}
            assert answers["u1"].error.startswith("internal error")
            assert await kubelet.prepare(DRIVER, []) == {}

    run(test)


def test_a_call_that_hangs_is_answered_before_kubelet_gives_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "CLAIM_TIMEOUT_S", 0.05)

    class Hanging(Claims):
        async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, PreparedClaim | AliquotError]:
            await asyncio.sleep(0.3)
            return await super().prepare(claims)

    async def test() -> None:
        claims, kubelet = Hanging(), DraKubelet(folder)
        async with served(folder, claims):
            await kubelet.look()
            assert "did not answer" in (await kubelet.prepare(DRIVER, [TRAIN]))["u1"].error
            await until(lambda: bool(claims.calls))  # the work goes on

    run(test)


def test_a_long_error_fits_an_event(folder: Path) -> None:
    class Verbose(Claims):
        async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, PreparedClaim | AliquotError]:
            return {each.uid: BlockedError("x" * 5000) for each in claims}

    async def test() -> None:
        kubelet = DraKubelet(folder)
        async with served(folder, Verbose()):
            await kubelet.look()
            assert len((await kubelet.prepare(DRIVER, [TRAIN]))["u1"].error) == services.LONGEST_ERROR

    run(test)


def test_the_reason_of_a_refusal_is_the_problem(folder: Path) -> None:
    async def test() -> None:
        kubelet = DraKubelet(folder)
        async with served(folder) as endpoint:
            await kubelet.look(refusal="name taken")
            assert endpoint.problem == f"kubelet refused the DRA driver {DRIVER}: name taken"
            await kubelet.look()
            assert endpoint.problem == ""

    run(test)


def test_sockets_that_kubelet_deletes_come_back(folder: Path) -> None:
    async def test() -> None:
        kubelet = DraKubelet(folder)
        async with served(folder) as endpoint:
            for path in (endpoint._paths.registration, endpoint._paths.claims):
                os.unlink(path)
            await until(lambda: all(map(os.path.exists, (endpoint._paths.registration, endpoint._paths.claims))))
            await kubelet.look()
            assert (await kubelet.prepare(DRIVER, [TRAIN]))["u1"].error == ""

    run(test)


def test_it_waits_for_a_kubelet_that_is_installed_later(folder: Path) -> None:
    async def test() -> None:
        later = folder / "later"
        endpoint = DriverEndpoint(DRIVER, EndpointPaths.below(str(later), DRIVER), 0.02)
        await endpoint.start(Claims())
        await until(lambda: "plugins_registry" in endpoint.problem)
        (later / "plugins_registry").mkdir()
        await until(lambda: os.path.exists(endpoint._paths.registration))
        assert DRIVER in await DraKubelet(later).look()
        await endpoint.close()

    run(test)


@pytest.mark.parametrize("uid", ["", "0001"])
def test_a_second_driver_of_the_name_is_refused_while_the_first_lives(folder: Path, uid: str) -> None:
    async def test() -> None:
        paths = EndpointPaths.below(str(folder), DRIVER)
        async with served(folder, pod_uid=uid) as first:
            second = DriverEndpoint(DRIVER, paths)
            with pytest.raises(OtherDriverError, match=DRIVER) as caught:
                await second.start(Claims())
            assert first._paths.registration in caught.value.brief
            assert os.path.exists(first._paths.claims)
            other = DriverEndpoint("gpu.other.dev", EndpointPaths.below(str(folder), "gpu.other.dev"))
            await other.start(Claims())
            assert set(await DraKubelet(folder).look()) == {DRIVER, "gpu.other.dev"}
            await other.close()
        await second.start(Claims())
        assert DRIVER in await DraKubelet(folder).look()
        await second.close()

    run(test)


def test_the_socket_of_a_killed_driver_is_replaced(folder: Path) -> None:
    async def test() -> None:
        async with served(folder) as first:
            pass
        Path(first._paths.registration).touch()
        Path(first._paths.claims).touch()
        async with served(folder):
            assert DRIVER in await DraKubelet(folder).look()

    run(test)


def test_health_is_sent_at_once_and_again(folder: Path) -> None:
    async def test() -> None:
        kubelet, heard = DraKubelet(folder), []
        async with served(folder) as endpoint:
            endpoint.health._repeat_s = 0.05
            endpoint.health.publish({("p", "gpu-0"): DeviceState(True)})
            await kubelet.look()

            def hear(devices: list[Any]) -> bool:
                heard.append([(d.device.pool_name, d.device.device_name, d.health, d.message) for d in devices])
                if len(heard) == 2:
                    endpoint.health.publish({("p", "gpu-0"): DeviceState(False, "XID 79: the GPU fell off the bus")})
                return bool(heard[-1][0][2] == 2)

            await kubelet.health(DRIVER, hear)
        well = [("p", "gpu-0", 1, "")]
        assert heard[:2] == [well, well]
        assert heard[-1] == [("p", "gpu-0", 2, "XID 79: the GPU fell off the bus")]

    run(test)


def test_a_long_directory_gets_short_names() -> None:
    deep = "/var/lib/" + "x" * 40
    one, two = (EndpointPaths.below(deep, DRIVER, f"0d9b5fbf-1c6c-4b9b-8f63-3d4f0d0f6a1{n}") for n in (1, 2))
    assert one.registration.startswith(f"{deep}/plugins_registry/dra-")
    assert one.registration.endswith("-reg.sock")
    assert one.registration != two.registration
    assert len(one.registration) <= PATH_LIMIT


def test_a_call_to_a_driver_that_ended_has_no_reply(folder: Path) -> None:
    async def test() -> None:
        kubelet = DraKubelet(folder)
        async with served(folder):
            await kubelet.look()
        with pytest.raises(NoReplyError):
            await kubelet.prepare(DRIVER, [TRAIN])

    run(test)
