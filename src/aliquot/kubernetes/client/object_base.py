"""Base types of all Kubernetes objects: resource type, metadata and condition."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class ResourceType(msgspec.Struct, frozen=True):
    """The resource of a kind: group, version and plural as in a URL. ``str()`` gives kubectl's ``plural[.group]``."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Build the URL path. ``namespace`` None is the whole cluster."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        return "/".join([*parts, self.plural, *filter(None, (name, subresource))])


class ApiStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all structs of the API, with camelCase names on the wire."""


class OwnerReference(ApiStruct, frozen=True):
    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(ApiStruct, frozen=True):
    """Metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    """None unless the object is being deleted."""


class KubeObject(ApiStruct, frozen=True):
    """Base of the kinds. ``TYPE`` is the resource of the kind."""

    TYPE: ClassVar[ResourceType]

    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    def is_older_than(self, other: KubeObject) -> bool:
        """Report whether this object has an older version than another, which may have another uid.

        Numeric versions are ordered over all objects of a kind.
        """
        return is_older_version(self.metadata.resource_version, other.metadata.resource_version)


def is_older_version(older: str, newer: str) -> bool:
    """Report whether a resource version is older than another. Returns False if one of them is not a number."""
    return older.isdecimal() and newer.isdecimal() and int(older) < int(newer)


class Condition(ApiStruct, frozen=True, omit_defaults=False):
    """A condition. All fields are written, because the API server rejects a condition without a status."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
