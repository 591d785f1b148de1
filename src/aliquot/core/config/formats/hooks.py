"""mig-parted's hooks file, version v1: commands to run around an apply."""

from __future__ import annotations

import msgspec

from aliquot.core.config.text import yaml_nodes as yaml
from aliquot.core.config.text.node_reader import YamlReader, describe_node
from aliquot.core.config.text.yaml_nodes import List, Map, Node, Scalar
from aliquot.errors import ConfigError

NAMES = ("apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit")
"""The hooks that fire. Others are ignored, as by mig-parted, but with a note."""


class Hook(msgspec.Struct, frozen=True):
    """A command. Its environment is only ``envs`` and the MIG_PARTED_* variables: no PATH is inherited."""

    command: str
    args: tuple[str, ...] = ()
    envs: dict[str, str] = {}
    workdir: str = ""


class HooksFile(msgspec.Struct, frozen=True):
    """The commands of each hook, in order. ``notes`` are about hooks that may not work as intended."""

    source: str
    hooks: dict[str, tuple[Hook, ...]]
    notes: tuple[str, ...] = ()

    def of(self, name: str) -> tuple[Hook, ...]:
        return self.hooks.get(name, ())


def load_hooks(text: str, source: str, *, compat: bool = False) -> HooksFile:
    """Read a hooks file. Raises ConfigError with all errors, each ``source:line:column: ...``.

    ``compat`` ignores the keys that mig-parted ignores.
    """
    document = yaml.read(text, source)
    if not isinstance(document.root, Map):
        raise ConfigError(f"{source} is not a hooks file: it has no mapping with 'version' and 'hooks'")
    reader = _Hooks(source, compat)
    if not compat:
        reader.duplicates(document)
    hooks = reader.top(document.root)
    reader.diagnostics.check()
    return HooksFile(source, hooks, tuple(reader.notes))


class _Hooks(YamlReader):
    def __init__(self, source: str, compat: bool) -> None:
        super().__init__(source)
        self.compat = compat
        self.notes: list[str] = []

    def top(self, root: Map) -> dict[str, tuple[Hook, ...]]:
        fields = self.mapping(root, "the file") or {}
        if not self.compat:
            self.check_keys(fields, ("version", "hooks"), "the file")
            version = fields["version"][1] if "version" in fields else None
            if not isinstance(version, Scalar) or version.value != "v1":
                self.diagnostics.add(version or root, "the version must be v1")
            if "hooks" not in fields:
                self.diagnostics.add(root, "the key 'hooks' is missing")
        node = fields["hooks"][1] if "hooks" in fields else None
        if node is None or _nothing(node):
            return {}
        named = self.mapping(node, "'hooks'") or {}
        for name, (key, _) in named.items():
            if name not in NAMES:
                self.notes.append(
                    f"{self.diagnostics.source}:{key.line}: the hook {name!r} never fires ({', '.join(NAMES)})"
                )
        return {name: self.commands(name, value) for name, (_, value) in named.items()}

    def commands(self, name: str, node: Node) -> tuple[Hook, ...]:
        if _nothing(node):
            return ()
        if not isinstance(node, List):
            self.diagnostics.add(node, f"the hook {name!r} must be a list of commands, not {describe_node(node)}")
            return ()
        found = [self.command(item) for item in node.items]
        return tuple(hook for hook in found if hook is not None)

    def command(self, node: Node) -> Hook | None:
        fields = self.mapping(node, "a command")
        if fields is None:
            return None
        if not self.compat:
            self.check_keys(fields, ("command", "args", "envs", "workdir"), "a command")
        value = {key: field[1] for key, field in fields.items() if not _nothing(field[1])}
        if "command" not in value:
            self.diagnostics.add(node, "the entry lacks the key 'command'")
            return None
        command = self.text(value["command"], "'command'") or ""
        workdir = self.text(value["workdir"], "'workdir'") if "workdir" in value else ""
        if command and not command.startswith("/"):
            place = f"{self.diagnostics.source}:{node.line}"
            self.notes.append(f"{place}: {command!r} is not an absolute path, and hooks run without PATH")
        return Hook(command, self.args(value.get("args")), self.envs(value.get("envs")), workdir or "")

    def args(self, node: Node | None) -> tuple[str, ...]:
        if node is None:
            return ()
        if not isinstance(node, List):
            self.diagnostics.add(node, f"'args' must be a list of texts, not {describe_node(node)}")
            return ()
        return tuple(text for _, text in self.texts(node, "an argument"))

    def envs(self, node: Node | None) -> dict[str, str]:
        fields = self.mapping(node, "'envs'") if node is not None else {}
        found = {}
        for name, (_, value) in (fields or {}).items():
            text = self.text(value, f"the variable {name!r}")
            if text is not None:
                found[name] = text
        return found


def _nothing(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None
