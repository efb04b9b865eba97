"""The server of the review page, which answers only requests from this machine.

Pages of other sites can neither read nor write data: each address contains a random token, the
header `Host` must name this machine, and the header `Origin` must name the review page.
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
from demo_pipeline.review.review_data import ReviewData
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, STEP_SIGNALS
from demo_pipeline.store.names import is_safe_id

TOKEN_FILE = "review-token"  # noqa: S105 - a file's name
# Maximum size of a request with a decision, bytes: about ten times the longest text of a decision.
_LARGEST_DECISION = 2**20
# Maps the last part of a URL to a file of the step.
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
    """ASGI middleware that accepts requests of the review page and refuses those of other sites.

    Each response gets headers that tell browsers not to let other sites use the response.

    Args:
        token: the first part of every path.
        hosts: the values of the header `Host` that name this server.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses an ASGI request, or passes it to the application."""
        if scope["type"] != "http":
            return  # without an answer, the web server closes the websocket

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        answer = PlainTextResponse(refusal, 403) if refusal else self._app
        await answer(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str:
        """Returns why a request is refused, or an empty string if it is accepted."""
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


class SentDecision(Document):
    """A decision as the page sends it. A repeated id means that the page sent a decision again."""

    id: DecisionId
    version: str
    kind: str
    value: dict[str, Any]


def build_app(data: ReviewData, author: str, token: str, port: int) -> ASGIApp:
    """Builds the ASGI application of the review page.

    Args:
        author: name of the person whose decisions are made on the page.
        token: the first part of every path.
        port: the port on which the server listens.
    """
    signals = (*STEP_SIGNALS, *DEMONSTRATION_SIGNALS)
    fixed = {
        "author": author,
        "reasons": REJECT_REASONS,
        "signals": {signal.name: [signal.points, signal.definition] for signal in signals},
    }
    api = "/api/demonstrations/{name}"
    routes = [
        Route("/", partial(_page_file, "page.html")),
        Route("/page.js", partial(_page_file, "page.js")),
        Route("/page.css", partial(_page_file, "page.css")),
        Route("/api/queue", lambda _: _json({**data.queue(), **fixed})),
        Route("/api/steps", lambda _: _json({"steps": data.steps()})),
        Route(api, lambda request: _json(data.demonstration(_name(request)))),
        Route(f"{api}/frames", lambda request: _json(data.frame_times(_name(request)))),
        Route(f"{api}/video", lambda request: _sent(data.video_file(_name(request)))),
        Route(f"{api}/decisions", partial(_decide, data, author), methods=["POST"]),
        Route("/files/{name}/{version}/{step:int}/{kind}", partial(_file, data)),
    ]
    return Guard(Starlette(routes=[Mount(f"/{token}", routes=routes)]), token, own_hosts(port))


def _page_file(name: str, request: Request) -> Response:  # noqa: ARG001 - a route passes it
    """Sends one of the page's own files, such as `page.js`."""
    return _sent(Path(__file__).with_name(name))


def _name(request: Request) -> str:
    """Returns the demonstration id in the request's path.

    Raises:
        HTTPException: the text is not a valid id; the answer is 404.
    """
    name = str(request.path_params["name"])
    if not is_safe_id(name):
        raise HTTPException(404)
    return name


def _json(value: Any, status: int = 200) -> Response:
    if value is None:
        raise HTTPException(404, "this demonstration does not exist")
    return Response(json_bytes(value, compact=True), status, media_type="application/json")


def _sent(path: Path | None) -> Response:
    if path is None or not path.is_file():
        raise HTTPException(404, "this file does not exist any more")
    return FileResponse(path)


def _file(data: ReviewData, request: Request) -> Response:
    """Sends a screenshot or UI tree of a trajectory version that the page shows or has shown.

    The path is built only from checked values.
    """
    version = request.path_params["version"]
    step = request.path_params["step"]
    kind = request.path_params["kind"]
    reviewed = data.opened(_name(request), version)
    if reviewed is None or step not in reviewed.subject.steps or kind not in _FILES:
        raise HTTPException(404)
    return _sent(reviewed.folder / "steps" / f"{step:03d}" / _FILES[kind])


async def _decide(data: ReviewData, author: str, request: Request) -> Response:
    """Stores the decision in a request, or answers with the reasons why it is not valid."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_DECISION:
            raise HTTPException(413, f"a decision has at most {_LARGEST_DECISION} bytes")
    try:
        sent = SentDecision.model_validate_json(bytes(body))
    except ValidationError as error:
        return _json({"faults": faults(error)}, 400)
    return await run_in_threadpool(_decided, data, author, _name(request), sent)


def _decided(data: ReviewData, author: str, name: str, sent: SentDecision) -> Response:
    """Stores a decision, and answers with all decisions about the demonstration."""
    reviewed = data.opened(name, sent.version)
    try:
        if reviewed:
            data.reviews.make(
                reviewed.subject, reviewed.folder, author, sent.kind, sent.value, sent.id
            )
        elif data.reviews.written(name, sent.id) is None:
            message = "the trajectory was built again; look at its new version first"
            return _json({"faults": [message]}, 409)
    except DecisionError as error:
        return _json({"faults": error.args}, 422)
    answer: dict[str, Any] = {"decision": sent.id}
    if current := data.opened(name) or reviewed:
        answer |= data.judged(current.subject)
    return _json(answer, 201)
