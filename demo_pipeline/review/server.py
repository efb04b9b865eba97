"""The server of the review page: this machine only, behind a random token.

Belongs here: who may ask, the routes, and starting uvicorn. Another site's page can neither read
nor write: the token is part of every address, the Host has to be this machine's, and an Origin has
to be the page's own. What is read is in `material`, the page itself is `page.html`, `.js`, `.css`.
"""

import json
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from demo_pipeline.files.json_files import json_bytes
from demo_pipeline.review.decisions import REJECT_REASONS
from demo_pipeline.review.material import Material
from demo_pipeline.review.review_store import DecisionError
from demo_pipeline.review.signals import DEMONSTRATION_SIGNALS, FLAGGED, STEP_SIGNALS
from demo_pipeline.store.names import is_safe_id

TOKEN_FILE = "review-token"  # noqa: S105 - a file's name
_MOST_BYTES = 2**20  # of a decision
_PAGE = {"": "page.html", "page.js": "page.js", "page.css": "page.css"}
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; media-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Answers only requests of the page itself, and adds the headers that keep it to itself.

    Args:
        app: gets the request without the token in its path.
        token: the first part of every path.
        hosts: values of `Host` that are this server.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self._app, self._token, self._hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # a websocket is closed by returning
        refusal = self._refusal(scope)
        rest = scope["path"].removeprefix("/").partition("/")[2]

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        if refusal:
            await PlainTextResponse(refusal, 403)(scope, receive, guarded)
        else:
            inner = dict(scope, path=f"/{rest}", raw_path=f"/{rest}".encode())
            await self._app(inner, receive, guarded)

    def _refusal(self, scope: Scope) -> str:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self._hosts:
            return "this server answers to its own address only"
        site = headers.get("sec-fetch-site", "none")
        is_own = origin == f"http://{host}"
        reads = scope["method"] in {"GET", "HEAD"}
        if not (is_own or (reads and origin is None)) or site not in {"same-origin", "none"}:
            return "this server answers to its own page only"
        token = scope["path"].removeprefix("/").partition("/")[0]
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return "open the address that `demo-pipeline review` printed"
        return ""


def build_app(material: Material, author: str, token: str, port: int) -> ASGIApp:
    """The server's application.

    Args:
        material: what it shows.
        author: of the decisions made here.
        token: the first part of every path.
        port: it listens on.
    """
    api = "/api/demonstrations/{name}"
    routes = [
        *(Route(f"/{path}", partial(_page, file)) for path, file in _PAGE.items()),
        Route("/api/queue", partial(_queue, material, author)),
        Route(api, partial(_read, material.demonstration)),
        Route(f"{api}/frames", partial(_read, material.frames)),
        Route(f"{api}/film", partial(_film, material)),
        Route(f"{api}/decisions", partial(_decide, material, author), methods=["POST"]),
        Route("/files/{name}/{version}/final", partial(_file, material)),
        Route("/files/{name}/{version}/{step:int}/{kind}", partial(_file, material)),
    ]
    hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
    return Guard(Starlette(routes=routes), token, hosts)


async def _read(read: Callable[[str], Any], request: Request) -> Response:
    """JSON of what a function reads of a demonstration in a thread; 404 when that is None."""
    name = _name(request)
    value = await run_in_threadpool(read, name) if name else None
    if value is None:
        return PlainTextResponse("there is no such demonstration", 404)
    return Response(json_bytes(value, compact=True), media_type="application/json")


def _name(request: Request) -> str:
    """The demonstration in the path; empty when no store can hold it."""
    name = str(request.path_params["name"])
    return name if is_safe_id(name) else ""


async def _page(file: str, _request: Request) -> Response:
    path = Path(__file__).with_name(file)
    return Response(path.read_bytes(), media_type=_TYPES[path.suffix])


