"""A private desktop under Xvfb, with a session bus, accessibility and a window manager.

Runs under the system's Python, whose packages gi and Xlib come from apt.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_ACCESSIBILITY = {
    "NO_AT_BRIDGE": "0",
    "GTK_MODULES": "gail:atk-bridge",
    "ACCESSIBILITY_ENABLED": "1",
    "QT_ACCESSIBILITY": "1",
    "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1",
    "GNOME_ACCESSIBILITY": "1",
}


class Desktop:
    """A desktop that lasts as long as the `with` block; programs are started in it by `start`.

    Attributes:
        width, height: size of the screen in pixels.
        display: its name, such as `:5`; X chooses a free number, so that several can run at once.
        home: the home directory of its programs, empty at first and removed at the end.
    """

    def __init__(self, width: int, height: int) -> None:
        self.width = width
        self.height = height
        self.display = ""
        self.home = Path(tempfile.mkdtemp(prefix="desktop-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._environment = dict(os.environ)
        self._bus = 0

    def __enter__(self) -> Self:
        os.environ.update(_ACCESSIBILITY)
        os.environ["HOME"] = str(self.home)
        os.environ["XDG_RUNTIME_DIR"] = str(self.home)
        os.environ["LIBGL_ALWAYS_SOFTWARE"] = "1"
        self._start_display()
        self._start_session_bus()
        self.start("/usr/libexec/at-spi-bus-launcher", "--launch-immediately")
        time.sleep(1)
        self.start("openbox")
        time.sleep(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            _end(process)
        if self._bus:
            os.kill(self._bus, signal.SIGTERM)
        os.environ.clear()
        os.environ.update(self._environment)
        shutil.rmtree(self.home, ignore_errors=True)

    def start(
        self, *command: str, folder: Path | None = None, **environment: str
    ) -> subprocess.Popen[bytes]:
        """Starts a program that is ended with the desktop, its output thrown away."""
        process = subprocess.Popen(
            command,
            cwd=folder or self.home,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def set_keyboard_layout(self, layout: str, variant: str = "", options: str = "") -> None:
        """Sets the layout as `setxkbmap` names it; `us,ru` are two that a chord switches."""
        subprocess.run(
            [
                "setxkbmap",
                "-layout",
                layout,
                "-variant",
                variant,
                "-option",
                "",
                "-option",
                options,
            ],
            check=True,
        )

    def _start_display(self) -> None:
        """Starts Xvfb on a free display, which it names when it is ready."""
        screen = f"{self.width}x{self.height}x24"
        reader, writer = os.pipe()
        command = ["Xvfb", "-displayfd", str(writer), "-screen", "0", screen, "-nolisten", "tcp"]
        self._processes.append(
            subprocess.Popen(
                command,
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        os.close(writer)
        with os.fdopen(reader) as answer:
            number = answer.readline().strip()
        if not number:
            raise RuntimeError("Xvfb did not start.")
        self.display = f":{number}"
        os.environ["DISPLAY"] = self.display

    def _start_session_bus(self) -> None:
        command = ["dbus-daemon", "--session", "--fork", "--print-address=1", "--print-pid=1"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        address, process_id = output.split()
        os.environ["DBUS_SESSION_BUS_ADDRESS"] = address
        self._bus = int(process_id)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program with all processes of its group."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=2)
    except ProcessLookupError:
        pass
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
