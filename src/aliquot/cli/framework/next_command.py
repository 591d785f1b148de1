"""The next command to type, for the node that this command was about."""

from __future__ import annotations


def is_command(step: str) -> bool:
    """Report whether a next step is a command of Aliquot to paste, and not a sentence or another program's command."""
    return step.startswith("aliquot ")


def addressed(step: str, node: str = "") -> str:
    """Return a next step that can be pasted: quoted for a shell and, if it is a command with that option, with
    ``--sim``. A sentence stays as it is, and so does a redirection at the end.
    """
    if not is_command(step):
        return step
    command, redirection, file = step.partition(" > ")
    if redirection:
        return f"{addressed(command, node)}{redirection}{file}"
    import shlex

    from aliquot.cli.command_table import ROOT
    from aliquot.cli.framework import parser as parse
    from aliquot.cli.framework.command_model import NODE
    from aliquot.errors import UsageError

    try:
        words = shlex.split(step)
        found = parse.find(ROOT, words[1:])
        if not found.help_only and "--help" not in found.rest:
            parse.typed_options(found)
            if node and not {NODE.names[0], node} & set(found.rest) and NODE in found.command.options:
                words += [NODE.names[0], node]
    except (UsageError, ValueError):
        return step
    return shlex.join(words)