async def _queue(material: Material, author: str, _request: Request) -> Response:
    signals = (*STEP_SIGNALS, *DEMONSTRATION_SIGNALS)
    known: Mapping[str, Any] = {
        "author": author,
        "reasons": REJECT_REASONS,
        "flagged_from": FLAGGED,
        "signals": {signal.name: [signal.points, signal.definition] for signal in signals},
    }
    value = {**await run_in_threadpool(material.queue), **known}
    return Response(json_bytes(value, compact=True), media_type="application/json")


async def _film(material: Material, request: Request) -> Response:
    name = _name(request)
    path = await run_in_threadpool(material.film, name) if name else None
    if path is None:
        return PlainTextResponse("the film is not here any more", 404)
    return FileResponse(path, media_type="video/mp4")


async def _file(material: Material, request: Request) -> Response:
    """A screenshot or a tree of a version that was shown; the path is made here."""
    name, version = _name(request), str(request.path_params["version"])
    opened = await run_in_threadpool(material.opened, name, version) if name else None
    files = {"screenshot": ("screenshot.png", "image/png")}
    files |= {"tree": ("ui_tree.json", "application/json")}
    if opened is None:
        return PlainTextResponse("this version is not here any more", 404)
    if "step" not in request.path_params:
        return _sent(opened.folder / "final_screenshot.png", "image/png")
    step, kind = request.path_params["step"], request.path_params["kind"]
    if step not in opened.subject.steps or kind not in files:
        return PlainTextResponse("there is no such file", 404)
    file, media = files[kind]
    return _sent(opened.folder / "steps" / f"{step:03d}" / file, media)


def _sent(path: Path, media: str) -> Response:
    if not path.is_file():
        return PlainTextResponse("this version was removed", 404)
    return FileResponse(path, media_type=media)


async def _decide(material: Material, author: str, request: Request) -> Response:
    """Write a decision: `{id, version, kind, value}`. The same id again is the same decision."""
    name = _name(request)
    body = await _limited_body(request)
    if body is None or request.headers.get("content-type") != "application/json":
        return JSONResponse({"faults": ["a decision is a small JSON object"]}, 400)
    try:
        sent = json.loads(body)
        decision, version, kind = (str(sent[key]) for key in ("id", "version", "kind"))
        value = sent["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return JSONResponse({"faults": ["id, version, kind and value are needed"]}, 400)

    def write() -> tuple[int, Any]:
        reviews, opened = material.reviews, material.opened(name, version) if name else None
        try:
            made = reviews.written(name, decision, kind, value) if name else None
            if opened is None and made is None:
                return 409, {"faults": ["this version was replaced; look at the new one first"]}
            if opened and made is None:
                made = reviews.make(opened.subject, opened.folder, author, kind, value, decision)
        except DecisionError as error:
            return 422, {"faults": error.faults}
        current = material.opened(name) or opened
        return 201, {"decision": decision, **(material.judged(current.subject) if current else {})}

    status, answer = await run_in_threadpool(write)
    data = json_bytes(answer, compact=True)
    return Response(data, status, media_type="application/json")


async def _limited_body(request: Request) -> bytes | None:
    """The request's body; None when it is too long."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MOST_BYTES:
            return None
    return data


def kept_token(folder: Path) -> str:
    """The token of this machine's reviewer, which pages that are open keep using.

    It is made once, at random, in a file that only its owner can read.
    """
    path = folder / TOKEN_FILE
    with suppress(FileNotFoundError):
        token = path.read_text().strip()
        if len(token) >= 32:
            return token
    folder.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(token)
    return token


def listening(port: int) -> socket.socket | None:
    """A socket on the loopback interface; None when the port is taken."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        connection.bind(("127.0.0.1", port))
    except OSError:
        connection.close()
        return None
    connection.listen()
    return connection


def serve(app: ASGIApp, connection: socket.socket) -> None:
    """Serve on a socket until a signal ends the process."""
    import uvicorn  # noqa: PLC0415 - costs 0.1 s

    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[connection])
