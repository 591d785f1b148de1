"""Decoding of JSON into the narrow structs."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, Generic, TypeVar, cast, get_args, get_origin

import msgspec

from aliquot.kubernetes.client.errors import ApiError, UnreadableObjectError
from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject

T = TypeVar("T", bound=KubeObject)
S = TypeVar("S")
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions from decoding untrusted text. Deeply nested text raises RecursionError instead of DecodeError."""


class ListMeta(ApiStruct, frozen=True):
    """Metadata of a list."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")
    """Token of the next page."""


class ObjectList(ApiStruct, Generic[T], frozen=True):
    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()


class WatchEvent(msgspec.Struct, frozen=True):
    """A line of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    object: msgspec.Raw


def decode(body: bytes | msgspec.Raw, kind: type[S]) -> S:
    """Decode JSON of this kind, with null as absent like Go. Raises ApiError if the body is not such JSON."""
    try:
        return _decode(body, kind)
    except RecursionError as error:
        raise UnreadableObjectError(_kind_name(kind), "it is nested too deeply") from error


def _decode(body: bytes | msgspec.Raw, kind: type[S]) -> S:
    try:
        found: S = _decoder(cast("Hashable", kind)).decode(body)
        return found
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        start = bytes(body[:60]).decode(errors="replace") if isinstance(body, bytes) else ""
        raise ApiError(
            f"the response is not from a Kubernetes API server ({error})", details=(start,) if start else ()
        ) from error
    try:
        return msgspec.convert(without_nulls(msgspec.json.decode(body)), kind)
    except msgspec.ValidationError as error:
        raise UnreadableObjectError(_kind_name(kind), str(error)) from error


def _kind_name(kind: Any) -> str:
    """Return the Kubernetes name of a kind; "reply" for a type without a kind."""
    if issubclass(get_origin(kind) or kind, ObjectList):
        return f"{_kind_name(get_args(kind)[0])}List"
    return kind.TYPE.kind if hasattr(kind, "TYPE") else "reply"


def decode_list(body: bytes, kind: type[T]) -> ObjectList[T]:
    return decode(body, _list_type(kind))


@cache
def _list_type(kind: type[T]) -> type[ObjectList[T]]:
    return ObjectList[kind]  # type: ignore[valid-type]


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def without_nulls(value: object) -> object:
    """Remove null fields. Nulls inside lists stay and are refused, as lists must keep their length."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
