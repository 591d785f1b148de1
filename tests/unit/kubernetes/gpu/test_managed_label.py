"""The two labels that request a named config: what each takes from the node and from the settings."""

from __future__ import annotations

import pytest

from aliquot.core.config.settings import AgentSettings
from aliquot.kubernetes.gpu.managed_label import MIG, VGPU, ManagedLabel

SETTINGS = AgentSettings(config_map="migs", vgpu_config_map="vgpus", vgpu_manage=False, vgpu_default_config="usual")


@pytest.mark.parametrize(
    ("managed", "value", "default", "requested"),
    [
        (MIG, None, "usual", None),
        (MIG, "", "usual", ""),
        (MIG, "all-1g.5gb", "usual", "all-1g.5gb"),
        (VGPU, None, "usual", "usual"),
        (VGPU, "", "usual", "usual"),
        (VGPU, "A2-4Q", "usual", "A2-4Q"),
        (VGPU, None, "", None),
        (VGPU, "", "", ""),
    ],
    ids=lambda value: value.name.partition("/")[2] if isinstance(value, ManagedLabel) else None,
)
def test_only_a_node_for_vms_has_a_default(
    managed: ManagedLabel, value: str | None, default: str, requested: str | None
) -> None:
    labels = {} if value is None else {managed.name: value}
    assert managed.requested(labels, AgentSettings(vgpu_default_config=default)) == requested


def test_the_devices_of_vms_are_offered_by_others() -> None:
    assert MIG.settings(SETTINGS) is SETTINGS
    found = VGPU.settings(SETTINGS)
    assert (found.manage, found.config_map) == (False, "vgpus")
    assert (found.device_plugin, found.cdi, found.labels) == (False, False, False)


def test_names_are_nvidias() -> None:
    assert (VGPU.name, VGPU.state) == ("nvidia.com/vgpu.config", "nvidia.com/vgpu.config.state")
    assert (MIG.name, MIG.state) == ("nvidia.com/mig.config", "nvidia.com/mig.config.state")
