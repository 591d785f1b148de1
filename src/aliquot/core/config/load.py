"""The reader of configuration files in any supported format."""

from __future__ import annotations

from aliquot.core.config.file import NATIVE, ConfigFile
from aliquot.core.config.text import yaml_nodes as yaml
from aliquot.core.config.text.node_reader import ProfileNames, catalog_names, describe_node
from aliquot.errors import ConfigError

_EXAMPLE = "start one with: aliquot generate > gpus.yaml"


def load(text: str, source: str, *, compat: bool = False, profiles: ProfileNames = catalog_names) -> ConfigFile:
    """Read the native format, mig-parted v1 or vgpu-device-manager v1. ``source`` names the text in messages.

    ``compat`` accepts what mig-parted accepts. ``profiles`` returns the names that hints suggest, and is called only
    for a wrong name. Raises ConfigError with all errors, each ``source:line:column: ...``.
    """
    document = yaml.read(text, source)
    root = document.root
    if root is None or (isinstance(root, yaml.Scalar) and root.value is None):
        raise ConfigError(f"{source} is empty: it has no named config", next_step=_EXAMPLE)
    if not isinstance(root, yaml.Map):
        raise ConfigError(
            f"{source} is not a configuration: it holds {describe_node(root)[:80]} instead of a mapping",
            next_step=_EXAMPLE,
        )
    version = _version(root, source)
    if version == NATIVE:
        from aliquot.core.config.formats import native

        return native.read(document, source, compat=compat, profiles=profiles)
    if "vgpu-configs" in root.fields():
        from aliquot.core.config.formats import vgpu_device_manager as vgpudm

        return vgpudm.read(document, source, compat=compat)
    from aliquot.core.config.formats import mig_parted as migparted

    return migparted.read(document, source, compat=compat, profiles=profiles)


def _version(root: yaml.Map, source: str) -> str:
    fields = root.fields()
    node = fields.get("version")
    version = node.value if isinstance(node, yaml.Scalar) else None
    if version in (NATIVE, "v1"):
        return str(version)
    raise ConfigError(f"{source} has 1 error", details=(_why_not(root, fields, node, source),), next_step=_EXAMPLE)


def _why_not(root: yaml.Map, fields: dict[str, yaml.Node], node: yaml.Node | None, source: str) -> str:
    at = node or root
    where = f"{source}:{at.line}:{at.column}"
    if "data" in fields and "kind" in fields:
        return f"{where}: this is a Kubernetes object: save the configuration inside its 'data' as a file of its own"
    if node is None:
        wanted = "v1" if {"mig-configs", "vgpu-configs"} & set(fields) else NATIVE
        return f"{where}: the key 'version' is missing (write version: {wanted})"
    known = f"known: {NATIVE}, and v1 for files of mig-parted and vgpu-device-manager"
    return f"{where}: unknown version: {describe_node(node)} ({known})"
