"""CDI files on disk: written atomically, only ours, and never two that name the same device."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from aliquot.cdi.options import MARKER_VARIABLE
from aliquot.cdi.rules import document_errors
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.errors import AliquotError, BlockedError, ForeignFileError, StorageError
from aliquot.foundation import atomic_file

DIRECTORY = "/var/run/cdi"
"""For specs that do not outlive a reboot, like MIG instances. Runtimes prefer it to /etc/cdi if both name a device."""

DIRECTORIES = ("/etc/cdi", DIRECTORY)
_SUFFIXES = (".json", ".yaml", ".yml")
SUSPENDED_SUFFIX = ".resting"
"""The suffix of a file of ours while no device is left to offer. Runtimes do not read such a file."""
_SIZE_LIMIT = 16 << 20
_TOOLKIT_FILE = "nvidia.yaml"
_TOOLKIT_OFF = "systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service"


def encoded(document: Mapping[str, Any], form: str) -> str:
    """Return the text of a document in the form ``json`` or ``yaml``."""
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    return to_yaml(document, flow=())


def form_of(path: str) -> str:
    """Return the form that a file name implies, ``json`` or ``yaml``."""
    return "json" if path.endswith(".json") else "yaml"


def form_on_disk(path: str) -> str:
    """Return the form of a file of ours, or its form before it was suspended, whatever its name implies."""
    text = _text(path) or _text(path + SUSPENDED_SUFFIX) or ""
    return "json" if text.startswith("{") else "yaml"


def write(path: str, document: Mapping[str, Any], *, form: str = "", force: bool = False, shared: bool = False) -> None:
    """Write a document where runtimes find it, atomically: a reader sees the whole previous file or the whole new one.

    Creates a missing directory. Raises what ``check`` raises. Raises StorageError if it cannot be written.
    """
    check(path, document, force=force, shared=shared)
    _replace(path, encoded(document, form or form_of(path)))


def check(path: str, document: Mapping[str, Any], *, force: bool = False, shared: bool = False) -> None:
    """Raise BlockedError, unless ``force`` is given, if another program wrote the file (``shared`` allows that) or
    another file of the directory names the same devices. Raises AliquotError for an invalid document.
    """
    errors = document_errors(document)
    if errors:
        raise AliquotError("this is not a valid CDI document", details=errors)
    if not force:
        if not shared:
            _refuse_foreign(path)
        _refuse_duplicates(path, document)


def remove(path: str) -> bool:
    """Remove a file of ours. Return False if it does not exist. Raises BlockedError if another program wrote it."""
    if not os.path.exists(path):
        return False
    _refuse_foreign(path)
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unwritable(path, error) from error
    return True


def own_files(directory: str) -> list[str]:
    """Return the files of a directory that Aliquot wrote."""
    return [path for path, text in _specs(directory) if _is_ours(text)]


def suspend(path: str) -> None:
    """Rename a file of ours so that runtimes no longer read it, while no device is left to offer. CDI allows no empty
    document. Raises BlockedError if another program wrote the file, or one under the suspended name. Raises
    StorageError if renaming fails.
    """
    _refuse_foreign(path)
    _refuse_foreign(path + SUSPENDED_SUFFIX)
    try:
        atomic_file.rename(path, path + SUSPENDED_SUFFIX)
    except OSError as error:
        raise _unwritable(path, error) from error


def forget_suspended(path: str) -> None:
    """Remove our suspended document for a path."""
    if _is_ours(_text(path + SUSPENDED_SUFFIX) or ""):
        with suppress(OSError):
            os.unlink(path + SUSPENDED_SUFFIX)


def suspended(directory: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield our suspended documents, each with its original path. One whose path has a file again is removed.
    Unreadable documents are left as they are.
    """
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(SUSPENDED_SUFFIX))
    except OSError:
        return
    for name in names:
        path = os.path.join(directory, name.removesuffix(SUSPENDED_SUFFIX))
        text = _text(path + SUSPENDED_SUFFIX) or ""
        if not _is_ours(text):
            continue
        if os.path.lexists(path):
            forget_suspended(path)
        elif (found := _parsed(text)) is not None:
            yield path, found


