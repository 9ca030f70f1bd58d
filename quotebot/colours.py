"""Whether a colour can be read on white paper."""

from __future__ import annotations

import re
from typing import Final

CONTRAST_MIN: Final = 3.0  # WCAG 2.2, 1.4.3: large text
_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")


def contrast_on_white(colour: str) -> float:
    """Return the WCAG contrast ratio of "#rrggbb" on white: 21 for black, 1 for white."""
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def readable_colour(text: str) -> str:
    """Return the colour. Raises ValueError, in words, when it is none or too light for headings on white."""
    if not _COLOUR.fullmatch(text):
        raise ValueError("a colour is written like #1f4e79")
    contrast = contrast_on_white(text)
    if contrast < CONTRAST_MIN:
        raise ValueError(f"too light to be read on white: contrast {contrast:.1f}, at least {CONTRAST_MIN:.0f} is needed")
    return text


def _linear(channel: float) -> float:
    """Return the light of one sRGB channel, both from 0 to 1."""
    return float(channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4)  # noqa: PLR2004 -- the standard's
