"""Distinguishes errors of the machine, such as a full disk, from errors of a single file.

A file must not be rejected because of an error of the machine, which is transient.
"""

import errno
import os
from pathlib import Path

# Errors whose cause is the name, the kind or the permissions of a single file.
_OF_THE_FILE = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP}
_OF_THE_FILE |= {errno.ENAMETOOLONG, errno.EINVAL, errno.ENXIO, errno.EFBIG, errno.EOVERFLOW}
_CV_NO_MEMORY = -4  # OpenCV's StsNoMem
_CHUNK = 2**20  # bytes per read


def system_trouble(error: BaseException) -> str | None:
    """Returns a phrase with the cause of an operating system error; None for other errors.

    The result is also None for errors that only look like system errors, such as FFmpeg's errors
    about damaged videos.
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
    """Re-raises an error of the machine; does nothing if the file that was read caused the error.

    If this function returns, the caller should report that the file has a problem.
    """
    if system_trouble(error) is None:
        return
    if isinstance(error, OSError) and error.errno in _OF_THE_FILE:
        return
    raise error


def raise_disk_trouble(error: BaseException, path: Path) -> None:
    """Raises `OSError` if FFmpeg could not read a file because of the disk.

    FFmpeg also reports damaged content as an input/output error. Therefore this function reads the
    file without FFmpeg, and raises nothing if the whole file can be read.
    """
    if not isinstance(error, OSError) or error.errno != errno.EIO:
        return
    with path.open("rb") as file:
        while file.read(_CHUNK):
            pass
