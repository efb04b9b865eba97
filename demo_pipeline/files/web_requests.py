"""Rejects requests that pages of other sites send to a server on this machine.

Any page that is open in a browser can send requests to this machine. The header `Host` contains the
name that the page used for this server. `Origin` and `Sec-Fetch-Site` tell which site the page
comes from.
"""

import secrets
from collections.abc import Collection
from pathlib import Path

OTHER_ADDRESS = "this server answers to its own address only"
OTHER_PAGE = "this server answers to its own page only; type its address, do not follow a link"
_READING = frozenset({"GET", "HEAD"})  # methods that change nothing
_OWN_SITES = frozenset({"same-origin", "none"})  # `none`: a person typed the address
_TOKEN_LENGTH = 32  # random bytes of a new token, and minimum characters of a stored token


def own_hosts(port: int) -> frozenset[str]:
    """Returns the values of the header `Host` for a server on this port of this machine."""
    return frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})


def page_refusal(method: str, origins: Collection[str], origin: str | None, site: str) -> str:
    """Returns why a request is rejected; empty if the request is allowed.

    Requests are allowed if they come from a page of this server, or from a person who opened a page
    by its address.

    Args:
        origins: the origins of the server's own pages.
        origin: the header `Origin`; None if the request has no such header.
        site: the header `Sec-Fetch-Site`; `none` if the request has no such header.
    """
    is_own = origin in origins
    is_opened = origin is None and method in _READING
    if site in _OWN_SITES and (is_own or is_opened):
        return ""
    return OTHER_PAGE


def is_token(path: str, token: str) -> bool:
    """Returns whether the first segment of a URL path is the token."""
    first = path.removeprefix("/").partition("/")[0].partition("?")[0]
    return secrets.compare_digest(first.encode(), token.encode())


def kept_token(folder: Path, name: str) -> str:
    """Returns the user's secret token, which is part of each address of the server.

    The first call writes a random token to the file `name` in `folder`; only the owner can read
    this file. Later calls return the same token, so that open pages work after a restart.
    """
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    token = ""
    if path.is_file():
        token = path.read_text().strip()
    if len(token) < _TOKEN_LENGTH:  # no token yet, or a power cut left an empty file
        token = secrets.token_urlsafe(_TOKEN_LENGTH)
        draft = folder / f".{secrets.token_hex(8)}"
        draft.touch(0o600)
        draft.write_text(token)
        draft.replace(path)
    return token
