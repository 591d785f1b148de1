"""Failures of NVIDIA's MIG manager, with one test for each. The real agent runs over a cluster and a simulated node.

Numbers are those of the study of its behaviour:

- 3.4 success without result
- 4.3 state that is not preserved, 4.4 busy GPUs, 4.5 hardware
- 6.2 triggers, 6.4 order of steps, 6.5 failure exits
"""

from __future__ import annotations

import time

import pytest

from aliquot.kubernetes.gpu import names
from support.agents import DEPLOY, NAMESPACE, Agent, MakeAgent, Object

SEVEN = [f"1g.5gb@{n}" for n in range(7)]


def custom(**configs: str) -> dict[str, str]:
    """Build a custom ConfigMap: each config is one entry for all GPUs with these mig-devices."""
    entries = "".join(
        f"  {name}:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {{{devices}}}\n"
        for name, devices in configs.items()
    )
    return {"config.yaml": f"version: v1\nmig-configs:\n{entries}"}


def with_custom(agent: Agent, **configs: str) -> None:
    agent.configure("custom", custom(**configs))
    agent.settings("mig: {strategy: mixed, config-map: custom}")


def settled(agent: Agent) -> None:
    """Build a node with seven instances on its first GPU, applied by the agent."""
    agent.start()
    agent.request("all-1g.5gb")
    assert agent.geometry()[0] == SEVEN


def refused(agent: Agent, config: str) -> Object:
    """Return the status of a new config that fails. Its label may arrive before its ConfigMap."""

    def explained() -> bool:
        status = agent.status()
        return status.get("state") == "failed" and status["reason"] != "UnknownConfig" and status["config"] == config

    agent.label(config=config)
    agent.until(explained, "what is wrong with the config")
    return agent.reaches("failed", config)


# -- 3.4: success reported without a result


@pytest.mark.parametrize("devices", ["9g.5gb: 1", "1g.5bg: 7", "1g.5gb+ME: 1", "3g.40gb: 1"])
def test_3_4_an_unknown_profile_destroys_nothing_and_fails(make_agent: MakeAgent, devices: str) -> None:
    agent = make_agent("a100-sxm4-40gb")
    settled(agent)
    before = len(agent.writes())
    with_custom(agent, bad=devices)
    status = refused(agent, "bad")
    assert agent.geometry()[0] == SEVEN
    assert len(agent.writes()) == before
    assert devices.partition(":")[0] in status["message"] + str(status.get("details", ""))


