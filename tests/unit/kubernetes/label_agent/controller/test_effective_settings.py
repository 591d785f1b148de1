"""Settings of the whole cluster: those in effect while the ConfigMap is invalid."""

from __future__ import annotations

from aliquot.core.config.settings import Layer
from aliquot.kubernetes.client.objects import ConfigMap
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.controller.cluster_policy_settings import PolicySettings
from aliquot.kubernetes.label_agent.controller.effective_settings import MergedSettings

NONE = PolicySettings(Layer("no ClusterPolicy"))
BAD = ConfigMap(data={names.SETTINGS_KEY: "version: aliquot/v1\ntimes: {check-seconds: 2}"})


def test_the_earlier_value_holds() -> None:
    merged = MergedSettings()
    text = 'version: aliquot/v1\nmig: {config-map: ours, default-config: ""}'
    before, faults = merged.read(NONE, ConfigMap(data={names.SETTINGS_KEY: text}))
    assert (before.config_map, before.default_config, faults) == ("ours", "", ())
    now, faults = merged.read(NONE, BAD)
    assert now == before
    assert "check-seconds" in faults[0]
    later, faults = merged.read(NONE, None)
    assert (later.config_map, later.default_config, faults) == ("", "all-disabled", ())


def test_until_they_were_understood_once_no_node_gets_a_config() -> None:
    value, faults = MergedSettings().read(NONE, BAD)
    assert (value.default_config, value.hints, len(faults)) == ("", False, 1)
    policy = PolicySettings(Layer("ClusterPolicy", {"default_config": "all-disabled"}))
    assert MergedSettings().read(policy, BAD)[0].default_config == "all-disabled"
