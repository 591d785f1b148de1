"""Claims of other programs: they count as held in the inventory, and when the engine reads again."""

from __future__ import annotations

from aliquot.core.model.claims import Claim, gpu_with_claims, with_claims
from aliquot.core.model.inventory import Holder
from aliquot.core.planner.plan import plan
from aliquot.errors import InUseError
from aliquot.node.claims import HeldBackend
from support.simnodes import Node
from unit.containers.runtime.nodes import all_devices, node, uuid

WEB = Holder("container", "docker:abc", "web")


def test_a_mig_device() -> None:
    found = with_claims(node(), [Claim(WEB, (uuid(0, 1), "MIG-gone"))])
    first, second = found.gpus[0].instances
    assert (first.held, first.holders, first.compute_instances[0].holders) == (True, (WEB,), (WEB,))
    assert not second.held
    assert found.fingerprint == node().fingerprint


def test_a_whole_gpu_is_held_with_everything_on_it() -> None:
    gpu = node().gpus[0]
    found = gpu_with_claims(gpu, [Claim(WEB, (gpu.uuid,))])
    assert found.holders == (WEB,)
    assert all(i.held and i.holders == (WEB,) for i in found.instances)


def test_nothing_is_claimed() -> None:
    assert with_claims(node(), []) == node()
    assert gpu_with_claims(node().gpus[0], [Claim(WEB, ("MIG-gone",))]) == node().gpus[0]


def test_a_holder_is_no_process_that_could_be_ended() -> None:
    from aliquot.containers.runtime.models import Container

    digits = Container("docker", "123456789012" + "3" * 52, "web", "running")
    assert not digits.holder.id.isdigit()
    assert not Container("", "0" * 64, "", "running").holder.id.isdigit()


def test_the_engine_looks_again_before_it_destroys() -> None:
    # A claim between the plan and the destroy stops it, and no destroy call reaches the driver.
    environment = Node("a100-sxm4-40gb").cut("0", "3g.20gb*2")
    claims: list[Claim] = []
    environment.whole = HeldBackend(environment.whole, lambda gpus: tuple(claims))
    desired = environment.desired_state("0", "7g.40gb")
    before = [i.id for i in environment.backend.read().gpus[0].instances]
    assert not plan(environment.whole.read(), desired).blockers
    target = environment.backend.read().gpus[0].instances[1].compute_instances[0].uuid
    first_look = environment.whole.read()

    class Late:
        """Claims that appear after the first read."""

        observations = 0

        def __call__(self, gpus: object) -> tuple[Claim, ...]:
            self.observations += 1
            return (Claim(WEB, (target,)),) if self.observations > 2 else ()

    environment.whole = HeldBackend(environment.whole, Late())
    outcome = environment.apply(desired)
    assert isinstance(outcome.error, InUseError)
    assert "web" in outcome.error.brief
    assert [i.id for i in environment.backend.read().gpus[0].instances] == before
    assert first_look.fingerprint == environment.whole.read().fingerprint


def test_devices_know_who_is_on_them() -> None:
    found = with_claims(node(), [Claim(WEB, (uuid(0, 2),))])
    from aliquot.containers.runtime.devices import devices

    assert [d.holders for d in devices(found)] == [(), (WEB,), (), (), ()]
    assert [d.uuid for d in all_devices()] == [d.uuid for d in devices(found)]
