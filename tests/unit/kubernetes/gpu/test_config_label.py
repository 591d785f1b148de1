"""Labels with an unknown named config: hints contain only configs that the node's GPUs can have."""

from __future__ import annotations

from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.generate import generate
from aliquot.kubernetes.gpu.config_label import DATA_KEY, ConfigFailure, NamedConfigSource, config_map_source, resolve
from aliquot.kubernetes.gpu.node_document import DocumentSource
from aliquot.kubernetes.manifests.config_maps import fallback
from support.agent_observations import node

H100 = node("h100-80gb-hbm3")
GENERATED = config_map_source("gpu-operator/gpu-1-mig-config", {DATA_KEY: to_yaml(generate(H100))})
EVERY_GPU = config_map_source("gpu-operator/default-mig-parted-config", {DATA_KEY: fallback()})


def failure(label: str, *sources: NamedConfigSource) -> ConfigFailure:
    found = resolve(label, sources, H100).failure
    assert found is not None
    return found


def test_a_near_name_is_one_for_these_gpus() -> None:
    found = failure("all-1g.10gbb", GENERATED, EVERY_GPU)
    assert (
        found.message == "no named config 'all-1g.10gbb' (did you mean all-1g.10gb or all-1g.20gb or all-1g.10gb.me?)"
    )
    assert "all-1g.10gb," in found.details[0]
    assert "all-1g.5gb" not in found.details[0]


def test_nothing_is_offered_where_nothing_is_for_these_gpus() -> None:
    text = "version: v1\nmig-configs:\n  a100:\n  - {device-filter: '0x20B010DE', devices: all, mig-enabled: false}\n"
    found = failure("a10", config_map_source("gpu-operator/custom", {DATA_KEY: text}))
    assert found.message == "no named config 'a10'"
    assert found.details == ("available: none for these GPUs",)


def test_a_misspelt_profile_in_a_file_is_one_of_these_gpus() -> None:
    text = "version: v1\nmig-configs:\n  x:\n  - {devices: all, mig-enabled: true, mig-devices: {1g.0bg: 1}}\n"
    found = failure("x", config_map_source("gpu-operator/custom", {DATA_KEY: text}))
    assert found.message.endswith("(did you mean 1g.20gb or 1g.10gb or 1g.10gb+me?)")


def test_a_config_for_other_gpus_is_answered_with_the_configs_of_these() -> None:
    desired = resolve("all-2g.10gb", (GENERATED, EVERY_GPU), H100).desired
    assert desired is not None
    assert [(f.rule, f.next_step) for f in desired.failures] == [
        ("NOTHING_MATCHES", "kubectl get configmap -n gpu-operator gpu-1-mig-config -o yaml")
    ]


def test_only_a_config_map_has_a_command_to_list_it() -> None:
    missing = config_map_source("gpu-operator/custom", None)
    assert failure("x", missing).next_step == "kubectl create configmap -n gpu-operator custom --from-file=config.yaml"
    for data in ({"configs.yaml": "x"}, {DATA_KEY: "version: v1\nmig-configs: ["}, {DATA_KEY: ""}):
        bad = config_map_source("gpu-operator/custom", data)
        assert failure("x", bad).next_step == "kubectl edit configmap -n gpu-operator custom", "it exists"
    assert failure("", EVERY_GPU).next_step.startswith(
        "kubectl get configmap -n gpu-operator default-mig-parted-config"
    )
    file = NamedConfigSource("ConfigMap of mine.yaml", None, "it is missing")
    assert failure("x", file).next_step == ""


def test_a_document_tells_config_maps_from_files_by_their_titles() -> None:
    sources = (config_map_source("ns/a", {DATA_KEY: "x"}).name, "/etc/mig/config.yaml")
    assert [DocumentSource(each).config_map for each in sources] == ["ns/a", ""]
