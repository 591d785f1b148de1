"""Rules and dashboard: accepted by promtool and a real Prometheus, tested alert by alert, and limited to our metric
names.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from aliquot.metrics.apply_metrics import HELD_CODES
from aliquot.metrics.registry import NAMES, TABLE, base
from system.prometheus.bed import ROOT, RULES, promtool
from system.prometheus.conftest import MakePrometheus

TESTS = ROOT / "deploy/prometheus/tests/aliquot.tests.yaml"
DASHBOARD = ROOT / "deploy/prometheus/aliquot.dashboard.json"
_NAME = re.compile(r"(?<![A-Za-z0-9_:])aliquot_[a-z0-9_]+")
_RECORDED = re.compile(r"[a-z_]+:aliquot_[a-z_]+:[a-z]+")


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.load(RULES.read_text(), yaml.CSafeLoader)["groups"] for rule in group["rules"]]


def names(expression: str) -> set[str]:
    """Return our metrics in an expression, except recorded ones."""
    return {base(name) for name in _NAME.findall(_RECORDED.sub("", expression))}


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(TESTS))


@pytest.mark.parametrize("name", ["aliquot-metrics", "aliquot-textfile"])
def test_a_unit_can_keep_what_it_saw_and_leaves_the_lock_where_it_is(name: str) -> None:
    # A folder that does not exist when the unit starts cannot be created below a file system that is read-only.
    unit = (ROOT / f"deploy/prometheus/{name}.service").read_text().splitlines()
    assert {"StateDirectory=aliquot", "RuntimeDirectory=aliquot", "RuntimeDirectoryPreserve=yes"} <= set(unit)


def test_what_ends_when_its_holder_lets_go_is_waited_for_and_nothing_else() -> None:
    known = {rule.get("alert"): rule["expr"] for rule in rules()}
    rest = "|".join(rule for rule in HELD_CODES if rule != "IN_USE")
    assert f'{{rule=~"{rest}"}}' in known["AliquotWishHeld"]
    assert f'{{rule!~"{rest}"}}' in known["AliquotWishBlocked"]


def test_every_alert_is_seen_to_fire_and_not_to_fire() -> None:
    seen: dict[str, set[bool]] = {}
    for group in yaml.safe_load(TESTS.read_text())["tests"]:
        for each in group.get("alert_rule_test", ()):
            seen.setdefault(each["alertname"], set()).add(bool(each["exp_alerts"]))
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert seen == {name: {True, False} for name in alerts}


@pytest.mark.parametrize("name", [rule["alert"] for rule in rules() if "alert" in rule])
def test_an_alert_names_what_to_do(name: str) -> None:
    rule = next(rule for rule in rules() if rule.get("alert") == name)
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert anchor == name.lower()
    assert f"### {name}\n" in (ROOT / page).read_text()


def test_rules_and_dashboard_use_names_of_the_table() -> None:
    used = {n for rule in rules() for n in names(rule["expr"])}
    used |= {n for expression in expressions() for n in names(expression)}
    assert used <= set(NAMES)
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {n for text in (*(r["expr"] for r in rules()), *expressions()) for n in _RECORDED.findall(text)}
    assert asked <= recorded


def test_labels_in_selectors_are_labels_of_the_table() -> None:
    known = {label for row in TABLE for label in row.labels} | {"job", "instance", "le"}
    for text in (*(r["expr"] for r in rules()), *expressions()):
        for inner in re.findall(r"\{([^}]*)\}", text):
            assert set(re.findall(r"(\w+)\s*(?:=|!)", inner)) <= known, text


def panels(found: Any) -> Iterator[dict[str, Any]]:
    for panel in found.get("panels", ()):
        yield panel
        yield from panels(panel)


def expressions() -> list[str]:
    """Return the expressions of all panels and variables, with Grafana's own variables filled in."""
    found = json.loads(DASHBOARD.read_text())
    texts = [target["expr"] for panel in panels(found) for target in panel.get("targets", ())]
    return [text.replace("$__rate_interval", "5m").replace("$__range", "1h") for text in texts]


def test_every_expression_of_the_dashboard_is_answered(prometheus: MakePrometheus) -> None:
    asked = prometheus({}, RULES)
    for text in expressions():
        plain = re.sub(r"\$\{?(\w+)\}?", ".*", text)
        asked.api("query", query=plain)


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    found = json.loads(DASHBOARD.read_text())
    assert found["uid"] == "aliquot"
    every = list(panels(found))
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in every:
        assert panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["description"]
    assert {v["name"] for v in found["templating"]["list"]} == {"datasource", "node"}


def test_rules_are_the_same_for_the_operator() -> None:
    wrapped = yaml.safe_load((ROOT / "deploy/prometheus/prometheusrule.yaml").read_text())
    assert wrapped["kind"] == "PrometheusRule"
    assert wrapped["spec"]["groups"] == yaml.safe_load(RULES.read_text())["groups"]


def test_files_made_by_the_tool_are_current() -> None:
    tool = ROOT / "tools/build_metrics.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
