"""Decisions of the agent, one observation at a time. A kill at any point does not change the final state."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.core.config.settings import POD_POLICIES, AgentSettings, Override, PodPolicy
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.plan import Blocker, Plan
from aliquot.hardware.systemd.units import StoppedServices, StoppedUnit
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.change_report import ChangeReport
from aliquot.kubernetes.gpu.config_label import ConfigFailure, NamedConfigSource
from aliquot.kubernetes.gpu.gpu_operands import PauseRecord
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.gpu.pause_owner import PauseOwner
from aliquot.kubernetes.gpu.prediction import Prediction
from aliquot.kubernetes.label_agent.agent import status_builder, steps
from aliquot.kubernetes.label_agent.agent.decision import REBOOT_PATIENCE_S, SERVICES_DOWN, decide
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Durable, Observation, RebootMark
from aliquot.kubernetes.label_agent.agent.status_builder import status, success
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse
from support.agent_observations import MIXED, OPERANDS, make_observation, messages, node, published
from support.agent_simulation import Environment, KilledError
from support.factory import with_instances

FULL = ["1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "1g.5gb@3", "1g.5gb@4", "1g.5gb@5", "1g.5gb@6"]
MET = with_instances(with_instances(node(), 0, *FULL), 1, *FULL)
"""Two GPUs as all-1g.5gb requests them."""


def held(*pods: str, inventory: Inventory) -> tuple[PodDeviceUse, ...]:
    device = inventory.gpus[0].instances[0].compute_instances[0].uuid
    pairs = [pod.split("/") for pod in pods]
    return tuple(PodDeviceUse(namespace, name, "main", (device,)) for namespace, name in pairs)


def test_no_label_is_no_request_and_says_so_once() -> None:
    o = make_observation(None)
    step = decide(o, AgentMemory())
    assert isinstance(step, steps.Withdraw)
    assert step.status.reason == "NoWish"
    labels, annotations = messages(step.status)
    labels.pop(names.STATE_LABEL)
    again = make_observation(None, annotations=annotations)
    assert isinstance(decide(again, published(again)), steps.WaitForEvent)


def test_label_removed_gives_back_what_is_paused_and_removes_the_state() -> None:
    paused = {f"{names.DEPLOY_PREFIX}dcgm": names.PAUSED, names.STATE_LABEL: "pending"}
    assert isinstance(decide(make_observation(None, labels=paused), AgentMemory()), steps.Restore)
    stale = make_observation(None, labels={names.STATE_LABEL: "success"})
    assert isinstance(decide(stale, published(stale)), steps.Withdraw)


def test_a_request_that_is_met_is_published_then_reported_then_rested_on() -> None:
    inventory = with_instances(with_instances(node(), 0, *FULL), 1, *FULL)
    o = make_observation("all-1g.5gb", inventory)
    assert isinstance(decide(o, AgentMemory()), steps.Publish)
    reported = decide(o, published(o))
    assert isinstance(reported, steps.ReportStatus)
    assert (reported.status.state, reported.status.reason) == ("success", "AlreadyApplied")
    assert "GPU 0-1: 1g.5gb:7" in reported.status.message
    labels, annotations = messages(reported.status)
    quiet = make_observation("all-1g.5gb", inventory, labels=labels, annotations=annotations, now=5000.0)
    assert isinstance(decide(quiet, published(quiet)), steps.WaitForEvent)


def test_unknown_config_fails_with_close_names_and_nothing_is_paused() -> None:
    step = decide(make_observation("all-1g.5bg"), published(make_observation("all-1g.5bg")))
    assert isinstance(step, steps.ReportStatus)
    assert step.status.reason == "UnknownConfig"
    assert "did you mean all-1g.5gb" in step.status.message
    assert step.status.next_step == "kubectl get configmap -n gpu n1-mig-config -o yaml"


def custom(profiles: str) -> str:
    return (
        "version: v1\nmig-configs:\n  want:\n  - devices: all\n    mig-enabled: true\n"
        f"    mig-devices: {{{profiles}}}\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "ConfigMissing"),
        ("version: v1\nmig-configs: [", "InvalidConfig"),
        (custom("9g.5gb: 1"), "InvalidConfig"),
        (custom("1g.10gb: 7"), None),
    ],
)
def test_bad_configs_fail_without_touching_anything(text: str | None, reason: str | None) -> None:
    source = NamedConfigSource(
        "ConfigMap gpu/custom", text, "ConfigMap gpu/custom has no key config.yaml (it has a.yaml)"
    )
    o = make_observation("want", sources=[source])
    step = decide(o, published(o))
    assert isinstance(step, steps.ReportStatus)
    assert step.status.state == "failed"
    if reason is not None:
        assert step.status.reason == reason


def test_failure_gives_back_what_a_dead_agent_paused() -> None:
    labels = {f"{names.DEPLOY_PREFIX}dcgm": names.PAUSED}
    o = make_observation("all-1g.5gb", labels=labels, failure=ConfigFailure("NoDriver", "no driver"))
    step = decide(o, published(o))
    assert isinstance(step, steps.Restore)
    assert step.status is not None
    assert step.status.state == "failed"


def test_a_change_without_reset_pauses_only_what_must_look_again() -> None:
    o = make_observation("all-1g.5gb", labels={f"{names.DEPLOY_PREFIX}nvsm": "false"})
    step = decide(o, AgentMemory())
    assert isinstance(step, steps.Pause)
    assert {each.name for each in step.operands} == {
        "device-plugin",
        "gpu-feature-discovery",
        "dcgm-exporter",
        "client",
    }
    assert step.status.state == "pending"
    assert step.status.message == "to create 14x 1g.5gb"


def test_a_mode_change_pauses_all_that_keep_gpus_open() -> None:
    step = decide(make_observation("all-1g.5gb", node(enabled=False)), AgentMemory())
    assert isinstance(step, steps.Pause)
    assert {"dcgm", "nvsm"} <= {each.name for each in step.operands}


def test_services_stop_only_for_a_reset() -> None:
    settings = AgentSettings(strategy="mixed", stop_host_clients=True)
    bare = dict.fromkeys(OPERANDS, "false")
    state = {names.STATE_LABEL: "pending"}
    deep = make_observation(
        "all-1g.5gb", node(enabled=False), labels=bare | state, settings=settings, services=("dcgm.service",)
    )
    assert isinstance(decide(deep, AgentMemory()), steps.StopServices)
    shallow = make_observation("all-1g.5gb", labels=bare | state, settings=settings, services=("dcgm.service",))
    shown = decide(shallow, AgentMemory())
    assert isinstance(shown, steps.ReportStatus)
    assert isinstance(decide(msgspec.structs.replace(shallow, status=shown.status), AgentMemory()), steps.Apply)


class TestHolders:
    inventory = with_instances(node("a100-sxm4-40gb"), 0, *FULL)

    def at(self, policy: PodPolicy) -> Observation:
        settings = AgentSettings(strategy="mixed", holders=policy, wait_s=60, drain_s=60)
        return make_observation(
            "all-3g.20gb", self.inventory, settings=settings, uses=held("team/train", inventory=self.inventory)
        )

    def test_refuse_names_the_pod_and_pauses_nothing(self) -> None:
        o = self.at("refuse")
        step = decide(o, published(o))
        assert isinstance(step, steps.ReportStatus)
        assert step.status.reason == "Held"
        assert "pod team/train (main)" in step.status.message
        assert step.status.next_step == "kubectl annotate node gpu-1 aliquot.dev/holders=drain --overwrite"

    def test_wait_says_so_rests_and_gives_up_in_time(self) -> None:
        o = self.at("wait")
        first = decide(o, published(o))
        assert isinstance(first, steps.ReportStatus)
        assert first.status.reason == "WaitingForHolders"
        o = msgspec.structs.replace(o, state="pending", status=first.status)
        rest = decide(o, published(o))
        assert isinstance(rest, steps.WaitForEvent)
        assert rest.waiting
        late = decide(o, published(o, waiting_since=o.clock - 61, waiting_for=o.patience))
        assert isinstance(late, steps.ReportStatus)
        assert late.status.reason == "HeldTimeout"

    def test_the_node_is_cordoned_for_the_wait_where_that_is_set(self) -> None:
        settings = AgentSettings(strategy="mixed", holders="wait", wait_s=60, cordon=True)
        o = make_observation(
            "all-3g.20gb", self.inventory, settings=settings, uses=held("team/train", inventory=self.inventory)
        )
        step = decide(o, published(o))
        assert isinstance(step, steps.Pause)
        assert (step.operands, step.cordon, step.status.reason) == ((), True, "WaitingForHolders")

    def test_another_policy_is_another_wait(self) -> None:
        o = self.at("drain")
        o = msgspec.structs.replace(o, state="pending")
        stale = published(o, waiting_since=o.clock - 600, waiting_for=self.at("wait").patience)
        assert not isinstance(decide(o, stale), steps.WaitForEvent)
        reported = decide(o, stale)
        assert isinstance(reported, steps.ReportStatus)
        assert reported.status.state == "pending"

    def test_drain_does_not_flap_over_processes_that_cannot_be_evicted(self) -> None:
        instance = msgspec.structs.replace(
            self.inventory.gpus[0].instances[0], held=True, holders=(Holder("process", "4711", "python3"),)
        )
        gpu = msgspec.structs.replace(
            self.inventory.gpus[0], instances=(instance, *self.inventory.gpus[0].instances[1:])
        )
        inventory = msgspec.structs.replace(self.inventory, gpus=(gpu,))
        o = make_observation("all-3g.20gb", inventory, settings=AgentSettings(strategy="mixed", holders="drain"))
        first = decide(o, published(o))
        assert isinstance(first, steps.ReportStatus)
        assert (first.status.state, first.status.reason) == ("failed", "Held")
        assert "annotate" not in first.status.next_step
        reported = msgspec.structs.replace(o, state="failed", status=first.status)
        assert isinstance(decide(reported, published(reported)), steps.WaitForEvent)

    def test_a_wrong_policy_is_reported(self) -> None:
        uses = held("team/train", inventory=self.inventory)
        o = make_observation("all-3g.20gb", self.inventory, uses=uses, annotations={names.HOLDERS_ANNOTATION: "Drain"})
        step = decide(o, published(o))
        assert isinstance(step, steps.ReportStatus)
        assert "invalid annotation aliquot.dev/holders='Drain'" in step.status.message

    def test_an_error_in_the_settings_is_in_the_message_of_every_failure(self) -> None:
        o = make_observation("nonsense", self.inventory)
        o = msgspec.structs.replace(o, settings_warnings=("mig: unknown key 'stratgy'",))
        step = decide(o, published(o))
        assert isinstance(step, steps.ReportStatus)
        assert step.status.state == "failed"
        assert step.status.message.endswith("; mig: unknown key 'stratgy'")

    def test_drain_evicts_only_the_holders(self) -> None:
        o = self.at("drain")
        reported = decide(o, published(o))
        assert isinstance(reported, steps.ReportStatus)
        o = msgspec.structs.replace(o, state="pending", status=reported.status)
        step = decide(o, published(o))
        assert isinstance(step, steps.Evict)
        assert step.pods == (("team", "train"),)
        assert not step.force

    def test_the_node_overrides_and_a_config_overrides(self) -> None:
        settings = AgentSettings(strategy="mixed", configs={"all-3g.20gb": Override(holders="force")})
        uses = held("team/train", inventory=self.inventory)
        o = make_observation("all-3g.20gb", self.inventory, settings=settings, uses=uses)
        assert o.holder_policy.policy == "force"
        o = make_observation(
            "all-3g.20gb",
            self.inventory,
            settings=settings,
            uses=uses,
            annotations={names.HOLDERS_ANNOTATION: "refuse"},
        )
        assert o.holder_policy.policy == "refuse"

    def test_without_kubelet_nothing_is_destroyed(self) -> None:
        o = make_observation(
            "all-3g.20gb", self.inventory, kubelet_error="kubelet cannot say which pods are on the GPUs"
        )
        step = decide(o, published(o))
        assert isinstance(step, steps.ReportStatus)
        assert step.status.reason == "KubeletAway"
        assert step.status.next_step == "systemctl status kubelet on the node"
        forced = make_observation(
            "all-3g.20gb",
            self.inventory,
            kubelet_error="kubelet is away",
            annotations={names.HOLDERS_ANNOTATION: "force"},
        )
        assert isinstance(decide(forced, published(forced)), steps.Pause)

    @pytest.mark.parametrize(
        ("pod", "command"),
        [("ns/agent-1", "kubectl exec -n ns agent-1 -- aliquot show"), ("", "aliquot show")],
    )
    def test_a_command_of_aliquot_is_run_in_the_agents_pod(self, pod: str, command: str) -> None:
        o = make_observation("all-3g.20gb", pod=pod)
        assert status(o, "failed", "Held", "it is held", next_step="aliquot show").next_step == command
        other = "aliquotctl show"
        assert status(o, "failed", "Held", "it is held", next_step=other).next_step == other

    def test_a_held_instance_that_fits_is_no_hindrance(self) -> None:
        inventory = with_instances(node("a100-sxm4-40gb"), 0, "3g.20gb@4")
        o = make_observation("all-3g.20gb", inventory, uses=held("team/train", inventory=inventory))
        assert isinstance(decide(o, AgentMemory()), steps.Pause)


@pytest.mark.parametrize("policy", POD_POLICIES)
@pytest.mark.parametrize("first", [True, False])
def test_holders_are_neither_waited_for_nor_evicted_where_something_else_blocks(policy: PodPolicy, first: bool) -> None:
    inventory = with_instances(node("a100-sxm4-40gb"), 0, *FULL)
    uses = held("team/train", inventory=inventory)
    o = make_observation("all-3g.20gb", inventory, settings=AgentSettings(strategy="mixed", holders=policy), uses=uses)
    lost = Blocker(rule="GPU_LOST", text="GPU 1 has fallen off the bus", step="reboot the node")
    if policy == "force":
        busy: tuple[Blocker, ...] = (Blocker(rule="HELD", text="it is held"),)
    else:
        assert o.plan is not None
        busy = o.plan.blockers
        assert [b.rule for b in busy] == ["HELD"]
    both = (lost, *busy) if first else (*busy, lost)
    o = msgspec.structs.replace(o, plan=Plan("gpu-1", "", Desired(()), blockers=both))
    step = decide(o, published(o))
    assert isinstance(step, steps.ReportStatus)
    assert (step.status.state, step.status.reason) == ("failed", "GpuLost")
    assert step.status.message == lost.message
    assert step.status.next_step == lost.next_step


def test_a_layout_that_the_strategy_cannot_offer_is_refused_with_the_patch() -> None:
    o = make_observation("all-balanced", settings=AgentSettings(strategy="single"))
    step = decide(o, published(o))
    assert isinstance(step, steps.ReportStatus)
    assert step.status.reason == "LabelsWouldBeInvalid"
    assert "kubectl" in step.status.next_step
    warned = make_observation("all-balanced", settings=AgentSettings(strategy="single", prediction="warn"))
    assert isinstance(decide(warned, published(warned)), steps.Pause)


def test_a_failed_attempt_waits_for_its_time_and_a_new_request_does_not() -> None:
    o = make_observation("all-1g.5gb")
    m = published(o, attempt=o.attempt, failed=ConfigFailure("ApplyFailed", "boom"), failures=1, retry_at=o.clock + 30)
    step = decide(o, m)
    assert isinstance(step, steps.ReportStatus)
    assert step.status.reason == "ApplyFailed"
    later = msgspec.structs.replace(o, clock=o.clock + 31)
    assert isinstance(decide(later, m), steps.Pause)
    other = make_observation("all-3g.20gb")
    assert isinstance(decide(other, m), steps.Pause)


def test_another_policy_for_holders_is_another_attempt() -> None:
    o = make_observation("all-1g.5gb")
    m = published(o, attempt=o.attempt, failed=ConfigFailure("NotDrained", "boom"), failures=1, retry_at=o.clock + 300)
    assert isinstance(decide(o, m), steps.ReportStatus)
    forced = make_observation("all-1g.5gb", annotations={names.HOLDERS_ANNOTATION: "force"})
    assert isinstance(decide(forced, m), steps.Pause)


def test_a_status_that_was_never_reported_is_not_a_new_request() -> None:
    # Examples are a new node, or an agent that may not write. A status that was removed requests the config again,
    # and only once.
    o = make_observation("all-1g.5gb")
    assert o.status is None
    failed = published(
        o, attempt=o.attempt, failed=ConfigFailure("ApplyFailed", "boom"), failures=1, retry_at=o.clock + 30
    )
    assert isinstance(decide(o, failed.after_observation(o)), steps.ReportStatus)
    reported = failed.after_observation(msgspec.structs.replace(o, status=AgentStatus("failed", "ApplyFailed", "boom")))
    assert isinstance(decide(o, reported), steps.Retry)
    again = reported.after_retry_request().after_observation(o)
    assert isinstance(decide(o, again), steps.Pause)
    unwritten = msgspec.structs.replace(again, failed=failed.failed, retry_at=failed.retry_at)
    assert isinstance(decide(o, unwritten), steps.ReportStatus)


class TestReboot:
    def passed_through(self) -> Inventory:
        inventory = node("a100-sxm4-40gb", enabled=False)
        gpu = msgspec.structs.replace(
            inventory.gpus[0], resettable=False, mig=msgspec.structs.replace(inventory.gpus[0].mig, pending="enabled")
        )
        return msgspec.structs.replace(inventory, gpus=(gpu,))

    def test_only_if_allowed(self) -> None:
        o = make_observation("all-1g.5gb", self.passed_through())
        step = decide(o, published(o))
        assert isinstance(step, steps.ReportStatus)
        assert step.status.reason == "NeedsReboot"

    def test_nothing_is_destroyed_for_a_mode_that_needs_a_reboot(self) -> None:
        inventory = with_instances(node("a100-sxm4-40gb"), 0, *FULL)
        guest = msgspec.structs.replace(inventory.gpus[0], resettable=False)
        o = make_observation("all-disabled", msgspec.structs.replace(inventory, gpus=(guest,)))
        step = decide(o, published(o))
        assert isinstance(step, steps.ReportStatus)
        assert step.status.reason == "NeedsReboot"

    def test_once_and_never_in_a_loop(self) -> None:
        settings = AgentSettings(strategy="mixed", with_reboot=True)
        o = make_observation("all-1g.5gb", self.passed_through(), settings=settings)
        assert isinstance(decide(o, published(o)), steps.Reboot)
        mark = Durable(reboot=RebootMark(o.digest, "boot-0", o.clock - 100))
        again = msgspec.structs.replace(o, durable=mark)
        step = decide(again, published(again))
        assert isinstance(step, steps.ReportStatus)
        assert step.status.reason == "RebootDidNotHelp"
        mark = Durable(reboot=RebootMark(o.digest, o.boot, o.clock - REBOOT_PATIENCE_S - 1))
        refused = msgspec.structs.replace(o, durable=mark)
        step = decide(refused, published(refused, rebooting=o.boot))
        assert isinstance(step, steps.ReportStatus)
        assert step.status.reason == "RebootRefused"

    def test_an_order_of_a_dead_agent_is_given_again(self) -> None:
        # The order was recorded before it was given, so the agent cannot know whether it was given.
        o = make_observation(
            "all-1g.5gb", self.passed_through(), settings=AgentSettings(strategy="mixed", with_reboot=True)
        )
        mark = Durable(reboot=RebootMark(o.digest, o.boot, o.clock - 5))
        found = msgspec.structs.replace(o, durable=mark)
        assert isinstance(decide(found, published(found)), steps.Reboot)
        step = decide(found, published(found, rebooting=o.boot))
        assert isinstance(step, steps.ReportStatus)
        assert step.status.reason == "Rebooting"

    def test_the_clock_on_the_wall_may_jump(self) -> None:
        # A jump neither shortens nor extends a wait.
        o = make_observation(
            "all-1g.5gb", self.passed_through(), settings=AgentSettings(strategy="mixed", with_reboot=True)
        )
        marked = msgspec.structs.replace(o, durable=Durable(reboot=RebootMark(o.digest, o.boot, o.clock - 5)))
        failed = published(o, attempt=o.attempt, failed=ConfigFailure("ApplyFailed", "boom"), retry_at=o.clock + 5)
        for wall in (0.0, o.now - 86400, o.now + 86400):
            jumped = msgspec.structs.replace(marked, now=wall)
            reported = decide(jumped, published(jumped, rebooting=o.boot))
            assert isinstance(reported, steps.ReportStatus)
            assert reported.status.reason == "Rebooting"
            resting = decide(msgspec.structs.replace(o, now=wall), failed)
            assert isinstance(resting, steps.ReportStatus)
            assert resting.status.reason == "ApplyFailed"


def test_drift_is_healed_or_reported() -> None:
    inventory = with_instances(with_instances(node(), 0, *FULL), 1, *FULL[:6])
    o = make_observation("all-1g.5gb", inventory)
    reported = AgentStatus("success", "Applied", "done", "all-1g.5gb", digest=o.digest)
    healing = msgspec.structs.replace(o, state="success", status=reported)
    step = decide(healing, published(o))
    assert isinstance(step, steps.Pause)
    assert step.status.reason == "Healing"
    assert step.status.message == "the GPUs drifted from 'all-1g.5gb': to create 1x 1g.5gb, 13 instances kept"
    settled = msgspec.structs.replace(healing, settings=AgentSettings(strategy="mixed", self_heal=False))
    step = decide(settled, published(settled))
    assert isinstance(step, steps.ReportStatus)
    assert step.status.reason == "Drift"


def test_a_look_that_finds_nothing_to_do_keeps_what_was_reported_of_the_change() -> None:
    o, report = make_observation("all-1g.5gb"), ChangeReport("all-1g.5gb", 2.5)
    reported = AgentStatus("success", "Applied", "done", "all-1g.5gb", digest=o.digest, change=report)
    kept = status_builder.success(msgspec.structs.replace(o, state="success", status=reported), AgentMemory())
    assert (kept.reason, kept.message, kept.change) == ("Applied", "done", report)
    done = AgentMemory(last_change="done", last_report=report, last_change_for=o.digest)
    assert status_builder.success(o, done).change == report
    assert status_builder.success(o, AgentMemory()).change is None


def test_an_edited_config_is_a_new_request_even_without_self_heal() -> None:
    inventory = with_instances(node(), 0, *FULL)
    o = make_observation("all-1g.5gb", inventory, settings=AgentSettings(strategy="mixed", self_heal=False))
    reported = AgentStatus("success", "Applied", "done", "all-1g.5gb", digest="another meaning")
    assert isinstance(decide(msgspec.structs.replace(o, state="success", status=reported), published(o)), steps.Pause)


# -- the complete sequence


def environment(label: str = "all-1g.5gb", *, enabled: bool = False, **settings: object) -> Environment:
    labels = OPERANDS | {f"{names.DEPLOY_PREFIX}nvsm": "false", f"{names.DEPLOY_PREFIX}client": "vip"}
    return Environment(
        node("a100-sxm4-40gb*2", enabled=enabled), label, msgspec.structs.replace(MIXED, **settings), labels
    )


def end(w: Environment) -> tuple[object, ...]:
    deploy = {name: value for name, value in w.marks.labels.items() if name.startswith(names.DEPLOY_PREFIX)}
    layout = [[(i.profile, i.placement) for i in gpu.instances] for gpu in w.inventory.gpus]
    state = w.marks.labels.get(names.STATE_LABEL)
    return deploy, layout, state, w.services, w.durable.stopped, w.marks.unschedulable, w.marks.pause_record


def test_the_whole_way() -> None:
    w = environment(stop_host_clients=True, cordon=True)
    w.run()
    kinds = [type(step).__name__ for step in w.trace]
    assert kinds == [
        "Pause",
        "AwaitOperands",
        "StopServices",
        "Apply",
        "Publish",
        "StartServices",
        "Restore",
        "WaitForEvent",
    ]
    deploy, layout, state, services, *_ = end(w)
    assert state == "success"
    assert deploy == OPERANDS | {f"{names.DEPLOY_PREFIX}nvsm": "false", f"{names.DEPLOY_PREFIX}client": "vip"}
    assert all(len(gpu) == 7 for gpu in layout)  # type: ignore[attr-defined]
    assert all(services.values())  # type: ignore[attr-defined]
    assert not [name for name in w.touched_while_open if not name.endswith("client")]


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("cordon", [False, True])
def test_killed_after_any_write_the_next_agent_ends_in_the_same_place(enabled: bool, cordon: bool) -> None:
    whole = environment(enabled=enabled, stop_host_clients=True, cordon=cordon)
    whole.run()
    for writes in range(100):
        w = environment(enabled=enabled, stop_host_clients=True, cordon=cordon)
        w.left = writes
        try:
            w.run()
        except KilledError:
            w.left = None
            w.run()
        else:
            break
        assert end(w) == end(whole), f"killed after {writes} writes"
    assert writes > 10


@pytest.mark.parametrize("kind", [steps.AwaitOperands, steps.StopServices, steps.Apply])
def test_whatever_fails_everything_paused_comes_back(kind: type) -> None:
    w = environment(stop_host_clients=True, cordon=True)
    w.fail = lambda step: "it broke" if isinstance(step, kind) else None
    w.run()
    deploy, _layout, state, services, stopped, unschedulable, record = end(w)
    assert state == "failed"
    assert deploy == OPERANDS | {f"{names.DEPLOY_PREFIX}nvsm": "false", f"{names.DEPLOY_PREFIX}client": "vip"}
    assert all(services.values())  # type: ignore[attr-defined]
    assert (stopped, unschedulable, record) == (None, False, None)


def without_status(w: Environment) -> None:
    w.marks = msgspec.structs.replace(
        w.marks, annotations={k: v for k, v in w.marks.annotations.items() if k != names.STATUS_ANNOTATION}
    )


@pytest.mark.parametrize("kind", [steps.AwaitOperands, steps.StopServices, steps.Apply])
def test_asked_again_a_failed_change_is_tried_once_more_at_once(kind: type) -> None:
    w = environment(stop_host_clients=True, cordon=True)
    w.fail = lambda step: "it broke" if isinstance(step, kind) else None
    m = w.run()

    def tries() -> int:
        return sum(isinstance(step, kind) for step in w.trace)

    m = w.run(m)
    assert tries() == 1
    for asked in (2, 3):
        without_status(w)
        m = w.run(w.run(m))
        assert tries() == asked
    w.fail = lambda step: None
    without_status(w)
    w.run(m)
    assert w.marks.labels[names.STATE_LABEL] == "success"
    assert all(len(gpu.instances) == 7 for gpu in w.inventory.gpus)


def test_asked_again_holders_are_waited_for_again() -> None:
    w = environment("all-3g.20gb", enabled=True, holders="wait", wait_s=60)
    w.inventory = with_instances(w.inventory, 0, *FULL)
    w.uses = held("team/train", inventory=w.inventory)
    m = w.run()
    w.now += 61
    m = w.run(m)
    assert w.marks.labels[names.STATE_LABEL] == "failed"
    without_status(w)
    m = w.run(m)
    assert w.marks.labels[names.STATE_LABEL] == "pending"
    w.now += 61
    w.run(m)
    assert w.marks.labels[names.STATE_LABEL] == "failed"


def test_asked_again_what_is_met_is_reported_again() -> None:
    w = environment()
    m = w.run()
    without_status(w)
    w.run(m)
    assert [type(step).__name__ for step in w.trace[-3:]] == ["Retry", "ReportStatus", "WaitForEvent"]


def test_services_that_do_not_start_are_tried_again_and_not_at_once() -> None:
    owed = Durable(stopped=StoppedServices((StoppedUnit("dcgm.service"),)))
    inventory = with_instances(with_instances(node(), 0, *FULL), 1, *FULL)
    o = make_observation("all-1g.5gb", inventory, durable=owed)
    assert isinstance(decide(o, published(o)), steps.StartServices)
    m = published(
        o,
        attempt=o.attempt,
        failed=ConfigFailure(SERVICES_DOWN, "dcgm does not start"),
        failures=1,
        retry_at=o.clock + 5,
    )
    reported = decide(o, m)
    assert isinstance(reported, steps.ReportStatus)
    assert (reported.status.state, reported.status.reason) == ("failed", SERVICES_DOWN)
    later = msgspec.structs.replace(o, clock=o.clock + 6)
    assert isinstance(decide(later, m), steps.StartServices)
    gone = make_observation(None, inventory, durable=owed)
    assert isinstance(decide(gone, published(gone)), steps.StartServices)


def test_killed_and_then_the_request_is_withdrawn() -> None:
    for writes in range(1, 12):
        w = environment(stop_host_clients=True, cordon=True)
        w.left = writes
        with pytest.raises(KilledError):
            w.run()
        w.left, w.label = None, None
        w.run()
        deploy, _layout, state, services, stopped, unschedulable, record = end(w)
        assert names.PAUSED not in deploy.values()  # type: ignore[attr-defined]
        assert (state, stopped, unschedulable, record) == (None, None, False, None)
        assert all(services.values())  # type: ignore[attr-defined]


class TestAnotherWriter:
    OTHER = PauseOwner("other", "1:11", "boot-1", "process 7")
    ME = PauseOwner("me", "1:10", "boot-1", "process 1")

    def paused(self, owner: PauseOwner | None, **more: Any) -> Observation:
        record = PauseRecord({f"{names.DEPLOY_PREFIX}dcgm": "true"}, owner=owner)
        notes = {names.PAUSE_ANNOTATION: msgspec.json.encode(record).decode()}
        labels = {f"{names.DEPLOY_PREFIX}dcgm": names.PAUSED}
        label = more.pop("label", "all-1g.5gb")
        return make_observation(label, labels=labels, annotations=notes, owner=self.ME, **more)

    def test_a_process_that_changes_the_gpus_is_waited_for_before_anything_is_paused(self) -> None:
        o = make_observation("all-1g.5gb", writer="process 12 (aliquot apply " + "x " * 200 + ")")
        reported = decide(o, published(o))
        assert isinstance(reported, steps.ReportStatus)
        assert (reported.status.state, reported.status.reason) == ("pending", "Locked")
        assert "process 12 (aliquot apply" in reported.status.message
        assert len(reported.status.message) < 260

    def test_the_wait_grows(self) -> None:
        reported = decide(*self.first())
        assert isinstance(reported, steps.ReportStatus)
        labels, annotations = messages(reported.status)
        o = make_observation("all-1g.5gb", writer="process 12 (x)", labels=labels, annotations=annotations)
        rests = [decide(o, published(o, lockouts=n)) for n in (0, 1, 9)]
        assert [rest.seconds for rest in rests if isinstance(rest, steps.WaitForEvent)] == [1.0, 2.0, 15.0]
        assert all(isinstance(rest, steps.WaitForEvent) and rest.locked for rest in rests)

    def first(self) -> tuple[Observation, AgentMemory]:
        o = make_observation("all-1g.5gb", writer="process 12 (x)")
        return o, published(o)

    def test_a_lock_that_an_apply_found_taken_is_pending_too(self) -> None:
        o = make_observation("all-1g.5gb")
        reported = decide(o, published(o, locked_by="process 12 (x)"))
        assert isinstance(reported, steps.ReportStatus)
        assert reported.status.reason == "Locked"

    def test_a_pause_of_another_living_agent_is_left_and_named(self) -> None:
        o = self.paused(self.OTHER)
        reported = decide(o, published(o))
        assert isinstance(reported, steps.ReportStatus)
        assert (reported.status.state, reported.status.reason) == ("pending", "AnotherAgent")
        assert "process 7" in reported.status.message
        failed = self.paused(self.OTHER, failure=ConfigFailure("InternalFault", "broken"))
        assert isinstance(decide(failed, published(failed)), steps.ReportStatus), (
            "a failed change restores only its own pauses"
        )

    BUSY = "process 12 (aliquot apply)"
    HANGS = ConfigFailure("DriverHangs", "the driver has not returned")

    @pytest.mark.parametrize(
        "left_by", [ME, PauseOwner("dead", ME.lock, "boot-1"), None], ids=["us", "a dead agent", "unnamed"]
    )
    @pytest.mark.parametrize(
        "seen",
        [{"failure": HANGS}, {"label": None}, {"settings": AgentSettings(manage=False)}, {"inventory": MET}],
        ids=["a failure", "no request", "another manager", "nothing to do"],
    )
    def test_nothing_is_given_back_while_another_process_changes_the_gpus(
        self, left_by: PauseOwner | None, seen: dict[str, Any]
    ) -> None:
        stopped = Durable(StoppedServices((StoppedUnit("dcgm.service"),)), stopped_by=left_by)
        for durable, gives_back in ((Durable(), steps.Restore), (stopped, steps.StartServices)):
            o, m = self.at_rest(self.paused(left_by, durable=durable, writer=self.BUSY, **seen))
            rest = decide(o, m)
            assert isinstance(rest, steps.WaitForEvent), rest
            assert rest.locked
            assert rest.seconds == 1.0, "the agent soon observes the end of the other change"
            o = msgspec.structs.replace(o, writer="")
            assert isinstance(decide(o, m), gives_back)

    def at_rest(self, o: Observation) -> tuple[Observation, AgentMemory]:
        """Return the observation after everything was reported."""
        m = published(o)
        while not isinstance(step := decide(o, m), steps.WaitForEvent):
            assert isinstance(step, steps.ReportStatus | steps.Withdraw), step
            labels, annotations = messages(step.status)
            marks = msgspec.structs.replace(
                o.marks, labels={**o.marks.labels, **labels}, annotations={**o.marks.annotations, **annotations}
            )
            o = msgspec.structs.replace(o, marks=marks, state=step.status.state, status=step.status)
        return o, m

    def test_success_is_not_reported_while_clients_stay_paused_for_another_process(self) -> None:
        o = self.paused(self.ME, inventory=MET, writer=self.BUSY)
        reported = decide(o, published(o))
        assert isinstance(reported, steps.ReportStatus)
        assert (reported.status.state, reported.status.reason) == ("pending", "Locked")

    def test_a_pause_without_an_owner_stays_while_another_process_changes_the_gpus(self) -> None:
        broken = ConfigFailure("InternalFault", "broken")
        o = self.paused(None, failure=broken, writer="process 12 (x)")
        assert isinstance(decide(o, published(o)), steps.ReportStatus)
        o = self.paused(None, failure=broken)
        assert isinstance(decide(o, published(o)), steps.Restore)

    def test_services_that_another_living_agent_stopped_are_not_started(self) -> None:
        stopped = StoppedServices((StoppedUnit("dcgm.service"),))
        for owner, starts in ((self.OTHER, False), (self.ME, True), (None, True)):
            o = make_observation(None, durable=Durable(stopped, stopped_by=owner), owner=self.ME)
            assert isinstance(decide(o, published(o)), steps.StartServices) == starts


def test_after_a_failure_it_rests_until_the_next_attempt() -> None:
    o = make_observation("all-1g.5gb")
    boom = ConfigFailure("ApplyFailed", "boom")
    m = published(o, attempt=o.attempt, failed=boom, failures=1, retry_at=o.clock + 7)
    reported = decide(o, m)
    assert isinstance(reported, steps.ReportStatus)
    labels, annotations = messages(reported.status)
    after = make_observation("all-1g.5gb", labels=labels, annotations=annotations)
    assert isinstance(step := decide(after, msgspec.structs.replace(m, attempt=after.attempt)), steps.WaitForEvent)
    assert step.seconds == 7
    late = msgspec.structs.replace(m, attempt=after.attempt, retry_at=o.clock + 10_000)
    assert isinstance(step := decide(after, late), steps.WaitForEvent)
    assert step.seconds == o.settings.check_s


def test_success_tells_what_labels_will_be_worse_for_it() -> None:
    inventory = with_instances(with_instances(node(), 0, *FULL), 1, *FULL)
    predicted = Prediction({}, {}, warnings=("beware",), refusals=("no name for it",))
    o = msgspec.structs.replace(make_observation("all-1g.5gb", inventory), prediction=predicted)
    assert success(o, AgentMemory()).details == ("no name for it", "beware")
    assert success(msgspec.structs.replace(o, prediction=None), AgentMemory()).details == ()
