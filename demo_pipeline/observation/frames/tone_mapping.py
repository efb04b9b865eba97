"""Converts frames of an HDR video to 8-bit sRGB, with the desktop's white at 255.

HDR encodes the white of an ordinary desktop far below the largest value (at 58 % of the code values
in PQ, at 75 % in HLG). Everything brighter becomes white.
"""

from typing import Any

import cv2
import numpy as np

_PQ = 16  # code of the transfer characteristics PQ in ITU-T H.273
_HLG = 18  # code of the transfer characteristics HLG in ITU-T H.273
_BT2020 = 9  # code of the colour primaries of BT.2020 in ITU-T H.273
_WHITE_NITS = 203.0  # luminance of an ordinary desktop's white in HDR (ITU-R BT.2408)
_HLG_GAMMA = 1.2  # exponent that converts scene light to display light (ITU-R BT.2100)
_CODES = 65_536  # number of values of a sample with 16 bits
# Converts linear light from the primaries of BT.2020 to those of BT.709 (ITU-R BT.2087).
_TO_BT709 = np.array(
    [[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]],
    np.float32,
)

_Pixels = np.ndarray[Any, np.dtype[np.uint8]]
_Levels = np.ndarray[Any, np.dtype[np.float32]]


def is_hdr(decoded: Any) -> bool:
    """Whether a decoded frame (`av.VideoFrame`) is marked as HDR."""
    return int(decoded.color_trc) in {_PQ, _HLG}


def tone_mapped(codes: np.ndarray[Any, np.dtype[np.uint16]], decoded: Any) -> _Pixels:
    """Returns the sRGB pixels of an HDR frame, (height, width, 3) uint8.

    Args:
        codes: (height, width, 3) RGB of the HDR frame, 16 bits per sample.
        decoded: the decoded frame (`av.VideoFrame`), which names its transfer characteristics and
            colour primaries.
    """
    light_of_code = _PQ_LIGHT if int(decoded.color_trc) == _PQ else _HLG_LIGHT
    light = light_of_code[codes]
    if int(decoded.color_primaries) == _BT2020:
        light = np.asarray(cv2.transform(light, _TO_BT709), np.float32)
    levels = np.clip(light, 0.0, 1.0) * (_CODES - 1)
    return np.asarray(_DISPLAYED[(levels + 0.5).astype(np.uint16)], np.uint8)


def _pq_light() -> _Levels:
    """Returns the linear light of each 16-bit PQ code (SMPTE ST 2084); the desktop's white is 1."""
    m1 = 2610 / 16384
    m2 = 2523 / 4096 * 128
    c1 = 3424 / 4096
    c2 = 2413 / 4096 * 32
    c3 = 2392 / 4096 * 32
    code = np.linspace(0.0, 1.0, _CODES) ** (1 / m2)
    nits = 10_000 * (np.maximum(code - c1, 0.0) / (c2 - c3 * code)) ** (1 / m1)
    return np.asarray(nits / _WHITE_NITS, np.float32)


def _hlg_light() -> _Levels:
    """Returns the linear light of each 16-bit HLG code (ARIB STD-B67).

    The desktop's white, at 75 % of the code values, is 1.
    """
    a = 0.17883277
    b = 0.28466892
    c = 0.55991073
    code = np.linspace(0.0, 1.0, _CODES)
    scene = np.where(code <= 0.5, code**2 / 3, (np.exp((code - c) / a) + b) / 12)
    white = (np.exp((0.75 - c) / a) + b) / 12
    return np.asarray((scene / white) ** _HLG_GAMMA, np.float32)


def _displayed() -> _Pixels:
    """Returns a table of 8-bit sRGB values for linear light from 0 to 1, in equal steps."""
    light = np.linspace(0.0, 1.0, _CODES)
    curve = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray(np.round(curve * 255), np.uint8)


_PQ_LIGHT = _pq_light()
_HLG_LIGHT = _hlg_light()
_DISPLAYED = _displayed()
