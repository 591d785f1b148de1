"""The next command to type, made to reach the node that this command was about."""

from __future__ import annotations


def addressed(step: str, node: str = "") -> str:
    """A next step as it can be pasted: quoted for a shell and, where it is a command that takes one, with ``--node``.

    A sentence stays as it is.
    """
    if not step.startswith("aliquot "):
        return step
    import shlex

    from aliquot.cli.command_table import ROOT
    from aliquot.cli.framework import parser as parse
    from aliquot.cli.framework.command_model import NODE
    from aliquot.errors import UsageError

    try:
        words = shlex.split(step)
        found = parse.find(ROOT, words[1:])
        if not found.help_only and "--help" not in found.rest:
            parse.parser(found.command, found.prog).parse_args(found.rest)
            if node and "--node" not in words and NODE in found.command.options:
                words += ["--node", node]
    except (UsageError, ValueError):
        return step
    return shlex.join(words)
