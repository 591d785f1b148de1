"""Output of verbs whose result is a file that other tools read."""

from __future__ import annotations

from typing import Any

from aliquot.cli.framework import output, owned_files, streams
from aliquot.cli.framework.parser import Args
from aliquot.errors import UsageError


def target(args: Args) -> str:
    """Return the file that ``--out`` names; "" for stdout, without the option or for ``-``. Raises UsageError for an
    empty name, which is a variable of a script without a value.
    """
    if args.out == "":
        raise UsageError("--out is empty: name a file, or - for stdout", next_step=f"{args.prog} --help")
    return "" if args.out in (None, "-") else str(args.out)


def give(document: dict[str, Any], args: Args, *, text_form: str = "yaml") -> int:
    """Print a document, or save it to the file of ``--out``. ``text_form`` is its format for ``-o text``."""
    form = text_form if args.output == "text" else args.output
    return write(encoded(document, form), form, args)


def write(body: str, form: str, args: Args) -> int:
    """Print a document in JSON or YAML, or save it to the file of ``--out``."""
    if path := target(args):
        save(body, form, path, force=args.force)
        streams.note(f"wrote {path}")
    else:
        streams.result(body.rstrip("\n"))
    return 0


def save(body: str, form: str, path: str, *, force: bool) -> None:
    """Save a document in JSON or YAML to a file. Raises ForeignFileError, StorageError."""
    text = body.rstrip("\n") + "\n"
    marked = owned_files.marked_json if form == "json" else owned_files.marked
    owned_files.save(path, marked(text), force=force)


def encoded(document: dict[str, Any], form: str) -> str:
    """Return a document with a final newline, in JSON, or in YAML in the style of other tools."""
    if form == "json":
        return output.encoded(document, "json") + "\n"
    from aliquot.core.config.formats.yaml_writer import to_yaml

    return to_yaml(document).rstrip("\n") + "\n"
