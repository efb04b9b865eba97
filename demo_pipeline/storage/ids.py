"""Safe ids: keys made from folder names, which people choose freely.

Belongs here: the one rule for demonstration ids, partition keys and names of outputs, and the
printable form of a folder's name. CUDAG's narrower ids are defined in formats/.
"""

import hashlib
import re

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_UNSAFE_RUN = re.compile(r"[^A-Za-z0-9_-]+")
_STEM_LENGTH = 64
_HASH_LENGTH = 24
# Windows and SMB shares drop a final dot; the others are what the store appends to names.
_RESERVED_ENDINGS = (".", ".json", ".lock")
_DERIVED = re.compile(rf"-[0-9a-f]{{{_HASH_LENGTH}}}\Z")


def is_safe_id(text: str) -> bool:
    """Whether `text` is `[A-Za-z0-9][A-Za-z0-9._-]{0,127}` without `..`: a name in the store.

    `safe_id` gives fewer names: earlier versions also gave those that end like `upload.`.
    """
    return _SAFE.fullmatch(text) is not None and ".." not in text


def is_former_id(text: str) -> bool:
    """Whether an earlier version gave this id to a folder that has another id now."""
    return is_safe_id(text) and safe_id(text) != text


def is_derived_id(text: str) -> bool:
    """Whether a safe id has the form that `safe_id` derives from names that are not safe."""
    return _DERIVED.search(text) is not None


def safe_id(name: str) -> str:
    """`name` itself when it is safe, else a readable stem and 24 hex of its SHA-256.

    A name that ends in a dot, in `.json` or in `.lock` is not kept either.

    Args:
        name: any string, such as a folder's name as the operating system gives it (undecodable
            bytes as lone surrogates), the empty string included.

    Returns:
        A safe id of at most 128 characters; the same for the same name, on every machine.
    """
    if is_safe_id(name) and not name.lower().endswith(_RESERVED_ENDINGS):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
    stem = _UNSAFE_RUN.sub("_", name).strip("_-")[:_STEM_LENGTH].rstrip("_-")
    return f"{stem or 'id'}-{digest}"


def printable_name(name: str) -> str:
    r"""A folder's name as valid Unicode; bytes that are not UTF-8 are written as `\xNN`.

    Args:
        name: as the operating system or a listing gives it, perhaps with lone surrogates.
    """
    try:
        data = name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that does not stand for a byte
        data = name.encode("utf-8", "surrogatepass")
    return data.decode("utf-8", "backslashreplace")
