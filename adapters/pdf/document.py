"""Content of a quote document as plain text values, and its canonical form for hashing and rendering."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import unicodedata
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

DETAILED: Final = "detailed"  # every line with its price, term and discount
SUMMARY: Final = "summary"  # the offered products and totals, without unit prices
TEMPLATES: Final = (DETAILED, SUMMARY)
LINES_MAX: Final = 500
LOGO_BYTES_MAX: Final = 512 << 10
LOGO_PIXELS_MAX: Final = 4_000_000  # decoded: 16 MB

_ACCENT: Final = re.compile(r"#[0-9a-fA-F]{6}")
_PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_PNG_SIZE: Final = struct.Struct(">II")
# Bidirectional embeddings, overrides and isolates: they can make an amount read backwards. Right-to-left text does not need them.
_DIRECTION_CONTROLS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """One line of a quote document. Every value is text for people; an empty one prints as nothing."""

    position: str
    name: str
    sku: str
    detail: str  # "Tier 100+ · billed monthly"
    quantity: str
    term: str  # "12 months"
    unit_price: str
    discount: str  # empty: none; the column disappears when no line has one
    amount: str
    section: str = ""  # the document's section that the line belongs to


@dataclass(frozen=True, slots=True)
class QuoteDocument:
    """Content of a quote PDF. Every value is text already formatted for people: nothing is computed here.

    `sections` are headings with their subtotals, in the order of printing; each line belongs to one of them. Without sections, the
    lines form one table. Raises ValueError when `accent` is not "#rrggbb", `created_at` not an ISO 8601 time with an offset, the
    template unknown, the logo not a PNG file within its limits, a line's section unknown, or when there are over 500 lines.
    """

    title: str  # "Quote"
    quote_id: str
    version: str  # "3"
    account: str
    issued_on: str
    valid_until: str
    prepared_by: str
    approved_by: str  # text after "Approved by": "the VP Sales on 3 March 2026"; empty: no approval block
    currency: str
    term: str
    lines: tuple[DocumentLine, ...]
    list_total: str
    discount_label: str  # "Discount (12 %)"
    discount_total: str  # empty: no subtotal and no discount row
    net_total: str
    assumptions: tuple[str, ...]
    terms: tuple[str, ...]
    seller_name: str
    seller_lines: tuple[str, ...]
    accent: str
    created_at: str  # source of the PDF's own dates; the clock is never used
    tax_rows: tuple[tuple[str, str], ...] = ()  # label and amount, the total with tax last; empty: before tax
    template: str = DETAILED
    sections: tuple[tuple[str, str], ...] = ()
    key_figures: tuple[tuple[str, str], ...] = ()  # ("Per month", "1,445.00 USD"): shown prominently
    footer: str = ""  # company register, tax number: at the foot of every page
    logo: bytes = b""  # a PNG file; empty: the seller's name alone

    def __post_init__(self) -> None:
        if not _ACCENT.fullmatch(self.accent):
            raise ValueError(f"accent must look like #1f4e79, not {self.accent!r}")
        if datetime.fromisoformat(self.created_at).tzinfo is None:
            raise ValueError(f"created_at needs an offset from UTC: {self.created_at!r}")
        if len(self.lines) > LINES_MAX:
            raise ValueError(f"a quote document holds at most {LINES_MAX} lines, not {len(self.lines)}")
        if self.template not in TEMPLATES:
            raise ValueError(f"there is no template {self.template!r}; there are {' and '.join(TEMPLATES)}")
        if self.logo:
            check_logo(self.logo)
        headings = {name for name, _ in self.sections} if self.sections else {""}
        if strange := {line.section for line in self.lines} - headings:
            raise ValueError(f"lines of sections that are not printed: {', '.join(sorted(strange))}")


def check_logo(content: bytes) -> tuple[int, int]:
    """Return width and height in pixels of a PNG file. Raises ValueError, with a readable reason, if it is invalid or too big."""
    if len(content) > LOGO_BYTES_MAX:
        raise ValueError(f"the logo is over {LOGO_BYTES_MAX >> 10} KiB")
    if not content.startswith(_PNG_HEAD) or len(content) < len(_PNG_HEAD) + _PNG_SIZE.size:
        raise ValueError("the logo is not a PNG file")
    width, height = _PNG_SIZE.unpack_from(content, len(_PNG_HEAD))
    if not 0 < width * height <= LOGO_PIXELS_MAX:
        raise ValueError(f"the logo has {width} x {height} pixels; at most {LOGO_PIXELS_MAX:,} are read")
    return width, height


def canonical_model(document: QuoteDocument) -> dict[str, Any]:
    """Return the document's whole content as JSON values: printable text, and the logo by its SHA-256."""
    values = asdict(document)
    logo = values.pop("logo")
    return {**_printable(values), "logo": hashlib.sha256(logo).hexdigest() if logo else ""}


def request_of(document: QuoteDocument, language: str, variant: str) -> bytes:
    """Return the renderer's request: canonical JSON."""
    logo = base64.b64encode(document.logo).decode("ascii")
    return canonical_json({"document": canonical_model(document), "language": language, "variant": variant, "logo_png": logo})


def canonical_json(value: Any) -> bytes:
    """Return the canonical text of a JSON value: sorted names, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _printable(value: Any) -> Any:
    """Drop unprintable or deceptive characters: control characters, surrogates, non-characters and direction overrides."""
    if isinstance(value, str):
        if value.isascii() and value.isprintable():  # the common case
            return value
        return "".join(_printable_character(character) for character in value)
    if isinstance(value, dict):
        return {name: _printable(inner) for name, inner in value.items()}
    return [_printable(inner) for inner in value]


def _printable_character(character: str) -> str:
    if character in "\t\n\r\v\f\u2028\u2029\x85":
        return " "
    if unicodedata.category(character) in {"Cc", "Cs"} or character in _DIRECTION_CONTROLS or character in "\ufffe\uffff":
        return ""
    return character
