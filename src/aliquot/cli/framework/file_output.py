"""Verbs whose result is a file that other tools read."""

from __future__ import annotations

from typing import Any

from aliquot.cli.framework import output, streams
from aliquot.cli.framework.parser import Args


def give(document: dict[str, Any], args: Args, *, text_form: str = "yaml") -> int:
    """Prints a document, or saves it where ``--out`` says. ``text_form`` is its usual form."""
    return write(encoded(document, text_form if args.output == "text" else args.output), args)


def write(body: str, args: Args) -> int:
    """Prints a text, or saves it where ``--out`` says."""
    if args.out:
        output.save(args.out, body.rstrip("\n") + "\n")
        streams.note(f"wrote {args.out}")
    else:
        streams.result(body.rstrip("\n"))
    return 0


def encoded(document: dict[str, Any], form: str) -> str:
    """A document with a final newline, in JSON, or in YAML as the field writes it."""
    if form == "json":
        return output.encoded(document, "json") + "\n"
    from aliquot.core.config.formats.yaml_writer import to_yaml

    return to_yaml(document).rstrip("\n") + "\n"
