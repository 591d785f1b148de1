"""Bearer tokens: the administrator's, and those issued for service accounts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from support.standin.answers import RefusalError, not_found, unauthorized
from support.standin.call import SYSTEM, Call, Caller
from support.standin.schema import stamp
from support.standin.store import Store

JSON = dict[str, Any]
ISSUER = "https://kubernetes.default.svc"
ADMIN = Caller("admin", ("system:masters", "system:authenticated"), "1")


class Tokens:
    """The valid tokens. A service account's token ends with the account, or with the pod to which it is bound."""

    def __init__(self, store: Store, admin: str) -> None:
        self._store = store
        self._known: dict[str, Caller] = {admin: ADMIN}
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()

    def caller(self, header: str | None) -> Caller:
        """Return the caller that an Authorization header names.

        Raises:
            RefusalError: 401
        """
        if not header:
            return Caller("system:anonymous", ("system:unauthenticated",))
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorized()
        found = self._known.get(token) or self.service_account(token)
        if found is None:
            raise unauthorized()
        return found

    def service_account(self, token: str) -> Caller | None:
        """Return the account of a token that this server issued and that is still valid."""
        claims = self._claims(token)
        if claims is None or claims["exp"] < datetime.now(UTC).timestamp():
            return None
        own = claims["kubernetes.io"]
        namespace, name = own["namespace"], own["serviceaccount"]["name"]
        account = self._store.get("serviceaccounts.", namespace, name)
        if account is None or account["metadata"]["uid"] != own["serviceaccount"]["uid"]:
            return None
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"]}
        for kind in ("pod", "node"):
            if kind in own:
                extra[f"authentication.kubernetes.io/{kind}-name"] = [own[kind]["name"]]
                extra[f"authentication.kubernetes.io/{kind}-uid"] = [own[kind]["uid"]]
        if "pod" in own and not self._lives("pods.", namespace, own["pod"]):
            return None
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
        return Caller(f"{SYSTEM}{namespace}:{name}", groups, own["serviceaccount"]["uid"], extra)

    def _lives(self, bucket: str, namespace: str, bound: JSON) -> bool:
        found = self._store.get(bucket, namespace, bound["name"])
        return found is not None and found["metadata"]["uid"] == bound["uid"]

    def request(self, call: Call, body: JSON) -> JSON:
        """Answer a TokenRequest for the service account that the call names.

        Raises:
            RefusalError: 404, the account or pod does not exist
        """
        account = self._store.get("serviceaccounts.", call.namespace, call.name)
        if account is None:
            raise not_found("serviceaccounts", "", call.name)
        spec = body.get("spec") or {}
        seconds = int(spec.get("expirationSeconds") or 3600)
        end = datetime.now(UTC) + timedelta(seconds=seconds)
        own: JSON = {"namespace": call.namespace, "serviceaccount": _reference(account)}
        bound = spec.get("boundObjectRef")
        if bound and bound.get("kind") == "Pod":
            own.update(self._bound_pod(call.namespace, bound))
        spec = {"audiences": [ISSUER], **spec, "expirationSeconds": seconds, "boundObjectRef": bound}
        claims = {
            "iss": ISSUER, "sub": f"{SYSTEM}{call.namespace}:{call.name}", "aud": spec["audiences"],
            "exp": int(end.timestamp()), "jti": str(uuid.uuid4()), "kubernetes.io": own,
        }  # fmt: skip
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": call.name, "namespace": call.namespace, "creationTimestamp": stamp(datetime.now(UTC))},
            "spec": spec,
            "status": {"token": self._sign(claims), "expirationTimestamp": stamp(end)},
        }

    def _bound_pod(self, namespace: str, bound: JSON) -> JSON:
        pod = self._store.get("pods.", namespace, bound["name"])
        if pod is None:
            raise not_found("pods", "", bound["name"])
        if bound.get("uid") not in (None, "", pod["metadata"]["uid"]):
            why = f"the UID in the bound object reference ({bound['uid']}) does not match the UID in record."
            raise RefusalError(409, "Conflict", f'Operation cannot be fulfilled on pods "{bound["name"]}": {why}')
        found = {"pod": _reference(pod)}
        node = self._store.get("nodes.", "", pod["spec"].get("nodeName", ""))
        return {**found, "node": _reference(node)} if node else found

    def _sign(self, claims: JSON) -> str:
        head = _url64(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))
        text = f"{head}.{_url64(msgspec.json.encode(claims))}"
        return f"{text}.{self._signature(text)}"

    def _signature(self, text: str) -> str:
        return _url64(hmac.new(self._secret, text.encode(), hashlib.sha256).digest())

    def _claims(self, token: str) -> JSON | None:
        text, _, signature = token.rpartition(".")
        if text.count(".") != 1 or not hmac.compare_digest(signature, self._signature(text)):
            return None
        payload = text.partition(".")[2]
        claims: JSON = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return claims


def _reference(value: JSON) -> JSON:
    return {"name": value["metadata"]["name"], "uid": value["metadata"]["uid"]}


def _url64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
