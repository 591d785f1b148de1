"""CDI files on disk: whole or not at all, ours only, and never two that name the same device."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from aliquot.cdi.options import MARKER_VARIABLE
from aliquot.cdi.rules import document_errors
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.errors import AliquotError, BlockedError, ForeignFileError, StorageError
from aliquot.foundation import atomic_file

DIRECTORY = "/var/run/cdi"
"""For what goes with a reboot, as MIG instances do. Runtimes prefer it to /etc/cdi where both name a device."""

DIRECTORIES = ("/etc/cdi", DIRECTORY)
_SUFFIXES = (".json", ".yaml", ".yml")
SUSPENDED_SUFFIX = ".resting"
"""What the name of a file of ours ends with while there is no device to offer: no runtime reads it then."""
_SIZE_LIMIT = 16 << 20


def encoded(document: Mapping[str, Any], form: str) -> str:
    """The text of a document, ``json`` or ``yaml``."""
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    return to_yaml(document, flow=())


def form_of(path: str) -> str:
    """``json`` or ``yaml``, from a file's name."""
    return "json" if path.endswith(".json") else "yaml"


def form_on_disk(path: str) -> str:
    """Return the form that a file of ours has, or had before it rested, whatever its name says."""
    text = _text(path) or _text(path + SUSPENDED_SUFFIX) or ""
    return "json" if text.startswith("{") else "yaml"


def write(path: str, document: Mapping[str, Any], *, form: str = "", force: bool = False, shared: bool = False) -> None:
    """Put a document where runtimes find it: a reader sees the whole former file or the whole new one.

    Raises BlockedError, unless ``force`` is given, if a file that is not ours is there (``shared`` allows that) or
    another file of the directory names the same devices; StorageError if it cannot be written.
    """
    errors = document_errors(document)
    if errors:
        raise AliquotError("this is not a valid CDI document", details=errors)
    if not force:
        if not shared:
            _refuse_foreign(path)
        _refuse_duplicates(path, document)
    _replace(path, encoded(document, form or form_of(path)))


def remove(path: str) -> bool:
    """Take a file of ours away; False if there is none. Raises BlockedError for somebody else's."""
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
    """The files of a directory that we wrote."""
    return [path for path, text in _specs(directory) if _is_ours(text)]


def suspend(path: str) -> None:
    """Take a file of ours away from runtimes while there is no device to offer, so that it can come back: CDI knows no
    empty document. Raises BlockedError for somebody else's, also where it would rest, StorageError.
    """
    _refuse_foreign(path)
    _refuse_foreign(path + SUSPENDED_SUFFIX)
    try:
        atomic_file.rename(path, path + SUSPENDED_SUFFIX)
    except OSError as error:
        raise _unwritable(path, error) from error


def forget_suspended(path: str) -> None:
    """Forget the document of ours that rested for a path."""
    if _is_ours(_text(path + SUSPENDED_SUFFIX) or ""):
        with suppress(OSError):
            os.unlink(path + SUSPENDED_SUFFIX)


def suspended(directory: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the documents of ours that wait for devices, each with the path where it was. One whose path has a file
    again is forgotten; what cannot be read is left as it is.
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
    """The CDI documents of a directory with their paths; what is no document is left out."""
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
    """The document in a text that somebody else may have written; None for what is none, however it is broken."""
    if text.startswith("{"):  # ours, and most: in JSON, for which YAML's reader takes far longer
        with suppress(msgspec.DecodeError, RecursionError):
            return _if_cdi_document(msgspec.json.decode(text))
    import yaml

    try:
        found = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):  # a date that is none is a ValueError
        return None
    return _if_cdi_document(found)


def _if_cdi_document(found: Any) -> dict[str, Any] | None:
    named = isinstance(found, dict) and isinstance(found.get("kind"), str) and isinstance(found.get("devices"), list)
    return found if named else None


def device_names(document: Mapping[str, Any]) -> list[str]:
    """The names in a document that somebody else may have written."""
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
    """Two files of one directory that name the same device make it unusable in every runtime."""
    mine = set(device_names(document))
    for other, text in _specs(os.path.dirname(path) or "."):
        if os.path.basename(other) == os.path.basename(path) or not _mentions(text, document["kind"]):
            continue
        found = _parsed(text)
        if found is None or found["kind"] != document["kind"]:
            continue
        both = sorted(mine & set(device_names(found)))
        if both:
            shown = ", ".join(both[:6]) + (f" and {len(both) - 6} more" if len(both) > 6 else "")
            raise BlockedError(
                f"{other} has devices of {document['kind']} with the same names: runtimes would refuse both",
                details=(
                    f"both would have {shown}",
                    "nvidia-container-toolkit writes one with its unit nvidia-cdi-refresh, which does not follow MIG",
                    "--vendor gives ours another kind; --force writes it anyway",
                ),
                next_step="systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service",
            )


def _mentions(text: str, kind: str) -> bool:
    """Whether a file can be of that kind: reading one of some thousand lines only to see that it is not takes long.
    ``management.nvidia.com/gpu`` is not ``nvidia.com/gpu``.
    """
    return re.search(rf"(?<![\w.-]){re.escape(kind)}(?![\w./-])", text) is not None


def _replace(path: str, text: str) -> None:
    try:
        # Runtimes read only names with the right ending: none of them ever loads the temporary file.
        atomic_file.replace(path, text.encode())
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> StorageError:
    step = "sudo aliquot cdi generate" if isinstance(error, PermissionError) else f"df {os.path.dirname(path) or '.'}"
    return StorageError(f"cannot write {path}: {error.strerror or error}", next_step=step)
