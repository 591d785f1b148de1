"""Which settings hold on a node."""

from __future__ import annotations

from aliquot.core.config.settings import Layer, merge
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.agent.settings import Place, layers

POLICY = {names.SETTINGS_KEY: "version: aliquot/v1\ndevice-plugin: {enabled: false}\nlabels: {enabled: false}\n"}
OURS = {names.SETTINGS_KEY: "version: aliquot/v1\ndevice-plugin: {enabled: false}\n"}
AWAY = {f"{names.DEPLOY_PREFIX}device-plugin": "false"}


def test_ours_is_off_exactly_where_the_operators_runs() -> None:
    said, _, _ = layers(Place("n"), {names.EFFECTIVE_MAP: POLICY}, {}, {})
    assert not merge(said).device_plugin
    said, _, _ = layers(Place("n"), {names.EFFECTIVE_MAP: POLICY}, {}, AWAY)
    assert merge(said).device_plugin
    assert not merge(said).labels


def test_what_our_own_settings_switch_off_stays_off() -> None:
    said, _, _ = layers(Place("n"), {names.SETTINGS_MAP: OURS}, {}, AWAY)
    assert not merge(said).device_plugin


def test_the_last_good_text_holds_and_the_fault_is_told() -> None:
    good: dict[str, Layer] = {}
    layers(
        Place("n"), {names.SETTINGS_MAP: {names.SETTINGS_KEY: "version: aliquot/v1\nmig: {strategy: mixed}"}}, good, {}
    )
    bad = {names.SETTINGS_MAP: {names.SETTINGS_KEY: "version: aliquot/v1\nmig: {strategy: mixd}"}}
    said, faults, unclear = layers(Place("n"), bad, good, {})
    assert merge(said).strategy == "mixed"
    assert not faults
    assert "mixd" in unclear[0]
    _, faults, unclear = layers(Place("n"), bad, {}, {})
    assert faults
    assert not unclear
