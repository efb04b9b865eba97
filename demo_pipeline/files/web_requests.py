"""Rejecting requests of other sites' pages to a server of this machine.

Any page that is open in a browser can send requests to this machine. The browser tells where they
come from: `Host` is the name that the page used, and `Origin` and `Sec-Fetch-Site` tell whose page
it is. The review page and Dagster's UI use the same rule and the same token.
"""

import secrets
from collections.abc import Collection
from pathlib import Path

OTHER_ADDRESS = "this server answers to its own address only"
OTHER_PAGE = "this server answers to its own page only; type its address, do not follow a link"
_READING = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({"same-origin", "none"})  # none: a person typed the address
_TOKEN_LENGTH = 32  # characters at least


def own_hosts(port: int) -> frozenset[str]:
    """The values of `Host` that name a server on this port of this machine."""
    return frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})


def page_refusal(method: str, origins: Collection[str], origin: str | None, site: str) -> str:
    """Why a request is rejected, because a page of another site sent it; empty if it is not.

    Args:
        method: the method of the request.
        origins: the origins of the server's own pages.
        origin: the `Origin` of the request; None if it has none, as when a person opens a page.
        site: the `Sec-Fetch-Site` of the request; `none` if it has none.
    """
    is_own = origin in origins
    is_opened = origin is None and method in _READING
    if site in _OWN_SITES and (is_own or is_opened):
        return ""
    return OTHER_PAGE


def is_token(path: str, token: str) -> bool:
    """Whether the first part of a path is the token."""
    first = path.removeprefix("/").partition("/")[0].partition("?")[0]
    return secrets.compare_digest(first.encode(), token.encode())


def kept_token(folder: Path, name: str) -> str:
    """The token of this machine's user. It stays the same, so that open pages keep working.

    The first call writes a random token to a file that only its owner can read.
    """
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    token = ""
    if path.is_file():
        token = path.read_text().strip()
    if len(token) < _TOKEN_LENGTH:  # a power cut can leave an empty file
        token = secrets.token_urlsafe(_TOKEN_LENGTH)
        draft = folder / f".{secrets.token_hex(8)}"
        draft.touch(0o600)
        draft.write_text(token)
        draft.replace(path)
    return token
