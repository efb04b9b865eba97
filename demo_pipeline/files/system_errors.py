"""Errors of the machine and its disks, told from what is wrong with one file.

Belongs here: which errors of the operating system pass by themselves, or when somebody makes room,
and their plain words.
"""

import errno
import os
from pathlib import Path

# Why one file cannot be read while others can: its name, its kind or its permissions
_OF_THE_FILE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}
_OF_THE_FILE |= {errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.EFBIG, errno.EOVERFLOW}
_CV_NO_MEMORY = -4  # OpenCV's StsNoMem
_CHUNK = 2**20  # bytes


def system_trouble(error: BaseException) -> str | None:
    """What is wrong with the machine, in plain words; None when the error does not tell that.

    Errors of libraries that only look like errors of the system are not of the machine: an image
    that cannot be decoded has no number of the system, and FFmpeg gives such numbers to videos.
    """
    if type(error).__module__.partition(".")[0] == "av":
        return None
    of_opencv = type(error).__module__ == "cv2" and getattr(error, "code", None) == _CV_NO_MEMORY
    if isinstance(error, MemoryError) or of_opencv:
        return "not enough memory"
    if not isinstance(error, OSError):
        return None
    if error.errno:
        return os.strerror(error.errno)
    return "the connection failed" if isinstance(error, ConnectionError | TimeoutError) else None


def raise_system_trouble(error: BaseException) -> None:
    """Raise an error again that says nothing about the file that was being read."""
    if system_trouble(error) is None:
        return
    if isinstance(error, OSError) and error.errno in _OF_THE_FILE:
        return
    raise error


def raise_disk_trouble(error: BaseException, path: Path) -> None:
    """After FFmpeg failed to read `path`: raise `OSError` when the system cannot read it either."""
    if not isinstance(error, OSError) or error.errno != errno.EIO:
        return
    with path.open("rb") as file:
        while file.read(_CHUNK):
            pass
