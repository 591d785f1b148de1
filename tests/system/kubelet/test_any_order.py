"""Events in any order: in the end the kubelet has what was offered last."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from system.kubelet.conftest import ONE_G, THREE_G, devices, go, offer, running, until
from system.kubelet.kubeletdouble import AdmissionError, Container, Kubelet, Pod

STEPS = 14


@pytest.mark.parametrize("seed", range(4))
def test_it_settles(kubelet: Kubelet, seed: int) -> None:
    random = Random(seed)

    async def scenario() -> None:
        async with running(kubelet.directory) as plugins:
            held: frozenset[str] = frozenset()
            ones, threes = devices(3), devices(0)
            await plugins.publish(offer(ones=ones, threes=threes))
            for n in range(STEPS):
                act = random.choice(("publish", "publish", "restart", "wipe", "hold", "release", "pod", "wait"))
                if act == "publish":
                    ones, threes = devices(random.randint(0, 7)), devices(random.randint(0, 2), kind="3g")
                    await plugins.publish(offer(ones=ones, threes=threes))
                elif act == "restart":
                    await asyncio.to_thread(kubelet.restart)
                elif act == "wipe":
                    for path in kubelet.directory.glob("aliquot-*.sock"):
                        path.unlink()
                elif act == "hold":
                    held |= {f"MIG-1g-0-{random.randint(0, 6)}"}
                    plugins.hold(held)
                elif act == "release":
                    held = frozenset()
                    plugins.release()
                elif act == "pod":
                    await asyncio.to_thread(try_a_pod, kubelet, f"p{n}", held)
                else:
                    await asyncio.sleep(0.1)
            requested = {ONE_G: sum(d.id not in held for d in ones), THREE_G: len(threes)}
            await until(
                lambda: {n: c for n, c in kubelet.allocatable.items() if c} == {n: c for n, c in requested.items() if c}
            )
            await until(lambda: all(plugins.registered.values()))
            await until(lambda: plugins.problem is None)

    go(scenario)


def try_a_pod(kubelet: Kubelet, name: str, held: frozenset[str]) -> None:
    """Start a pod. The kubelet may refuse it. If it runs, it has no device that is held."""
    pod = Pod(name, (Container("main", {ONE_G: 1}),))
    try:
        given = kubelet.admit(pod)["main"].envs.get("NVIDIA_VISIBLE_DEVICES", "")
    except AdmissionError:
        return
    assert given not in held
    kubelet.remove(pod)
