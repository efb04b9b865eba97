"""Serves a folder of pages on a port; what is below `/slow/` is answered after three seconds."""

import functools
import http.server
import sys
import time

_DELAY_SECONDS = 3.1


class _Pages(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/slow/"):
            self.path = self.path.removeprefix("/slow")
            time.sleep(_DELAY_SECONDS)
        super().do_GET()

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


if __name__ == "__main__":
    pages = functools.partial(_Pages, directory=sys.argv[2])
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), pages).serve_forever()
