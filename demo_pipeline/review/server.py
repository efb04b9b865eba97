"""The server of the review page: this machine only, behind a random token.

Belongs here: who may ask, and the routes. Another site's page can neither read
nor write: the token is part of every address, the Host has to be this machine's, and an Origin has
to be the page's own. What is read is in `material`, the page itself is `page.html`, `.js`, `.css`.
"""

from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from demo_pipeline.files.base_model import Document
from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.files.web_requests import OTHER_ADDRESS, is_token, own_hosts, page_refusal
from demo_pipeline.review.decisions import REJECT_REASONS, DecisionError, DecisionId, faults
from demo_pipeline.review.material import Material
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS
from demo_pipeline.store.names import is_safe_id

TOKEN_FILE = "review-token"  # noqa: S105 - a file's name
_LARGEST_DECISION = 2**20  # bytes; `MOST_TEXT` characters have a tenth of that, however written
_FILES = {"screenshot": "screenshot.png", "tree": "ui_tree.json"}
_POLICY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; media-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_HEADERS = [(name.encode(), value.encode()) for name, value in _POLICY.items()]


class Guard:
    """Answers only requests of the page itself, and adds the headers that keep it to itself.

    Args:
        app: gets the request.
        token: the first part of every path.
        hosts: values of `Host` that are this server.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return  # which closes a websocket

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        answer = PlainTextResponse(refusal, 403) if refusal else self._app
        await answer(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host not in self._hosts:
            return OTHER_ADDRESS
        site = headers.get("sec-fetch-site", "none")
        origins = {f"http://{host}"}
        if refusal := page_refusal(scope["method"], origins, headers.get("origin"), site):
            return refusal
        if not is_token(scope["path"], self._token):
            return "open the address that `demo-pipeline review` printed"
        return ""


class Sent(Document):
    """A decision as the page sends it; the same id again is the same decision."""

    id: DecisionId
    version: str
    kind: str
    value: dict[str, Any]


def build_app(material: Material, author: str, token: str, port: int) -> ASGIApp:
    """The server's application.

    Args:
        material: what it shows.
        author: of the decisions made here.
        token: the first part of every path.
        port: it listens on.
    """
    signals = (*STEP_SIGNALS, *DEMONSTRATION_SIGNALS)
    known = {
        "author": author,
        "reasons": REJECT_REASONS,
        "signals": {signal.name: [signal.points, signal.definition] for signal in signals},
    }
    api = "/api/demonstrations/{name}"
    page = Path(__file__).with_name
    routes = [
        Route("/", lambda _: _sent(page("page.html"))),
        Route("/page.js", lambda _: _sent(page("page.js"))),
        Route("/page.css", lambda _: _sent(page("page.css"))),
        Route("/api/queue", lambda _: _json({**material.queue(), **known})),
        Route("/api/steps", lambda _: _json({"steps": material.steps()})),
        Route(api, lambda asked: _json(material.demonstration(_name(asked)))),
        Route(f"{api}/frames", lambda asked: _json(material.frames(_name(asked)))),
        Route(f"{api}/film", lambda asked: _sent(material.film(_name(asked)))),
        Route(f"{api}/decisions", partial(_decide, material, author), methods=["POST"]),
        Route("/files/{name}/{version}/{step:int}/{kind}", partial(_file, material)),
    ]
    return Guard(Starlette(routes=[Mount(f"/{token}", routes=routes)]), token, own_hosts(port))


def _name(request: Request) -> str:
    """The demonstration in the path; it is not found when no store can hold it."""
    name = str(request.path_params["name"])
    if not is_safe_id(name):
        raise HTTPException(404)
    return name


def _json(value: Any, status: int = 200) -> Response:
    if value is None:
        raise HTTPException(404, "there is no such demonstration")
    return Response(json_bytes(value, compact=True), status, media_type="application/json")


def _sent(path: Path | None) -> Response:
    if path is None or not path.is_file():
        raise HTTPException(404, "this is not here any more")
    return FileResponse(path)


def _file(material: Material, request: Request) -> Response:
    """A screenshot or a tree of a version that was shown; the path is made here."""
    version, step, kind = (request.path_params[key] for key in ("version", "step", "kind"))
    opened = material.opened(_name(request), version)
    if opened is None or step not in opened[1].steps or kind not in _FILES:
        raise HTTPException(404)
    return _sent(opened[0] / "steps" / f"{step:03d}" / _FILES[kind])


async def _decide(material: Material, author: str, request: Request) -> Response:
    """Write a decision, or say why it cannot be one."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_DECISION:
            raise HTTPException(413, f"a decision has at most {_LARGEST_DECISION} bytes")
    try:
        sent = Sent.model_validate_json(bytes(body))
    except ValidationError as error:
        return _json({"faults": faults(error)}, 400)
    return await run_in_threadpool(_decided, material, author, _name(request), sent)


def _decided(material: Material, author: str, name: str, sent: Sent) -> Response:
    opened = material.opened(name, sent.version)
    try:
        if opened:
            value = (author, sent.kind, sent.value, sent.id)
            material.reviews.make(opened[1], opened[0], *value)
        elif material.reviews.written(name, sent.id) is None:
            return _json({"faults": ["this version was replaced; look at the new one first"]}, 409)
    except DecisionError as error:
        return _json({"faults": error.args}, 422)
    current = material.opened(name) or opened
    return _json({"decision": sent.id, **(material.judged(current[1]) if current else {})}, 201)
