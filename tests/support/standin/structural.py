"""Structural schemas of custom resources: pruning, defaults, validation, with the real server's messages."""

from __future__ import annotations

import re
from typing import Any

from support.standin import cel
from support.standin.answers import Cause
from support.standin.cel_functions import Optional

JSON = dict[str, Any]
_JSON_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


def pruned(node: JSON, value: Any, path: str, unknown: list[str]) -> Any:
    """Return a value without the fields that the schema does not name. Their paths are added to ``unknown``."""
    if isinstance(value, list):
        entry = node.get("items")
        return [pruned(entry, one, f"{path}[{n}]", unknown) for n, one in enumerate(value)] if entry else value
    if not isinstance(value, dict):
        return value
    properties, more, result = node.get("properties", {}), node.get("additionalProperties"), {}
    for name, one in value.items():
        here = f"{path}.{name}" if path else name
        if node.get("embedded") and name in ("apiVersion", "kind", "metadata"):
            result[name] = one
        elif name in properties:
            result[name] = pruned(properties[name], one, here, unknown)
        elif more is not None:
            result[name] = pruned(more, one, here, unknown)
        elif node.get("preserve"):
            result[name] = one
        else:
            unknown.append(here)
    return result


def default(node: JSON, value: Any) -> None:
    """Insert the defaults in place. A null where null is not allowed counts as missing, and is removed."""
    if isinstance(value, list) and "items" in node:
        for one in value:
            default(node["items"], one)
    if not isinstance(value, dict):
        return
    for name, child in node.get("properties", {}).items():
        if name in value and value[name] is None and not child.get("nullable"):
            del value[name]
        if "default" in child and name not in value:
            value[name] = _copied(child["default"])
        if name in value:
            default(child, value[name])
    if "additionalProperties" in node:
        for name, one in value.items():
            if name not in node.get("properties", {}):
                default(node["additionalProperties"], one)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def causes(schema: JSON, new: JSON, old: JSON | None) -> list[Cause]:
    """Return all errors of an object. CEL rules are evaluated only if the rest is valid."""
    found: list[Cause] = []
    for name, child in (schema.get("properties") or {}).items():
        if name in new and name != "metadata":
            found += _value(child, new[name], name)
    found += [Cause.required(name) for name in schema.get("required") or () if name not in new]
    if not _has_rules(schema):
        return found
    if any(cause.reason in _BLOCKING for cause in found):
        return [*found, Cause.invalid("<nil>", None, _UNCHECKED)]
    return found + _rules(schema, new, old, "")


_BLOCKING = tuple(f"FieldValue{why}" for why in ("TypeInvalid", "NotSupported", "Required", "TooLong", "TooMany"))
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)


def _has_rules(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_has_rules(one) for one in schema)
    if not isinstance(schema, dict):
        return False
    return "x-kubernetes-validations" in schema or any(_has_rules(one) for one in schema.values())


def _value(node: JSON, value: Any, field: str) -> list[Cause]:
    if value is None:
        return [] if node.get("nullable") else [_wrong_type(node, value, field)]
    if not _fits(node, value):
        found = [_wrong_type(node, value, field)]
        if node.get("enum"):
            found.append(Cause.unsupported(field, value, [str(one) for one in node["enum"]]))
        if node.get("type") == "integer" and isinstance(value, float):
            why = f"Checked value must be of type integer (default format) in {field}"
            found.append(Cause.invalid("<nil>", "", why))
        return found
    found = _own(node, value, field)
    if isinstance(value, dict):
        properties = node.get("properties") or {}
        missing = {name for name in node.get("required") or () if value.get(name) is None}
        missing = {name for name in missing if name not in value or not properties.get(name, {}).get("nullable")}
        found += [Cause.required(f"{field}.{name}") for name in node.get("required") or () if name in missing]
        for name, one in value.items():
            if name in missing:
                continue
            child = properties.get(name) or node.get("additionalProperties")
            if isinstance(child, dict):
                found += _value(child, one, f"{field}.{name}")
    if isinstance(value, list) and isinstance(node.get("items"), dict):
        for n, one in enumerate(value):
            found += _value(node["items"], one, f"{field}[{n}]")
    return found


def _fits(node: JSON, value: Any) -> bool:
    if node.get("x-kubernetes-int-or-string"):
        return isinstance(value, int | str) and not isinstance(value, bool)
    kind = node.get("type")
    if kind is None:
        return True
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "integer":
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return whole and not isinstance(value, bool)
    return bool(_JSON_NAMES.get(type(value)) == kind)


def _wrong_type(node: JSON, value: Any, field: str) -> Cause:
    name = "null" if value is None else _JSON_NAMES[type(value)]
    wanted = "integer,string" if node.get("x-kubernetes-int-or-string") else node.get("type")
    return Cause.type_invalid(field, name, f'{field} in body must be of type {wanted}: "{name}"')


