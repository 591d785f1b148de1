"""The name of a DRA driver on a command line."""

from __future__ import annotations

from aliquot.errors import UsageError


def driver_name(text: str, next_step: str) -> str:
    """Return the name. Raises UsageError if the API would refuse it, or if it has no domain for the device classes."""
    from aliquot.kubernetes.dra.model.names_validation import is_subdomain

    if "." not in text or not is_subdomain(text, 63):
        raise UsageError(
            f"--dra-driver {text!r} is not a DNS subdomain of at most 63 characters, such as gpu.aliquot.dev",
            next_step=next_step,
        )
    return text
