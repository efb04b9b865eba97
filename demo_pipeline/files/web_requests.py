"""Which requests a server of this machine answers, so that no page of another site commands it.

Belongs here: the rule of the review page and of Dagster's UI, and the token of this machine. Any
page that is open in a browser can send requests to this machine. The browser says where they come
from: in `Host` the name that the page used, in `Origin` and `Sec-Fetch-Site` whose page it is.
"""

import secrets
from collections.abc import Collection
from pathlib import Path

OTHER_ADDRESS = "this server answers to its own address only"
OTHER_PAGE = "this server answers to its own page only; type its address, do not follow a link"
_READING = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({"same-origin", "none"})  # none: a person typed the address
_TOKEN_LENGTH = 32  # characters, at least


def own_hosts(port: int) -> frozenset[str]:
    """The values of `Host` that mean a server on this port of this machine."""
    return frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})


def page_refusal(method: str, origins: Collection[str], origin: str | None, site: str) -> str:
    """Why a request is refused as one of another site's page; empty when it is not.

    Args:
        method: of the request.
        origins: the values of `Origin` that are the server's own pages.
        origin: the request's `Origin`; None: it has none, as when a person opens a page.
        site: its `Sec-Fetch-Site`; `none` when it has none.
    """
    is_own = origin in origins
    is_opened = origin is None and method in _READING
    return "" if (is_own or is_opened) and site in _OWN_SITES else OTHER_PAGE


def is_token(path: str, token: str) -> bool:
    """Whether the first part of a path is the token."""
    first = path.removeprefix("/").partition("/")[0].partition("?")[0]
    return secrets.compare_digest(first.encode(), token.encode())


def kept_token(folder: Path, name: str) -> str:
    """The token of this machine's user, which pages that are open keep using.

    It is made once, at random, in a file that only its owner can read.
    """
    path = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    token = path.read_text().strip() if path.is_file() else ""
    if len(token) < _TOKEN_LENGTH:  # a power cut can leave an empty file
        token = secrets.token_urlsafe(_TOKEN_LENGTH)
        draft = folder / f".{secrets.token_hex(8)}"
        draft.touch(0o600)
        draft.write_text(token)
        draft.replace(path)
    return token
