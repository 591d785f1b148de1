"""Syntax of the names and values in resource slices, as the API server checks it.

Source: kubernetes/kubernetes pkg/apis/resource/validation/validation.go (1.36.2) and apimachinery's rules for names.
"""

from __future__ import annotations

import re

from aliquot.kubernetes.dra.model.objects import DeviceAttribute, DeviceTaint

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TAINT_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_WORD = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(
    rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-{_WORD}(\.{_WORD})*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?", re.ASCII
)
_LONGEST_LABEL = 63
_LONGEST_SUBDOMAIN = 253
_LONGEST_IDENTIFIER = 32
_LONGEST_VALUE = 64
_LARGEST = 2**63 - 1


def is_label(text: str) -> bool:
    return len(text) <= _LONGEST_LABEL and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str, longest: int = _LONGEST_SUBDOMAIN) -> bool:
    return len(text) <= longest and _SUBDOMAIN.fullmatch(text) is not None


def is_pool_name(text: str) -> bool:
    """Report whether a text is a pool name: subdomains, separated by slashes."""
    return len(text) <= _LONGEST_SUBDOMAIN and all(is_subdomain(part) for part in text.split("/"))


def is_qualified_name(text: str) -> bool:
    """Report whether a text names an attribute or a capacity: an identifier, with or without a domain."""
    domain, slash, identifier = text.rpartition("/")
    if slash and not is_subdomain(domain, _LONGEST_LABEL):
        return False
    return len(identifier) <= _LONGEST_IDENTIFIER and _IDENTIFIER.fullmatch(identifier) is not None


def attribute_fault(value: DeviceAttribute) -> str:
    """Return what is wrong with the value of an attribute; "" if nothing is."""
    fields = (value.bool_value, value.int_value, value.string_value, value.version_value)
    if sum(each is not None for each in fields) != 1:
        return "exactly one of bool, int, string and version must be set"
    for each in (value.string_value, value.version_value):
        if each is not None and len(each.encode()) > _LONGEST_VALUE:
            return f"the value has more than {_LONGEST_VALUE} bytes"
    if value.version_value is not None and _VERSION.fullmatch(value.version_value) is None:
        return f"{value.version_value!r} is not a semantic version"
    if value.int_value is not None and abs(value.int_value) > _LARGEST:
        return "the number does not fit into 64 bits"
    return ""


def taint_fault(taint: DeviceTaint) -> str:
    """Return what is wrong with a taint; "" if nothing is."""
    domain, slash, name = taint.key.rpartition("/")
    if (slash and not is_subdomain(domain)) or not _is_taint_word(name):
        return f"{taint.key!r} is not a label name"
    if taint.value and not _is_taint_word(taint.value):
        return f"{taint.value!r} is not a label value"
    if taint.effect not in ("None", "NoSchedule", "NoExecute"):
        return f"{taint.effect!r} is not an effect"
    return ""


def _is_taint_word(text: str) -> bool:
    return len(text) <= _LONGEST_LABEL and _TAINT_NAME.fullmatch(text) is not None
