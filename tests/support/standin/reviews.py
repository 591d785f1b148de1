"""Reviews, which are requested by creating an object: the caller's identity, its rights, the validity of a token."""

from __future__ import annotations

from typing import Any

from support.standin import managed, rbac
from support.standin.answers import bad_request
from support.standin.call import SYSTEM, Call, Caller
from support.standin.objects import blank, decode
from support.standin.schema import root
from support.standin.store import Store
from support.standin.tokens import Tokens

JSON = dict[str, Any]
_AUTHORIZATION = "authorization.k8s.io"
BUCKETS = {
    "tokenreviews.authentication.k8s.io",
    "selfsubjectreviews.authentication.k8s.io",
    *(
        f"{name}.{_AUTHORIZATION}"
        for name in (
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
            "localsubjectaccessreviews",
        )
    ),
}


def answer(store: Store, tokens: Tokens, call: Call) -> tuple[int, JSON]:
    value = decode(call, call.decoded() or {})
    plural = call.kind.plural
    if plural == "selfsubjectreviews":
        value["metadata"]["creationTimestamp"] = managed.now()
    else:
        owner = managed.Owner(call.manager, "Update", call.kind.api_version)
        managed.update(root(call.kind), blank(call.kind), value, owner, ())
    if plural == "tokenreviews":
        value["status"] = _token(tokens, value["spec"].get("token", ""))
    elif plural == "selfsubjectreviews":
        value["status"] = {"userInfo": call.caller.as_user_info()}
    elif plural == "selfsubjectrulesreviews":
        value["status"] = _rules(store, call.caller, value["spec"].get("namespace", ""))
    else:
        value["status"] = _access(store, _subject(call, value["spec"]), value["spec"])
    return 201, value


def _token(tokens: Tokens, token: str) -> JSON:
    found = tokens.service_account(token)
    if found is None:
        return {"user": {}, "error": "invalid bearer token"}
    return {"authenticated": True, "user": found.as_user_info(), "audiences": ["https://kubernetes.default.svc"]}


def _subject(call: Call, spec: JSON) -> Caller:
    if call.kind.plural.startswith("self"):
        return call.caller
    name, groups = spec.get("user", ""), tuple(spec.get("groups") or ())
    if name.startswith(SYSTEM):
        groups += ("system:serviceaccounts", "system:authenticated")
    return Caller(name, groups)


def _access(store: Store, caller: Caller, spec: JSON) -> JSON:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")
    if path is not None:
        reason = "" if rbac.allows_path(store, caller, path.get("verb", ""), path.get("path", "")) else None
    else:
        wanted = resource or {}
        full = wanted.get("resource", "")
        if wanted.get("subresource"):
            full += f"/{wanted['subresource']}"
        reason = rbac.why(
            store,
            caller,
            wanted.get("verb", ""),
            wanted.get("group", ""),
            full,
            namespace=wanted.get("namespace", ""),
            name=wanted.get("name", ""),
        )
    return {"allowed": reason is not None, **({"reason": reason} if reason else {})}


def _rules(store: Store, caller: Caller, namespace: str) -> JSON:
    found = list(rbac.rules(store, caller, namespace))
    if rbac.MASTERS in caller.groups:
        found.append({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})
        found.append({"verbs": ["*"], "nonResourceURLs": ["*"]})
    resource = [{k: v for k, v in row.items() if k != "nonResourceURLs"} for row in found if row.get("resources")]
    paths = [{k: row[k] for k in ("verbs", "nonResourceURLs")} for row in found if row.get("nonResourceURLs")]
    return {"resourceRules": resource, "nonResourceRules": paths, "incomplete": False}
