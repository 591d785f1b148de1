"""The HTTPS server for admission reviews and pages. Its certificate can change while it runs.

Its pages answer with the same values as those of ``foundation.http_server``, but uvicorn writes them: that server reads
no request bodies and does not support TLS. The node agents, which use that server, do not import uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aliquot.errors import AliquotError, UsageError
from aliquot.foundation.http_server import Page, listen
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client import admission_review as review
from aliquot.kubernetes.client.admission_review import AdmissionVerdict
from aliquot.kubernetes.client.codec import UNREADABLE

MAX_BYTES = 8 * 1024 * 1024
"""A review holds an object at most twice, and the API server accepts no object above 3 MiB."""

GRACE_S = 5.0
"""Seconds for requests under way, at the end."""
BODY_S = 10.0
"""The API server waits this long for an answer, in seconds; a slower sender is not the API server."""

Judge = Callable[[review.AdmissionRequest], Awaitable[AdmissionVerdict]]


class NotReadyError(AliquotError):
    """State that a review needs was not read yet. The failure policy of the webhook decides."""

    code = "NOT_READY"
    exit_code = 20


ReviewListener = Callable[[str, bool], None]
"""Called after each review with its path and whether it was allowed."""


def application(
    judges: Mapping[str, Judge], pages: Mapping[str, Page], on_review: ReviewListener = lambda path, allowed: None
) -> Starlette:
    """Build the application: reviews are posted to the paths of ``judges``, ``pages`` answer GET requests."""
    routes = [Route(path, _review_endpoint(judge, path, on_review), methods=["POST"]) for path, judge in judges.items()]
    routes += [Route(path, _page_endpoint(page), methods=["GET"]) for path, page in pages.items()]
    return Starlette(routes=routes)


def _review_endpoint(judge: Judge, path: str, on_review: ReviewListener) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        body = await received_body(request)
        if isinstance(body, Response):
            return body
        try:
            admission_request = review.decode_review(body)
            verdict = await judge(admission_request)
        except UNREADABLE as error:
            return PlainTextResponse(f"not an AdmissionReview: {error}\n", 400)
        except AliquotError as error:
            return PlainTextResponse(f"{error.brief}\n", 503)
        on_review(path, verdict.allowed)
        if not verdict.allowed:
            target = f"{admission_request.resource.resource} {admission_request.name}"
            about = f"{admission_request.operation} {target}: {verdict.message}"
            log.info("refused: %s", "".join(c if c.isprintable() else "?" for c in about))
        return Response(
            msgspec.json.encode(review.review_response(admission_request, verdict)), media_type="application/json"
        )

    return endpoint


async def received_body(request: Request) -> bytes | Response:
    """Read the request body. Return the answer instead if the body is too large or does not arrive in time."""
    try:
        body = await _body(request)
    except ClientDisconnect:
        return PlainTextResponse("gone", 400)
    except TimeoutError:
        return PlainTextResponse(f"no request within {BODY_S:g} s\n", 408, {"connection": "close"})
    return PlainTextResponse(f"more than {MAX_BYTES} bytes\n", 413) if body is None else body


async def _body(request: Request) -> bytes | None:
    """Read the request body; None if it is too large. Raise TimeoutError if it does not arrive in time."""
    parts, length = [], 0
    async with asyncio.timeout(BODY_S):
        async for part in request.stream():
            length += len(part)
            if length > MAX_BYTES:
                return None
            parts.append(part)
    return b"".join(parts)


def _page_endpoint(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        answer = page(dict(request.query_params))
        return Response(answer.body, answer.status, dict(answer.headers), media_type=answer.content_type)

    return endpoint


class _Server(uvicorn.Server):
    """A uvicorn server without signal handlers: the program handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpsServer:
    """The server. It can serve after the first ``certify``. ``port`` 0 takes a free port of loopback.

    ``option`` is the command-line option of the port.
    """

    def __init__(self, app: Starlette, port: int, option: str = "--webhook-port") -> None:
        try:
            self._socket = listen("", port)
        except OSError as error:
            step = f"aliquot controller {option} PORT"
            raise UsageError(f"{option} cannot listen on port {port}: {error.strerror}", next_step=step) from error
        self.port = int(self._socket.getsockname()[1])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            server_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=round(GRACE_S),
        )
        config.load()
        config.ssl = self._context
        self._server = _Server(config)

    def certify(self, certificate: bytes, key: bytes) -> None:
        """Use this certificate for new connections. Raise UsageError if certificate and key cannot be used."""
        try:
            with _path(certificate) as public, _path(key) as private:
                # A mismatched pair would leave half of itself in the context: load it into another context first.
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(public, private)
                self._context.load_cert_chain(public, private)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise UsageError(f"the certificate and key cannot be used: {error}") from error

    async def serve(self) -> None:
        """Serve until cancelled. Then finish the requests under way, and close."""
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self._server.should_exit = True
            await asyncio.wait({serving}, timeout=GRACE_S)
            raise
        finally:
            self.close()

    def close(self) -> None:
        """Close the listening socket."""
        self._socket.close()


@contextlib.contextmanager
def _path(data: bytes) -> Iterator[str]:
    """Yield a path that only this process can open: OpenSSL takes paths, and a key must not be written to a disk."""
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
