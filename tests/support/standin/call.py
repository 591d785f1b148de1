"""A request with a parsed path and an authenticated caller."""

from __future__ import annotations

import contextlib
import re
from functools import cache
from typing import Any

import msgspec

from support.standin import protobuf
from support.standin.answers import RefusalError, bad_request, unsupported_media
from support.standin.kinds import Kind

JSON = dict[str, Any]
SYSTEM = "system:serviceaccount:"


class Caller(msgspec.Struct, frozen=True):
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, list[str]] = {}

    def as_user_info(self) -> JSON:
        """Return the user as in a review or an admission request."""
        found: JSON = {"username": self.name, "uid": self.uid, "groups": list(self.groups), "extra": self.extra}
        return {key: value for key, value in found.items() if value}


class Call(msgspec.Struct, frozen=True):
    """The verb, the kind and the caller of a request."""

    verb: str
    kind: Kind
    caller: Caller
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: dict[str, str] = {}
    body: bytes = b""
    content_type: str = "application/json"
    accept: str = "application/json"
    agent: str = ""
    command: tuple[str, ...] = ()
    """The arguments of an ``exec``."""
    warnings: list[str] = msgspec.field(default_factory=list)
    """Warnings of webhooks for the client, filled while the call is answered."""

    @property
    def group(self) -> str:
        return self.kind.group

    @property
    def selected_name(self) -> str:
        """The only name that a list or watch selects, for which a right to that name is enough; "" if it selects
        more.
        """
        key, _, name = self.query.get("fieldSelector", "").partition("=")
        return name.lstrip("=") if key == "metadata.name" and "," not in name else ""

    @property
    def resource(self) -> str:
        """The resource with its subresource, such as ``pods/eviction``."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    @property
    def home(self) -> str:
        """The namespace in which the store keeps the object; "" for a cluster-scoped one, including a namespace."""
        return self.namespace if self.kind.namespaced else ""

    @property
    def dry(self) -> bool:
        return self.query.get("dryRun") == "All"

    @property
    def manager(self) -> str:
        """The field manager: as named, or the part of the user agent before the slash."""
        named = self.query.get("fieldManager")
        return named or self.agent.partition("/")[0][:128] or "unknown"

    def decoded(self) -> Any:
        """Decode the body from JSON or YAML.

        Raises:
            RefusalError: 400 or 415
        """
        media = self.content_type.partition(";")[0].strip()
        if media == protobuf.MEDIA:
            return protobuf.decode(self.body)
        if media in ("application/yaml", "application/apply-patch+yaml"):
            return _yaml(self.body, self.kind.kind)
        if media not in ("application/json", "", "*/*") and not media.endswith("-patch+json"):
            raise unsupported_media("application/json, application/yaml, application/vnd.kubernetes.protobuf")
        try:
            return msgspec.json.decode(self.body)
        except msgspec.DecodeError as error:
            raise self.unrecognized(_as_go(error)) from None

    def unrecognized(self, error: str) -> RefusalError:
        """Refuse a body that cannot be decoded as the object."""
        text = self.body.decode(errors="replace")[:100] or "<empty>"
        return bad_request(
            f"the object provided is unrecognized (must be of type {self.kind.kind}): couldn't get version/kind; "
            f"json parse error: {error} ({text})"
        )


def _as_go(error: Exception) -> str:
    """Return the text of the real server's decoder for input that ends too early."""
    return "unexpected end of JSON input" if "truncated" in str(error) or not str(error) else str(error)


def _yaml(body: bytes, kind: str) -> Any:
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(body)  # most clients send JSON as YAML, and this reads it 20 times as fast
    import yaml  # costs more to import than the rest of a small test

    try:
        return yaml.load(body, _loader())
    except yaml.YAMLError as error:
        why = re.sub(r"\s+", " ", str(error))
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): {why}") from None


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.CSafeLoader):
        """YAML without timestamps: the API's times are strings."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in rows if tag != "tag:yaml.org,2002:timestamp"]
        for first, rows in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:y|Y|n|N)$"), list("yYnN"))
    Loader.bool_values = {**yaml.CSafeLoader.bool_values, "y": True, "n": False}
    return Loader
