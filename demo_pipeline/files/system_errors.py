"""Telling errors of the machine and its disks from errors of a single file.

Errors of the machine pass by themselves, or when somebody makes room. Here they get plain words.
"""

import errno
import os
from pathlib import Path

# Errors because of the name, the kind or the permissions of a single file
_OF_THE_FILE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}
_OF_THE_FILE |= {errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.EFBIG, errno.EOVERFLOW}
_CV_NO_MEMORY = -4  # OpenCV's StsNoMem
_CHUNK = 2**20  # bytes


def system_trouble(error: BaseException) -> str | None:
    """The trouble of the machine that an error reports, in plain words; None for other errors.

    Some errors of libraries only look like errors of the system: FFmpeg uses the system's error
    numbers for damaged videos, and an image that cannot be decoded has no error number.
    """
    library = type(error).__module__.partition(".")[0]
    if library == "av":
        return None
    is_opencv_memory = library == "cv2" and getattr(error, "code", None) == _CV_NO_MEMORY
    if isinstance(error, MemoryError) or is_opencv_memory:
        return "not enough memory"
    if not isinstance(error, OSError):
        return None
    if error.errno:
        return os.strerror(error.errno)
    if isinstance(error, ConnectionError | TimeoutError):
        return "the connection failed"
    return None


def raise_system_trouble(error: BaseException) -> None:
    """Raise an error again unless the file that was being read is at fault."""
    if system_trouble(error) is None:
        return
    if isinstance(error, OSError) and error.errno in _OF_THE_FILE:
        return
    raise error


def raise_disk_trouble(error: BaseException, path: Path) -> None:
    """After FFmpeg failed to read `path`: raise `OSError` if the system cannot read it either."""
    if not isinstance(error, OSError) or error.errno != errno.EIO:
        return
    with path.open("rb") as file:
        while file.read(_CHUNK):
            pass
