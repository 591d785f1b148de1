"""Verbs whose result is a file that other tools read."""

from __future__ import annotations

from typing import Any

from aliquot.cli.framework import output, owned_files, streams
from aliquot.cli.framework.parser import Args


def give(document: dict[str, Any], args: Args, *, text_form: str = "yaml") -> int:
    """Prints a document, or saves it where ``--out`` says. ``text_form`` is its usual form."""
    form = text_form if args.output == "text" else args.output
    return write(encoded(document, form), form, args)


def write(body: str, form: str, args: Args) -> int:
    """Prints a document in JSON or YAML, or saves it where ``--out`` says."""
    if args.out:
        save(body, form, args)
        streams.note(f"wrote {args.out}")
    else:
        streams.result(body.rstrip("\n"))
    return 0


def save(body: str, form: str, args: Args) -> None:
    """Saves a document in JSON or YAML where ``--out`` says. Raises ForeignFileError, StorageError."""
    text = body.rstrip("\n") + "\n"
    marked = owned_files.marked_json if form == "json" else owned_files.marked
    owned_files.save(args.out, marked(text), force=args.force)


def encoded(document: dict[str, Any], form: str) -> str:
    """A document with a final newline, in JSON, or in YAML as the field writes it."""
    if form == "json":
        return output.encoded(document, "json") + "\n"
    from aliquot.core.config.formats.yaml_writer import to_yaml

    return to_yaml(document).rstrip("\n") + "\n"
