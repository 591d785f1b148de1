"""The union of a definition in the cluster with ours: what pcidevices takes away, and what a newer one adds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.kubernetes.virtual_machines.harvester.crd_merge import missing_parts, unite

JSON = dict[str, Any]
LIMITS = {"enum", "pattern", "format", "minimum", "maximum", "minLength", "maxLength", "required"}
OURS = {each["spec"]["names"]["plural"]: each for each in crds.definitions()}


def of_pcidevices(plural: str) -> JSON:
    """Return a definition as pcidevices writes it: without conditions and rules, with nullable texts."""
    found = copy.deepcopy(OURS[plural])
    found["metadata"] = {"name": found["metadata"]["name"], "resourceVersion": "12", "uid": "u"}
    (version,) = found["spec"]["versions"]
    _plain(version["schema"]["openAPIV3Schema"])
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    for name in ("conditions", "observedGeneration", "appliedBoot", "differences"):
        status["properties"].pop(name, None)
    found["spec"]["conversion"] = {"strategy": "None"}
    return found


def _plain(schema: JSON) -> None:
    for key in [key for key in schema if key not in ("type", "properties", "items", "additionalProperties")]:
        del schema[key]
    if schema.get("type") == "string":
        schema["nullable"] = True
    for each in (*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])):
        _plain(each)


def schema_of(definition: JSON) -> JSON:
    found: JSON = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


@pytest.mark.parametrize("plural", OURS)
def test_fields_and_rules_that_pcidevices_took_are_back(plural: str) -> None:
    live = of_pcidevices(plural)
    missing = missing_parts(live, OURS[plural])
    assert {"status.conditions", "status.observedGeneration"} <= set(missing)
    united = unite(live, OURS[plural])
    assert missing_parts(united, OURS[plural]) == ()
    status = schema_of(united)["properties"]["status"]
    assert status["x-kubernetes-preserve-unknown-fields"] is True
    assert status["properties"].keys() == schema_of(OURS[plural])["properties"]["status"]["properties"].keys()
    assert schema_of(united).get("x-kubernetes-validations") == schema_of(OURS[plural]).get("x-kubernetes-validations")


def test_it_applies_to_the_version_that_was_read_and_leaves_the_conversion_alone() -> None:
    united = unite(of_pcidevices("vgpudevices"), OURS["vgpudevices"])
    assert united["metadata"] == {
        "name": "vgpudevices.devices.harvesterhci.io", "resourceVersion": "12", "uid": "u",
    }  # fmt: skip
    assert united["spec"].keys() == {"group", "names", "scope", "versions"}


def test_a_newer_harvester_keeps_its_versions_fields_words_and_types() -> None:
    live = of_pcidevices("migconfigurations")
    (old,) = live["spec"]["versions"]
    old["storage"] = False
    live["spec"]["versions"].insert(0, {**copy.deepcopy(old), "name": "v1", "storage": True})
    fields = schema_of({"spec": {"versions": [old]}})["properties"]
    fields["status"]["properties"]["status"]["enum"] = ["synced", "failed"]
    fields["spec"]["properties"]["policy"] = {"type": "string"}
    fields["spec"]["properties"]["enabled"] = {"type": "string"}
    first, second = unite(live, OURS["migconfigurations"])["spec"]["versions"]
    assert (first["name"], first["storage"], second["storage"]) == ("v1", True, False)
    assert first == live["spec"]["versions"][0]
    fields = second["schema"]["openAPIV3Schema"]["properties"]
    assert fields["status"]["properties"]["status"]["enum"] == ["synced", "failed", "", "out-of-sync", "disabled"]
    assert fields["spec"]["properties"]["policy"] == fields["spec"]["properties"]["enabled"] == {"type": "string"}


@pytest.mark.parametrize("plural", OURS)
def test_a_status_that_the_live_definition_accepts_is_still_accepted(plural: str) -> None:
    # A newer pcidevices may report words that we do not know. Each refused status would stop its agents.
    live = of_pcidevices(plural)
    before = schema_of(live)["properties"]["status"]["properties"]
    before["conditions"] = {"type": "array", "items": {"type": "object", "properties": {"reason": {"type": "string"}}}}
    after = schema_of(unite(live, OURS[plural]))["properties"]["status"]["properties"]
    pairs = [(before[name], after[name]) for name in before if name != "conditions"]
    pairs.append(tuple(each["conditions"]["items"]["properties"]["reason"] for each in (before, after)))
    for old, new in pairs:
        assert LIMITS.isdisjoint(new.keys() - old.keys())


def test_our_version_is_added_without_being_stored() -> None:
    live = of_pcidevices("vgpudevices")
    live["spec"]["versions"][0]["name"] = "v1"
    versions = unite(live, OURS["vgpudevices"])["spec"]["versions"]
    assert [(each["name"], each["storage"]) for each in versions] == [("v1", True), ("v1beta1", False)]
    assert missing_parts(live, OURS["vgpudevices"]) == ("version v1beta1",)


def test_a_column_that_an_older_pcidevices_lacks_is_named() -> None:
    live = copy.deepcopy(OURS["migconfigurations"])
    live["spec"]["versions"][0]["additionalPrinterColumns"].pop()
    assert missing_parts(live, OURS["migconfigurations"]) == ("column Message",)
