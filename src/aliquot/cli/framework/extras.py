"""Extras of the package: what to install for verbs that need more libraries than the others."""

from __future__ import annotations

from aliquot.errors import UsageError


def install_command(extra: str) -> str:
    """Return how to install an extra, from a package index or from a checkout."""
    return f"pip install 'aliquot[{extra}]'   # in a checkout: pip install '.[{extra}]'"


def missing_library(error: ModuleNotFoundError, extra: str, what: str) -> Exception:
    """Return the UsageError for a library that an extra installs. A missing module of Aliquot is a defect: return the
    error itself.
    """
    if (error.name or "").startswith("aliquot"):
        return error
    return UsageError(
        f"{error.name} is not installed: {what} needs it",
        next_step=install_command(extra),
    )
