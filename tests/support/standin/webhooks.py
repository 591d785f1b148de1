"""Admission webhooks, called by URL over TLS with their own certificate authority. A Service has no backend."""

from __future__ import annotations

import base64
import http.client
import ssl
import uuid
from typing import Any
from urllib.parse import urlsplit

import msgspec

from support.standin import cel, matching, objects, patches
from support.standin.answers import Cause, RefusalError
from support.standin.call import Call
from support.standin.store import Store, clone

JSON = dict[str, Any]
_GROUP = "admissionregistration.k8s.io"
MUTATING, VALIDATING = f"mutatingwebhookconfigurations.{_GROUP}", f"validatingwebhookconfigurations.{_GROUP}"


def fill(value: JSON) -> None:
    for hook in value.get("webhooks") or ():
        hook.setdefault("failurePolicy", "Fail")
        hook.setdefault("matchPolicy", "Equivalent")
        hook.setdefault("timeoutSeconds", 10)
        hook.setdefault("namespaceSelector", {})
        hook.setdefault("objectSelector", {})
        if value["kind"].startswith("Mutating"):
            hook.setdefault("reinvocationPolicy", "Never")
        for rule in hook.get("rules") or ():
            rule.setdefault("scope", "*")
        if "service" in (hook.get("clientConfig") or {}):
            hook["clientConfig"]["service"].setdefault("port", 443)


def check(new: JSON, _: JSON | None) -> list[Cause]:
    found: list[Cause] = []
    for n, hook in enumerate(new.get("webhooks") or ()):
        field = f"webhooks[{n}]"
        if len(hook.get("name", "").split(".")) < 3:
            why = "should be a domain with at least three segments separated by dots"
            found.append(Cause.invalid(f"{field}.name", hook.get("name", ""), why))
        if hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            if hook.get("sideEffects"):
                unsupported = Cause.unsupported(f"{field}.sideEffects", hook["sideEffects"], ("None", "NoneOnDryRun"))
                found.append(unsupported)
            else:
                found.append(Cause.required(f"{field}.sideEffects", "must specify one of None, NoneOnDryRun"))
        if "v1" not in (hook.get("admissionReviewVersions") or ()):
            found.append(Cause.required(f"{field}.admissionReviewVersions", "must specify one of v1, v1beta1"))
        client = hook.get("clientConfig") or {}
        if "service" in client:
            missing = [name for name in ("name", "namespace") if not client["service"].get(name)]
            found += [Cause.required(f"{field}.clientConfig.service.{name}") for name in missing]
        elif not client.get("url", "").startswith("https://"):
            why = "exactly one of url or service is required"
            found.append(
                Cause.required(f"{field}.clientConfig", why)
                if not client.get("url")
                else Cause.invalid(f"{field}.clientConfig.url", client["url"], "'https' is the only allowed URL scheme")
            )
    return found


class Webhooks:
    """The plugin that calls the hooks that a write matches."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def mutate(self, call: Call, value: JSON, old: JSON | None) -> JSON:
        for hook in self._hooks(MUTATING, call, value, old):
            answer = self._ask(hook, call, value, old)
            if answer is None or not answer.get("patch"):
                continue
            patch = msgspec.json.decode(base64.b64decode(answer["patch"]))
            value = objects.decode(msgspec.structs.replace(call, query={}), patches.json_patch(value, patch))
        return value

    def validate(self, call: Call, value: JSON | None, old: JSON | None) -> None:
        for hook in self._hooks(VALIDATING, call, value, old):
            self._ask(hook, call, value, old)

    def _service(self, hook: JSON) -> None:
        """Raise OSError for a hook that is a Service: no pods run here, so a Service has no backend."""
        service = hook["clientConfig"].get("service")
        if service is None:
            return
        name, namespace = service["name"], service["namespace"]
        there = self._store.get("services.", namespace, name) is not None
        why = f'no endpoints available for service "{name}"' if there else f'service "{name}" not found'
        where = f"{name}.{namespace}.svc:{service['port']}{service.get('path', '')}"
        raise OSError(f'Post "https://{where}?timeout={hook["timeoutSeconds"]}s": {why}')

    def _hooks(self, bucket: str, call: Call, value: JSON | None, old: JSON | None) -> list[JSON]:
        rows = [hook for row in self._store.items(bucket) for hook in row.get("webhooks") or ()]
        return [hook for hook in rows if matching.matches(self._store, call, hook, value, old, key="rules")]

    def _ask(self, hook: JSON, call: Call, value: JSON | None, old: JSON | None) -> JSON | None:
        """Return the hook's response, or None if it failed and failures are to be ignored.

        Raises:
            RefusalError: it refused (400 unless it names a larger code), or it failed (500)
        """
        asked = matching.request(call, str(uuid.uuid4()), clone(value) if value else None, clone(old) if old else None)
        variables = {"object": value, "oldObject": old, "request": asked}
        if not all(cel.evaluate(row["expression"], variables) for row in hook.get("matchConditions") or ()):
            return None
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked}
        try:
            self._service(hook)
            response = _post(hook, review)["response"]
            if response.get("uid") != asked["uid"]:
                raise ValueError("expected response.uid to be the request's")
        except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
            if hook["failurePolicy"] == "Ignore":
                return None
            text = f'failed calling webhook "{hook["name"]}": failed to call webhook: {error}'
            cause = {"message": text}
            raise RefusalError(500, "InternalError", f"Internal error occurred: {text}", {"causes": [cause]}) from None
        call.warnings.extend(response.get("warnings") or ())
        if not response.get("allowed"):
            raise _denied(hook["name"], response.get("status") or {})
        found: JSON = response
        return found


def _post(hook: JSON, review: JSON) -> JSON:
    client = hook["clientConfig"]
    url = urlsplit(client["url"])
    authority = base64.b64decode(client["caBundle"]).decode() if client.get("caBundle") else None
    context = ssl.create_default_context(cadata=authority)
    connection = http.client.HTTPSConnection(
        url.hostname or "", url.port, timeout=hook["timeoutSeconds"], context=context
    )
    try:
        path = f"{url.path or '/'}?{url.query + '&' if url.query else ''}timeout={hook['timeoutSeconds']}s"
        connection.request("POST", path, msgspec.json.encode(review), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ValueError(
                f"an error on the server ({text.decode(errors='replace')[:200]!r}) "
                "has prevented the request from succeeding"
            )
        found: JSON = msgspec.json.decode(text)
        return found
    finally:
        connection.close()


def _denied(name: str, status: JSON) -> RefusalError:
    text = f'admission webhook "{name}" denied the request'
    if status.get("message") or status.get("reason"):
        text += f": {status.get('message') or status['reason']}"
    else:
        text += " without explanation"
    return RefusalError(max(int(status.get("code") or 0), 400), status.get("reason") or "", text)
