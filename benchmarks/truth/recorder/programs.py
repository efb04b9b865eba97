"""Starting programs for scenarios, placing their windows, and waiting for what they show."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from desktop import Desktop
from Xlib import X, display
from Xlib.protocol import event

PAGES = Path(__file__).resolve().parent / "scenarios" / "pages"
_WINDOW_SEARCHES = 60
_ADD_STATE = 1  # of _NET_WM_STATE


def chromium(
    desktop: Desktop, page: str, x: int, y: int, width: int, height: int, pages: Path = PAGES
) -> None:
    """Opens a page of a folder in Chromium, from a local server; `/slow/` answers late."""
    port = str(_free_port())
    server = str(Path(__file__).with_name("page_server.py"))
    desktop.start(sys.executable, server, port, str(pages))
    desktop.start(
        "chromium",
        "--test-type",
        f"--host-resolver-rules=MAP harbor.test 127.0.0.1:{port}",
        "--no-sandbox",
        "--disable-gpu",
        "--force-renderer-accessibility",
        "--no-first-run",
        "--disable-quic",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-extensions",
        "--password-store=basic",
        f"--user-data-dir={desktop.home}/chromium",
        f"--window-position={x},{y}",
        f"--window-size={width},{height}",
        f"http://harbor.test/{page}",
    )
    wait_for_window("chromium")
    time.sleep(6)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def xterm(desktop: Desktop, x: int, y: int, columns: int, rows: int, folder: Path) -> str:
    """Opens a terminal, which has no accessibility tree; returns its window."""
    shell = ["-e", "bash", "--norc", "-i"]
    size = f"{columns}x{rows}+{x}+{y}"
    font = ["-fa", "DejaVu Sans Mono", "-fs", "12", "-u8"]
    desktop.start(
        "xterm", "-geometry", size, *font, *shell, folder=folder, PS1="\\W $ ", LANG="C.UTF-8"
    )
    return wait_for_window("xterm")


def windows_of(window_class: str) -> list[str]:
    """The visible windows of a class, the newest one last."""
    command = ["xdotool", "search", "--onlyvisible", "--class", window_class]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def wait_for_window(window_class: str) -> str:
    """The newest window of a class, as soon as one is visible."""
    for _ in range(_WINDOW_SEARCHES):
        windows = windows_of(window_class)
        if windows:
            return windows[-1]
        time.sleep(0.3)
    raise LookupError(f"No window of the class {window_class} appeared.")


def place_window(window: str, x: int, y: int, width: int, height: int) -> None:
    for command in (
        ["windowsize", window, str(width), str(height)],
        ["windowmove", window, str(x), str(y)],
        ["windowactivate", "--sync", window],
    ):
        subprocess.run(["xdotool", *command], check=False)


def maximise(window: str) -> None:
    """Asks the window manager, as its own button does."""
    connection = display.Display()
    root = connection.screen().root
    state = connection.intern_atom("_NET_WM_STATE")
    both = ["_NET_WM_STATE_MAXIMIZED_VERT", "_NET_WM_STATE_MAXIMIZED_HORZ"]
    atoms = [connection.intern_atom(name) for name in both]
    target = connection.create_resource_object("window", int(window))
    message = event.ClientMessage(
        window=target, client_type=state, data=(32, [_ADD_STATE, *atoms, 1, 0])
    )
    root.send_event(message, X.SubstructureRedirectMask | X.SubstructureNotifyMask)
    connection.flush()
    activate(window)
    connection.close()


def activate(window: str) -> None:
    subprocess.run(["xdotool", "windowactivate", "--sync", window], check=False)


def window_box(window: str) -> tuple[int, int, int, int]:
    command = ["xdotool", "getwindowgeometry", "--shell", window]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    values = dict(line.split("=") for line in output.split())
    return int(values["X"]), int(values["Y"]), int(values["WIDTH"]), int(values["HEIGHT"])


def title_shows(text: str) -> bool:
    """Whether the title of some visible window holds a text."""
    command = ["xdotool", "search", "--onlyvisible", "--name", text]
    return bool(subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip())


def time_passed(epoch_milliseconds: int) -> Callable[[], bool]:
    """A condition for `Hand.wait` where nothing but the time says that a command is done."""
    return lambda: time.time() * 1000 > epoch_milliseconds
