"""Refusals of the server: ``RefusalError``, which carries a ``Status`` body, and the usual refusals by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

JSON = dict[str, Any]


class Cause(msgspec.Struct, frozen=True):
    """An error in an object: the field, and what is wrong with it."""

    field: str
    reason: str
    message: str

    @classmethod
    def invalid(cls, field: str, value: object, why: str) -> Cause:
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {why}")

    @classmethod
    def required(cls, field: str, why: str = "") -> Cause:
        return cls(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")

    @classmethod
    def unsupported(cls, field: str, value: object, allowed: Iterable[str]) -> Cause:
        known = ", ".join(f'"{one}"' for one in allowed)
        return cls(field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {known}")

    @classmethod
    def forbidden(cls, field: str, why: str) -> Cause:
        return cls(field, "FieldValueForbidden", f"Forbidden: {why}")

    @classmethod
    def duplicate(cls, field: str, value: object, why: str = "") -> Cause:
        text = f"Duplicate value: {shown(value)}"
        return cls(field, "FieldValueDuplicate", f"{text}: {why}" if why else text)

    @classmethod
    def type_invalid(cls, field: str, value: object, why: str) -> Cause:
        return cls(field, "FieldValueTypeInvalid", f"Invalid value: {shown(value)}: {why}")

    @classmethod
    def too_many(cls, field: str, count: int, most: int) -> Cause:
        return cls(field, "FieldValueTooMany", f"Too many: {count}: must have at most {most} items")

    @classmethod
    def too_long(cls, field: str, most: int) -> Cause:
        text = f"Too long: may not be more than {most} bytes"
        return cls(field, "FieldValueTooLong", text)


def shown(value: object) -> str:
    """Return a value as the server prints it in an error."""
    return msgspec.json.encode(value).decode()


class RefusalError(Exception):
    """An answer other than success."""

    def __init__(self, code: int, reason: str, message: str, details: JSON | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def body(self) -> JSON:
        status: JSON = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details is not None:
            status["details"] = self.details
        if not self.reason:
            del status["reason"]
        return {**status, "code": self.code}


class PlainRefusalError(RefusalError):
    """An answer in plain text: the server does not know the path."""


def qualified(plural: str, group: str) -> str:
    """Return the plural with its group, such as ``daemonsets.apps``."""
    return f"{plural}.{group}" if group else plural


def _details(name: str, plural: str, group: str, **more: Any) -> JSON:
    found: JSON = {"name": name, "group": group, "kind": plural, **more}
    return {key: value for key, value in found.items() if value or key == "kind"}


def not_found(plural: str, group: str, name: str) -> RefusalError:
    text = f'{qualified(plural, group)} "{name}" not found'
    return RefusalError(404, "NotFound", text, _details(name, plural, group))


def no_such_resource() -> RefusalError:
    return RefusalError(404, "NotFound", "the server could not find the requested resource", {})


def no_such_path() -> RefusalError:
    return PlainRefusalError(404, "NotFound", "404 page not found\n")


def method_not_allowed(verb: str = "") -> RefusalError:
    return RefusalError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(plural: str, group: str, name: str) -> RefusalError:
    text = f'{qualified(plural, group)} "{name}" already exists'
    return RefusalError(409, "AlreadyExists", text, _details(name, plural, group))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(plural: str, group: str, name: str, why: str = MODIFIED) -> RefusalError:
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return RefusalError(409, "Conflict", text, _details(name, plural, group))


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> RefusalError:
    reported = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = reported[0] if len(reported) == 1 else f"[{', '.join(reported)}]"
    rows = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    details = {k: v for k, v in _details(name, kind, group, causes=rows).items() if v}
    return RefusalError(422, "Invalid", f'{qualified(kind, group)} "{name}" is invalid: {text}', details)


def unprocessable() -> RefusalError:
    return RefusalError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> RefusalError:
    return RefusalError(400, "BadRequest", message)


def forbidden(plural: str, group: str, name: str, why: str) -> RefusalError:
    what = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    return RefusalError(403, "Forbidden", f"{what} is forbidden: {why}", _details(name, plural, group))


def unauthorized() -> RefusalError:
    return RefusalError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> RefusalError:
    return RefusalError(410, "Expired", message)


def unsupported_media(accepted: str) -> RefusalError:
    text = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return RefusalError(415, "UnsupportedMediaType", text)


def not_acceptable() -> RefusalError:
    known = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    watched = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    text = f"406: Not Acceptable\n\nAvailable representations: {known}, {watched}"
    return RefusalError(406, "NotAcceptable", text, {})