def read(directory: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the CDI documents of a directory with their paths. Files that are not CDI documents are omitted."""
    for path, text in _specs(directory):
        found = _parsed(text)
        if found is not None:
            yield path, found


def _is_ours(text: str) -> bool:
    return f"{MARKER_VARIABLE}=" in text


def _specs(directory: str) -> Iterator[tuple[str, str]]:
    try:
        names = sorted(n for n in os.listdir(directory) if n.endswith(_SUFFIXES) and not n.startswith("."))
    except OSError:
        return
    for name in names:
        path = os.path.join(directory, name)
        text = _text(path)
        if text is not None:
            yield path, text


def _text(path: str) -> str | None:
    try:
        if not os.path.isfile(path):
            return None
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_SIZE_LIMIT)
    except OSError:
        return None


def _parsed(text: str) -> dict[str, Any] | None:
    """Return the document in a text that another program may have written; None if it is not a document, however it is
    broken.
    """
    if text.startswith("{"):  # most files, including ours, are JSON, which the YAML parser reads far slower
        with suppress(msgspec.DecodeError, RecursionError):
            return _if_cdi_document(msgspec.json.decode(text))
    import yaml

    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):  # an invalid date raises ValueError
        return None
    return _if_cdi_document(found)


def _if_cdi_document(found: Any) -> dict[str, Any] | None:
    named = isinstance(found, dict) and isinstance(found.get("kind"), str) and isinstance(found.get("devices"), list)
    return found if named else None


def device_names(document: Mapping[str, Any]) -> list[str]:
    """Return the names in a document that another program may have written."""
    return [str(d["name"]) for d in document["devices"] if isinstance(d, dict) and "name" in d]


def _refuse_foreign(path: str) -> None:
    if not os.path.lexists(path):
        return
    text = _text(path)
    if text is None or not _is_ours(text):
        raise ForeignFileError(
            f"{path} exists, and Aliquot did not write it: it was left as it is",
            next_step="name another file, or another --vendor, or add --force to replace it",
        )


def _refuse_duplicates(path: str, document: Mapping[str, Any]) -> None:
    """Raise BlockedError if another file names the same device. Two files of one directory that do so make the device
    unusable in every runtime.
    """
    mine = set(device_names(document))
    for other, text in _specs(os.path.dirname(path) or "."):
        if os.path.basename(other) == os.path.basename(path) or not _mentions(text, document["kind"]):
            continue
        found = _parsed(text)
        if found is None or found["kind"] != document["kind"]:
            continue
        both = sorted(mine & set(device_names(found)))
        if both:
            raise _duplicate(other, document["kind"], both)


def _duplicate(other: str, kind: str, names: Sequence[str]) -> BlockedError:
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    details, step = [f"names in both files: {shown}"], f"cat {shlex.quote(other)}"
    if os.path.basename(other) == _TOOLKIT_FILE:
        details.append("nvidia-container-toolkit's unit nvidia-cdi-refresh writes it, and ignores MIG changes")
        step = f"{_TOOLKIT_OFF}; rm {shlex.quote(other)}"  # disabling the unit leaves its file in place
    return BlockedError(
        f"{other} has devices of {kind} with the same names: runtimes would refuse both",
        code="DUPLICATE_CDI",
        details=(*details, "add --vendor to write another kind, or --force to write it anyway"),
        next_step=step,
    )


def _mentions(text: str, kind: str) -> bool:
    """Report whether a file can have that kind, without the slow parse of a file of some thousand lines.
    ``management.nvidia.com/gpu`` is not ``nvidia.com/gpu``.
    """
    return re.search(rf"(?<![\w.-]){re.escape(kind)}(?![\w./-])", text) is not None


def _replace(path: str, text: str) -> None:
    try:
        # Runtimes read only names with a known suffix, so they never load the temporary file.
        atomic_file.replace(path, text.encode())
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> StorageError:
    step = "sudo aliquot cdi generate" if isinstance(error, PermissionError) else f"df {os.path.dirname(path) or '.'}"
    return StorageError(f"cannot write {path}: {error.strerror or error}", next_step=step)