def _own(node: JSON, value: Any, field: str) -> list[Cause]:
    """Check limits on the value itself."""
    found: list[Cause] = []
    allowed = node.get("enum")
    if allowed and value not in allowed:
        found.append(Cause.unsupported(field, value, [str(one) for one in allowed]))
    if isinstance(value, str):
        found += _text(node, value, field)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found += _number(node, value, field)
    elif isinstance(value, list):
        found += _list(node, value, field)
    elif isinstance(value, dict) and len(value) > node.get("maxProperties", len(value)):
        why = f"must have at most {node['maxProperties']} items"
        found.append(Cause(field, "FieldValueTooMany", f"Too many: {len(value)}: {why}"))
    return found


def _text(node: JSON, value: str, field: str) -> list[Cause]:
    found: list[Cause] = []
    if len(value) > node.get("maxLength", len(value)):
        found.append(Cause.too_long(field, node["maxLength"]))
    if len(value) < node.get("minLength", 0):
        why = f"{field} in body should be at least {node['minLength']} chars long"
        found.append(Cause.invalid(field, value, why))
    if "pattern" in node and not re.search(node["pattern"], value):
        found.append(Cause.invalid(field, value, f"{field} in body should match '{node['pattern']}'"))
    return found


def _number(node: JSON, value: float, field: str) -> list[Cause]:
    found: list[Cause] = []
    least, most = node.get("minimum"), node.get("maximum")
    if least is not None and (value < least or (node.get("exclusiveMinimum") and value == least)):
        word = "greater than" if node.get("exclusiveMinimum") else "greater than or equal to"
        found.append(Cause.invalid(field, value, f"{field} in body should be {word} {least}"))
    if most is not None and (value > most or (node.get("exclusiveMaximum") and value == most)):
        word = "less than" if node.get("exclusiveMaximum") else "less than or equal to"
        found.append(Cause.invalid(field, value, f"{field} in body should be {word} {most}"))
    step = node.get("multipleOf")
    if step and value % step:
        found.append(Cause.invalid(field, value, f"{field} in body should be a multiple of {step}"))
    return found


def _list(node: JSON, value: list[Any], field: str) -> list[Cause]:
    found: list[Cause] = []
    if len(value) > node.get("maxItems", len(value)):
        found.append(Cause.too_many(field, len(value), node["maxItems"]))
    if len(value) < node.get("minItems", 0):
        why = f"{field} in body should have at least {node['minItems']} items"
        found.append(Cause.invalid(field, len(value), why))
    keys, seen = node.get("x-kubernetes-list-map-keys"), []
    unique = node.get("x-kubernetes-list-type") in ("set", "map")
    for n, one in enumerate(value):
        name = {key: one.get(key) for key in keys} if keys and isinstance(one, dict) else one
        if unique and name in seen:
            found.append(Cause.duplicate(f"{field}[{n}]", name))
        seen.append(name)
    return found


def _rules(node: JSON, new: Any, old: Any, field: str) -> list[Cause]:
    """Evaluate the ``x-kubernetes-validations`` of a value and of everything below it. Rules about ``oldSelf`` apply
    only to updates.
    """
    found: list[Cause] = []
    for rule in node.get("x-kubernetes-validations") or ():
        variables = {"self": new, **({"oldSelf": old} if old is not None else {})}
        if rule.get("optionalOldSelf"):
            variables["oldSelf"] = Optional(old is not None, old)
        elif re.search(r"\boldSelf\b", rule["rule"]) and old is None:
            continue
        if not _holds(rule["rule"], variables):
            message = rule.get("message") or f"failed rule: {rule['rule']}"
            reason = rule.get("reason", "FieldValueInvalid")
            where = field + rule.get("fieldPath", "") if field else rule.get("fieldPath", "").lstrip(".") or "<nil>"
            found.append(Cause(where, reason, f"Invalid value: {message}"))
    if isinstance(new, dict):
        for name, child in (node.get("properties") or {}).items():
            if name in new and name != "metadata":
                before = old.get(name) if isinstance(old, dict) else None
                found += _rules(child, new[name], before, f"{field}.{name}" if field else name)
    if isinstance(new, list) and isinstance(node.get("items"), dict):
        for n, one in enumerate(new):
            found += _rules(node["items"], one, None, f"{field}[{n}]")
    return found


def _holds(rule: str, variables: JSON) -> bool:
    try:
        return cel.evaluate(rule, variables) is True
    except cel.CelError:
        return False


def faults(schema: JSON, field: str) -> list[Cause]:
    """Return why a schema is not structural, as far as it is checked: types everywhere, rules that can be parsed."""
    found: list[Cause] = []
    untyped = not (schema.get("type") or schema.get("x-kubernetes-int-or-string"))
    if untyped and not schema.get("x-kubernetes-preserve-unknown-fields"):
        why = "must not be empty for specified object fields"
        if field.endswith("openAPIV3Schema"):
            why = "must not be empty at the root"
        elif field.endswith("items"):
            why = "must not be empty for specified array items"
        found.append(Cause.required(f"{field}.type", why))
    for n, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        fault = cel.fault(rule["rule"])
        if fault:
            where = f"{field}.x-kubernetes-validations[{n}].rule"
            found.append(Cause.invalid(where, rule["rule"], f"compilation failed: {fault}"))
    for name, child in (schema.get("properties") or {}).items():
        if name != "metadata" or not field.endswith("openAPIV3Schema"):
            found += faults(child, f"{field}.properties[{name}]")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            found += faults(schema[key], f"{field}.{key}")
    return found
