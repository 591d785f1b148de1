"""Target state of the webhook configurations, from their current state."""

from __future__ import annotations

from typing import Any

from aliquot.kubernetes.manifests import webhooks
from aliquot.kubernetes.manifests.values import Values
from aliquot.kubernetes.virtual_machines.webhook.registration import merge

HOOKS = webhooks.hooks(Values(namespace="vms"))[webhooks.VALIDATING]
DEVICES = HOOKS[0]


def named(found: list[Any], name: str) -> Any:
    return next(each for each in found if each["name"] == name)


def test_an_empty_configuration_gets_all_webhooks_with_the_authority() -> None:
    found = merge([], HOOKS, "authority")
    assert [each["name"] for each in found] == [each["name"] for each in HOOKS]
    assert {each["clientConfig"]["caBundle"] for each in found} == {"authority"}
    assert {each["clientConfig"]["service"]["namespace"] for each in found} == {"vms"}
    assert merge(found, HOOKS, "authority") == found


def test_what_an_administrator_set_and_the_api_server_filled_in_stays() -> None:
    live = [each | {"namespaceSelector": {}, "objectSelector": {}} for each in merge([], HOOKS, "authority")]
    live[0] = live[0] | {"failurePolicy": "Ignore", "timeoutSeconds": 3}
    assert merge(live, HOOKS, "authority") == live
    assert named(merge(live, HOOKS, "another"), DEVICES["name"])["failurePolicy"] == "Ignore"


def test_another_versions_rules_are_replaced_and_its_webhooks_go() -> None:
    old = DEVICES | {"rules": [], "matchConditions": []}
    gone, foreign = DEVICES | {"name": "gone.aliquot.dev"}, {"name": "other.example", "rules": []}
    found = merge([old, gone, foreign], HOOKS, "authority")
    assert named(found, DEVICES["name"])["rules"] == DEVICES["rules"]
    assert "gone.aliquot.dev" not in [each["name"] for each in found]
    assert named(found, "other.example") == foreign


def test_webhooks_that_are_reached_by_url_keep_it() -> None:
    live = webhooks.hooks(Values(namespace="vms"), url="https://localhost:1")[webhooks.VALIDATING]
    found = merge(live, HOOKS, "authority")
    reached = [each["clientConfig"] | {"caBundle": "authority"} for each in live]
    assert [each["clientConfig"] for each in found] == reached
