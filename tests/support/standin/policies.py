"""ValidatingAdmissionPolicy and its bindings: accepted if their expressions can be parsed, evaluated at every write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.standin import cel, matching
from support.standin.answers import Cause, RefusalError, forbidden
from support.standin.call import Call
from support.standin.store import Store

JSON = dict[str, Any]
_GROUP = "admissionregistration.k8s.io"
POLICIES, BINDINGS = f"validatingadmissionpolicies.{_GROUP}", f"validatingadmissionpolicybindings.{_GROUP}"
_KNOWN = ("object", "oldObject", "request", "namespaceObject", "variables")
_CODES = {"Invalid": 422, "Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}
ACTIONS = ("Audit", "Deny", "Warn")


def fill(value: JSON) -> None:
    spec = value["spec"]
    spec.setdefault("failurePolicy", "Fail")
    _fill_match(spec.setdefault("matchConstraints", {}))


def fill_binding(value: JSON) -> None:
    if "matchResources" in value["spec"]:
        _fill_match(value["spec"]["matchResources"])


def _fill_match(rules: JSON) -> None:
    rules.setdefault("matchPolicy", "Equivalent")
    rules.setdefault("namespaceSelector", {})
    rules.setdefault("objectSelector", {})
    for rule in rules.get("resourceRules") or ():
        rule.setdefault("scope", "*")


def check(new: JSON, _: JSON | None) -> list[Cause]:
    """Return the errors of a policy. An expression that the stand-in cannot evaluate is an error, where the real server
    would accept it.
    """
    spec, found = new["spec"], []
    if not (spec.get("matchConstraints") or {}).get("resourceRules"):
        found.append(Cause.required("spec.matchConstraints"))
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        found += [Cause.required(f"spec.{name}", why) for name in ("validations", "auditAnnotations")]
    if spec.get("paramKind"):
        found.append(Cause.forbidden("spec.paramKind", "the stand-in evaluates no parameters"))
    for key, field in (("matchConditions", "expression"), ("variables", "expression"), ("validations", "expression")):
        for n, row in enumerate(spec.get(key) or ()):
            found += _expression(row.get(field, ""), f"spec.{key}[{n}].{field}")
    for n, row in enumerate(spec.get("validations") or ()):
        if row.get("messageExpression"):
            found += _expression(row["messageExpression"], f"spec.validations[{n}].messageExpression")
    return found


def _expression(text: str, field: str) -> list[Cause]:
    if not text.strip():
        return [Cause.required(field, "expression is not specified")]
    fault = cel.fault(text, _KNOWN)
    return [Cause.invalid(field, text, f"compilation failed: {fault}")] if fault else []


def check_binding(new: JSON, _: JSON | None) -> list[Cause]:
    spec, found = new["spec"], []
    if not spec.get("policyName"):
        found.append(Cause.required("spec.policyName"))
    actions = spec.get("validationActions") or []
    if not actions:
        found.append(Cause.required("spec.validationActions", "at least one validation action is required"))
    for n, action in enumerate(actions):
        if action not in ACTIONS:
            found.append(Cause.unsupported(f"spec.validationActions[{n}]", action, ACTIONS))
    return found


class Policies:
    """The plugin that evaluates every bound policy about a write."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def validate(self, call: Call, new: JSON | None, old: JSON | None) -> None:
        """Refuse a write that a policy denies.

        Raises:
            RefusalError: 422 unless the policy gives another reason
        """
        for binding in self._store.items(BINDINGS):
            policy = self._store.get(POLICIES, "", binding["spec"]["policyName"])
            if policy is None or "Deny" not in binding["spec"].get("validationActions", ()):
                continue
            narrowed = binding["spec"].get("matchResources")
            rules = policy["spec"]["matchConstraints"]
            if not matching.matches(self._store, call, rules, new, old, key="resourceRules"):
                continue
            if narrowed and not self._narrowed(call, narrowed, new, old):
                continue
            self._ask(call, policy, binding, new, old)

    def _narrowed(self, call: Call, rules: JSON, new: JSON | None, old: JSON | None) -> bool:
        everything = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*", "*/*"]}]
        rules = {**rules, "resourceRules": rules.get("resourceRules") or everything}
        return matching.matches(self._store, call, rules, new, old, key="resourceRules")

    def _ask(self, call: Call, policy: JSON, binding: JSON, new: JSON | None, old: JSON | None) -> None:
        spec, variables = policy["spec"], self._variables(call, policy["spec"], new, old)
        strict = spec["failurePolicy"] == "Fail"
        try:
            if not all(cel.evaluate(row["expression"], variables) for row in spec.get("matchConditions") or ()):
                return
        except cel.CelError as error:
            if strict:
                raise _denied(call, new, policy, binding, f"failed to evaluate match conditions: {error}") from None
            return
        for row in spec.get("validations") or ():
            try:
                fine = cel.evaluate(row["expression"], variables) is True
                why = "" if fine else _message(row, variables)
            except cel.CelError as error:
                fine = not strict
                why = f"expression '{row['expression']}' resulted in error: {error}"
            if not fine:
                raise _denied(call, new, policy, binding, why, row.get("reason", "Invalid"))

    def _variables(self, call: Call, spec: JSON, new: JSON | None, old: JSON | None) -> dict[str, Any]:
        namespace = self._store.get("namespaces.", "", call.namespace) if call.kind.namespaced else None
        asked = matching.request(call, "", new, old)
        found: dict[str, Any] = {"object": new, "oldObject": old, "request": asked, "namespaceObject": namespace}
        lazy: dict[str, Callable[[], Any]] = {}
        for row in spec.get("variables") or ():
            lazy[row["name"]] = lambda text=row["expression"]: cel.evaluate(text, found)  # type: ignore[misc]
        found["variables"] = lazy
        return found


def _message(row: JSON, variables: dict[str, Any]) -> str:
    if row.get("messageExpression"):
        try:
            found = cel.evaluate(row["messageExpression"], variables)
        except cel.CelError:
            found = None
        if isinstance(found, str) and found.strip() and "\n" not in found:
            return found
    return row.get("message") or f"failed expression: {row['expression'].strip()}"


def _denied(
    call: Call, new: JSON | None, policy: JSON, binding: JSON, why: str, reason: str = "Invalid"
) -> RefusalError:
    names = (policy["metadata"]["name"], binding["metadata"]["name"])
    text = f"ValidatingAdmissionPolicy '{names[0]}' with binding '{names[1]}' denied request: {why}"
    meta = (new or {}).get("metadata", {})
    # The server generates names after this.
    name = call.name or ("" if meta.get("generateName") else meta.get("name", ""))
    refusal = forbidden(call.kind.plural, call.group, name, text)
    refusal.code, refusal.reason = _CODES.get(reason, 422), reason
    details = refusal.details or {}
    details["causes"] = [{"message": text.partition(": ")[0] + f": {why}"}]
    return refusal
