"""API refusals as sentences, with the next step. The messages are real ones of kube-apiserver 1.36."""

from __future__ import annotations

import json

import pytest

from aliquot.kubernetes.client.errors import (
    TOO_LARGE,
    ApiError,
    ApiRequest,
    ApiUnavailableError,
    ConflictError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    ThrottledError,
    from_response,
)


def refused(status: int, request: ApiRequest, message: str = "", reason: str = "", **rest: object) -> ApiError:
    body = {"kind": "Status", "code": status, "reason": reason, "message": message, **rest}
    return from_response(status, json.dumps(body).encode(), request)


AGENT = "system:serviceaccount:gpu-operator:aliquot"


@pytest.mark.parametrize(
    ("request_", "message", "command"),
    [
        (
            ApiRequest("patch", "nodes", "n1"),
            f'nodes "n1" is forbidden: User "{AGENT}" cannot patch resource "nodes" in API group "" '
            "at the cluster scope",
            f"kubectl auth can-i patch nodes/n1 --as={AGENT}",
        ),
        (
            ApiRequest("list", "clusterpolicies.nvidia.com"),
            f'clusterpolicies.nvidia.com is forbidden: User "{AGENT}" cannot list resource "clusterpolicies" in '
            'API group "nvidia.com" at the cluster scope',
            f"kubectl auth can-i list clusterpolicies.nvidia.com --as={AGENT}",
        ),
        (
            ApiRequest("create", "pods", "web-1", "shop", "eviction"),
            f'pods "web-1" is forbidden: User "{AGENT}" cannot create resource "pods/eviction" in API group "" in the '
            'namespace "shop"',
            f"kubectl auth can-i create pods/web-1 --subresource=eviction -n shop --as={AGENT}",
        ),
    ],
)  # fmt: skip
def test_a_missing_right_names_user_verb_and_resource(request_: ApiRequest, message: str, command: str) -> None:
    error = refused(403, request_, message, "Forbidden")
    assert type(error) is ForbiddenError
    assert error.brief == f'user "{AGENT}" lacks permission to {request_}'
    assert error.details == (f"message of the API server: {message}",)
    assert error.next_step == command
    assert (error.status, error.reason, error.exit_code) == (403, "Forbidden", 20)


def test_an_admission_check_that_forbids_is_no_missing_right() -> None:
    output = 'pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    error = refused(403, ApiRequest("create", "pods", namespace="a"), output, "Forbidden")
    assert error.brief == f"the cluster forbids create pods in namespace a: {output}"
    assert error.next_step is None


def test_a_user_name_cannot_smuggle_words_into_the_command() -> None:
    error = refused(403, ApiRequest("get", "nodes"), 'User "x; rm -rf /" cannot get resource "nodes"', "Forbidden")
    assert error.next_step == "kubectl auth can-i get nodes '--as=x; rm -rf /'"


@pytest.mark.parametrize(
    ("error", "kind", "brief", "next_step"),
    [
        (
            refused(404, ApiRequest("get", "nodes", "zz"), 'nodes "zz" not found', "NotFound"),
            NotFoundError, 'nodes "zz" not found', "kubectl get nodes",
        ),
        (
            from_response(404, b"404 page not found\n", ApiRequest("list", "clusterpolicies.nvidia.com")),
            NotFoundError, "this cluster does not serve clusterpolicies.nvidia.com in the requested version",
            "kubectl api-resources",
        ),
        (
            refused(409, ApiRequest("patch", "nodes", "n"), "the object has been modified", "Conflict"),
            ConflictError, "the object has been modified", "kubectl get nodes n -o yaml",
        ),
        (
            refused(410, ApiRequest("watch", "nodes"), "too old resource version: 1 (2)", "Expired"),
            GoneError, "the API server no longer has the requested resource version (watch nodes)", None,
        ),
        (
            refused(429, ApiRequest("list", "pods", namespace="a"), "Too many requests", "TooManyRequests"),
            ThrottledError, "the API server throttles requests (list pods in namespace a)",
            "kubectl get --raw /readyz?verbose",
        ),
        (
            refused(500, ApiRequest("get", "nodes", "n"), "etcdserver: request timed out", "InternalError"),
            ApiUnavailableError, "the API server failed with 500 (get nodes n)", "kubectl get --raw /readyz?verbose",
        ),
    ],
)  # fmt: skip
def test_each_refusal_has_its_class_sentence_and_next_step(
    error: ApiError, kind: type[ApiError], brief: str, next_step: str | None
) -> None:
    assert (type(error), error.brief, error.next_step) == (kind, brief, next_step)


def test_what_is_wrong_with_an_object_is_reported_field_by_field() -> None:
    causes = [{"field": "metadata.name", "message": "must be lower case"}, {"message": "and more"}]
    error = refused(422, ApiRequest("create", "nodes"), "invalid", "Invalid", details={"causes": causes})
    assert error.brief == "the API server refused to create nodes: invalid"
    assert error.details == ("metadata.name: must be lower case", "and more")


def test_when_to_come_back_is_in_the_header_or_in_the_body() -> None:
    request = ApiRequest("get", "nodes")
    assert refused(429, request, details={"retryAfterSeconds": 7}).retry_after_s == 7
    assert from_response(429, b"{}", request, retry_after="3").retry_after_s == 3
    for nonsense in ("Fri, 21 Nov 2026 14:00:00 GMT", "-1", "nan", "1e99", ""):
        assert from_response(429, b"{}", request, retry_after=nonsense).retry_after_s is None


@pytest.mark.parametrize(
    "extra",
    [
        {"message": "Too large resource version: 900, current: 30"},
        {"message": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "x"}]}},
    ],
)
def test_a_version_ahead_of_the_server_is_recognised(extra: dict[str, object]) -> None:
    body = json.dumps({"kind": "Status", "code": 504, "reason": "Timeout", **extra}).encode()
    error = from_response(504, body, ApiRequest("list", "nodes"))
    assert (type(error), error.reason) == (ApiUnavailableError, TOO_LARGE)


def test_the_document_of_an_error_has_its_own_code() -> None:
    error = refused(403, ApiRequest("get", "nodes"), 'User "u" cannot get', "Forbidden")
    assert error.document()["code"] == "KUBERNETES_FORBIDDEN"