def test_3_4_one_bad_name_among_good_ones_is_no_better(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    settled(agent)
    before = len(agent.writes())
    with_custom(agent, bad="3g.20gb: 1, 9g.5gb: 1")
    refused(agent, "bad")
    assert agent.geometry()[0] == SEVEN
    assert len(agent.writes()) == before


@pytest.mark.parametrize("devices", ["1g.5gb: 2, 2g.10gb: 0", "1c.1g.5gb: 2", "01g.5gb: 2"])
def test_3_4_what_is_applied_is_recognised_afterwards(make_agent: MakeAgent, devices: str) -> None:
    # The peer reports success, and destroys and rebuilds everything at each later run.
    agent = make_agent("a100-sxm4-40gb")
    with_custom(agent, odd=devices)
    agent.start()
    reported = agent.request("odd", "success") if devices != "1g.5gb: 2, 2g.10gb: 0" else _either(agent, "odd")
    before = agent.writes()
    agent.stop()
    agent.start()
    time.sleep(1.5)
    assert agent.reaches(reported["state"], "odd")
    assert agent.writes() == before


def _either(agent: Agent, config: str) -> dict[str, str]:
    """Apply a config, or get a refusal with a reason: never success without the result."""
    agent.label(config=config)
    agent.until(lambda: agent.status().get("config") == config and agent.status()["state"] != "pending", "an end")
    reported = agent.status()
    assert reported["state"] == "failed" or len(agent.geometry()[0]) == 2
    return reported


def test_3_4_a_filter_that_matches_nothing_is_no_success(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    text = (
        "version: v1\nmig-configs:\n  h100:\n  - device-filter: '0x233010DE'\n    devices: all\n"
        "    mig-enabled: true\n    mig-devices: {1g.10gb: 7}\n"
    )
    agent.configure("custom", {"config.yaml": text})
    agent.settings("mig: {strategy: mixed, config-map: custom}")
    agent.start()
    reported = agent.request("h100", "failed")
    assert "no GPU of this node" in reported["message"]
    assert not agent.writes()


def test_3_4_a_config_for_some_gpus_only_is_met_and_stays_met(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb*2")
    text = (
        "version: v1\nmig-configs:\n  first:\n  - devices: [0]\n    mig-enabled: true\n    mig-devices: {1g.5gb: 7}\n"
    )
    agent.configure("custom", {"config.yaml": text})
    agent.settings("mig: {strategy: mixed, config-map: custom}")
    agent.start()
    agent.request("first")
    before = agent.writes()
    agent.stop()
    agent.start()
    time.sleep(1.5)
    assert agent.reaches("success", "first")
    assert agent.writes() == before
    assert agent.geometry() == [SEVEN, []]


# -- 4.3: state that is not preserved


def test_4_3_one_more_instance_destroys_none(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    with_custom(agent, one="2g.10gb: 1, 1g.5gb: 1", two="2g.10gb: 1, 1g.5gb: 2")
    agent.start()
    agent.request("one")
    before = agent.writes()
    agent.request("two")
    assert agent.writes()[len(before) :] == ["DeviceCreateGpuInstanceWithPlacement", "GpuInstanceCreateComputeInstance"]


def test_4_3_a_gpu_that_is_right_is_left_alone_when_another_changes_mode(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb*2")
    text = (
        "version: v1\nmig-configs:\n  first:\n  - devices: [0]\n    mig-enabled: true\n    mig-devices: {1g.5gb: 7}\n"
        "  both:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {1g.5gb: 7}\n"
    )
    agent.configure("custom", {"config.yaml": text})
    agent.settings("mig: {strategy: mixed, config-map: custom}")
    agent.start()
    agent.request("first")
    before = len(agent.sim.calls())
    agent.request("both")
    touched = {c["gpu"] for c in agent.sim.calls()[before:] if c["call"] in _writes()}
    assert len(touched) == 1
    assert agent.geometry() == [SEVEN, SEVEN]


def _writes() -> frozenset[str]:
    from aliquot.sim.lifecycle import WRITE_CALLS

    return WRITE_CALLS


def test_4_3_an_instance_in_use_that_fits_is_kept(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    with_custom(agent, one="3g.20gb: 1", two="3g.20gb: 1, 1g.5gb: 2")
    agent.start()
    agent.request("one")
    instance = agent.sim.show()["gpus"][0]["instances"][0]["id"]
    pid = agent.sim.hold(0, instance)
    agent.request("two")
    assert "Destroy" not in " ".join(agent.writes())
    assert agent.sim.release(0, instance) == 1, f"process {pid} survived"


# -- 4.4: a busy GPU


def test_4_4_an_instance_in_use_stops_everything_before_anything(make_agent: MakeAgent) -> None:
    # The peer destroys what it meets earlier in its walk, and leaves the GPU half-destroyed.
    agent = make_agent("a100-sxm4-40gb*2")
    settled(agent)
    held = agent.sim.show()["gpus"][1]["instances"][-1]["id"]
    agent.sim.hold(1, held)
    before = len(agent.writes())
    reported = agent.request("all-3g.20gb", "failed", "Held")
    assert "process" in reported["message"]
    assert agent.geometry() == [SEVEN, SEVEN]
    assert len(agent.writes()) == before
    assert agent.deploy() == DEPLOY


def test_4_4_and_when_it_is_free_the_same_request_is_met_by_itself(make_agent: MakeAgent) -> None:
    # 6.2: the peer never tries the same value again.
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("mig: {strategy: mixed}\ntimes: {check-seconds: 5}")
    settled(agent)
    agent.sim.hold(0, agent.sim.show()["gpus"][0]["instances"][0]["id"])
    agent.request("all-3g.20gb", "failed", "Held")
    agent.sim.release(0, agent.sim.show()["gpus"][0]["instances"][0]["id"])
    agent.reaches("success", "all-3g.20gb")


def test_4_4_a_mode_change_that_cannot_be_leaves_nothing_pending(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.start()
    agent.sim.hold(0)
    reported = agent.request("all-1g.5gb", "failed", "Held")
    assert "process" in reported["message"]
    gpu = agent.sim.show()["gpus"][0]
    assert gpu["mig"]["current"] == gpu["mig"]["pending"] == "disabled"
    assert agent.deploy() == DEPLOY


# -- 4.5: hardware


def test_4_5_an_instance_without_compute_instance_is_repaired_at_the_first_try(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.sim.set_mode(0, True)
    agent.sim.create(0, "3g.20gb", 4, compute=False)
    agent.start()
    agent.request("all-3g.20gb")
    assert agent.geometry()[0] == ["3g.20gb@0", "3g.20gb@4"]


def test_4_5_a_gpu_without_mig_beside_is_no_reason_to_rebuild_for_ever(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb,tesla-t4")
    agent.start()
    agent.request("all-1g.5gb")
    before = agent.writes()
    agent.stop()
    agent.start()
    time.sleep(1.5)
    agent.reaches("success", "all-1g.5gb")
    assert agent.writes() == before


# -- 6.2: triggers


def test_6_2_an_edited_configmap_counts(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    with_custom(agent, want="3g.20gb: 1")
    agent.start()
    agent.request("want")
    agent.configure("custom", custom(want="7g.40gb: 1"))
    agent.until(lambda: agent.geometry()[0] == ["7g.40gb@0"], "the edited config")
    agent.reaches("success", "want")


def test_6_2_a_label_that_is_removed_in_the_middle_is_no_failure(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    _pod(agent, "plugin-x", {"app": "nvidia-device-plugin-daemonset"})
    agent.start()
    agent.label(config="all-1g.5gb")
    agent.until(lambda: agent.labels().get(names.STATE_LABEL) == "pending", "pending")
    agent.label(config=None)
    agent.until(lambda: agent.status().get("reason") == "NoWish", "no wish")
    assert names.STATE_LABEL not in agent.labels()
    agent.until(lambda: agent.deploy() == DEPLOY, "given back")
    assert not agent.writes()


def test_6_2_a_newer_request_ends_a_wait_for_an_older_one(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    _pod(agent, "plugin-x", {"app": "nvidia-device-plugin-daemonset"})
    agent.start()
    agent.label(config="all-1g.5gb")
    agent.until(lambda: agent.labels().get(names.STATE_LABEL) == "pending", "pending")
    agent.request("all-disabled")
    assert not agent.writes()
    assert agent.deploy() == DEPLOY


def test_6_2_drift_heals(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("mig: {strategy: mixed}\ntimes: {check-seconds: 5}")
    settled(agent)
    agent.sim.destroy(0, agent.sim.show()["gpus"][0]["instances"][3]["id"])
    agent.until(lambda: agent.geometry()[0] == SEVEN, "healed")
    reported = agent.reaches("success", "all-1g.5gb")
    assert "created 1x 1g.5gb" in reported["message"]
    assert "6 instances kept" in reported["message"]


# -- 6.4: order of steps


def test_6_4_no_d_bus_is_no_reason_to_fail(make_agent: MakeAgent) -> None:
    # On hosts without systemd (Talos) the peer fails before it writes any state.
    agent = make_agent("a100-sxm4-40gb")
    agent.environment["HOST_ROOT_MOUNT"] = str(agent.folder / "empty")
    agent.start()
    agent.request("all-1g.5gb")


def test_6_4_no_systemd_where_services_were_to_stop_is_none_either(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    (agent.folder / "talos" / "run").mkdir(parents=True)
    agent.environment |= {"HOST_ROOT_MOUNT": str(agent.folder / "talos"), "WITH_SHUTDOWN_HOST_GPU_CLIENTS": "true"}
    agent.start()
    agent.request("all-1g.5gb")
    assert "nothing, none of them is running" in agent.log()


def test_6_4_a_host_that_cannot_be_reached_is_reported(make_agent: MakeAgent) -> None:
    # The twin: services may run there that the agent cannot stop.
    agent = make_agent("a100-sxm4-40gb")
    agent.environment |= {"HOST_ROOT_MOUNT": str(agent.folder / "empty"), "WITH_SHUTDOWN_HOST_GPU_CLIENTS": "true"}
    agent.start()
    reported = agent.request("all-1g.5gb", "failed", "HostClientsStay")
    assert "nothing of the host is mounted" in reported["message"]
    assert agent.deploy() == DEPLOY
    assert not agent.writes()


def test_6_4_cordon_only_if_asked_and_lifted_again(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("mig: {strategy: mixed}\nholders: {cordon: true}")
    agent.start()
    agent.request("all-1g.5gb")
    assert not agent.node()["spec"].get("unschedulable")
    agent.patch({"spec": {"unschedulable": True}})
    agent.request("all-3g.20gb")
    assert agent.node()["spec"]["unschedulable"] is True, "a person's cordon is not ours to lift"


# -- 6.5: failure exits


def test_6_5_a_failure_after_a_success_gives_everything_back(make_agent: MakeAgent) -> None:
    # The peer's flags are never cleared: any failure after the first success leaves all operands paused.
    agent = make_agent("a100-sxm4-40gb")
    settled(agent)
    agent.sim.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999)
    reported = agent.request("all-3g.20gb", "failed", "ApplyFailed")
    assert agent.deploy() == DEPLOY
    assert "former state" in reported["message"] or "not all" in reported["message"]


def test_6_5_clients_that_stay_end_in_failed_not_in_pending_for_ever(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("mig: {strategy: mixed}\ntimes: {operands-seconds: 2, retry-first-seconds: 60}")
    _pod(agent, "plugin-x", {"app": "nvidia-device-plugin-daemonset"})
    agent.start()
    agent.label(config="all-1g.5gb")
    awaited = f"; waiting for GPU clients to end: {NAMESPACE}/plugin-x"
    agent.until(lambda: agent.status().get("message", "").endswith(awaited), "what pending waits for")
    reported = agent.reaches("failed", "all-1g.5gb", "ClientsStay")
    assert "plugin-x" in reported["message"]
    assert agent.deploy() == DEPLOY
    assert not agent.writes()
    agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/plugin-x?gracePeriodSeconds=0")
    agent.label(config="all-3g.20gb")
    agent.reaches("success", "all-3g.20gb")


def test_6_5_false_stays_false_and_absent_stays_absent(make_agent: MakeAgent) -> None:
    labels = {f"{names.DEPLOY_PREFIX}dcgm": "false", f"{names.DEPLOY_PREFIX}device-plugin": "true"}
    agent = make_agent("a100-sxm4-40gb", labels=labels)
    agent.start()
    agent.request("no-such-config", "failed", "UnknownConfig")
    assert agent.deploy() == labels
    agent.request("all-1g.5gb")
    assert agent.deploy() == labels


def test_6_5_what_a_dead_manager_left_paused_is_healed(make_agent: MakeAgent) -> None:
    # Also by the 'already applied' shortcut, which does not heal in the peer.
    agent = make_agent("a100-sxm4-40gb")
    settled(agent)
    agent.kill()
    agent.label(**{f"{names.DEPLOY_PREFIX}dcgm": names.PAUSED})
    agent.start()
    agent.until(lambda: agent.deploy() == DEPLOY, "healed")


def test_6_5_a_reset_that_is_refused_is_undone_and_reported(make_agent: MakeAgent) -> None:
    # The peer leaves the mode pending, and it applies to the node at its next reboot.
    agent = make_agent("a100-sxm4-40gb")
    with agent.client():
        agent.start()
        reported = agent.request("all-1g.5gb", "failed", "ApplyFailed")
    assert "client" in reported["message"] or "in use" in reported["message"].lower()
    gpu = agent.sim.show()["gpus"][0]
    assert gpu["mig"]["pending"] == "disabled"
    assert agent.deploy() == DEPLOY


def test_6_5_with_reboot_the_node_reboots_once_and_gets_there(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.environment["WITH_REBOOT"] = "true"
    boot = agent.sim.show()["boot_id"]
    with agent.client():
        agent.start()
        agent.request("all-1g.5gb")
    assert agent.sim.show()["boot_id"] != boot
    assert agent.geometry()[0] == SEVEN
    assert agent.deploy() == DEPLOY
    assert "node label to 'rebooting'" in agent.log()


def test_6_5_no_polling_delay(make_agent: MakeAgent) -> None:
    # The peer's shortest pass takes 6 s, 4 of them unconditional.
    agent = make_agent("a100-sxm4-40gb")
    agent.start()
    agent.until(lambda: agent.status().get("reason") == "NoWish", "started")
    begun = time.monotonic()
    agent.request("all-1g.5gb")
    assert time.monotonic() - begun < 4


def _pod(agent: Agent, name: str, labels: dict[str, str]) -> None:
    agent.create(
        "pods",
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "nodeName": agent.name,
                "containers": [{"name": "main", "image": "x"}],
                "terminationGracePeriodSeconds": 0,
            },
        },
        NAMESPACE,
    )
