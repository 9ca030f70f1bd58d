"""Renderer of quote documents as PDF, with WeasyPrint in one child process.

The child (adapters/pdf/worker.py) keeps the CPU-bound work off the event loop, can be killed at a deadline, is capped in memory and
sees none of the bot's secrets. Rendering is pure: the same document gives the same bytes, so every failure may be repeated.

Frames on the child's stdin and stdout: four bytes of length, big-endian, then that many bytes. A request is one frame of JSON; an
answer is one frame of JSON and, on success, one frame of PDF.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import re
import struct
import sys
import tempfile
import unicodedata
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cache
from importlib.metadata import version as installed_version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from adapters.failures import AdapterError, Failure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from importlib.resources.abc import Traversable

DETAILED: Final = "detailed"  # every line with its price, term and discount
SUMMARY: Final = "summary"  # the offered products and totals, without unit prices
TEMPLATES: Final = (DETAILED, SUMMARY)
PAGES: Final = ("A4", "Letter")
TEMPLATE_NAME: Final = re.compile(r"_?[a-z0-9][a-z0-9_-]{0,39}")
TEMPLATES_MAX: Final = 20
TEMPLATE_BYTES_MAX: Final = 64 << 10  # of one template, and of the style sheet
LINES_MAX: Final = 800  # a quote has at most 400, and each may have a bundle's row above it
LOGO_BYTES_MAX: Final = 512 << 10
LOGO_PIXELS_MAX: Final = 4_000_000  # decoded: 16 MB

_ACCENT: Final = re.compile(r"#[0-9a-fA-F]{6}")
_PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_PNG_SIZE: Final = struct.Struct(">II")
# Bidirectional embeddings, overrides and isolates: they can make an amount read backwards. Right-to-left text does not need them.
_DIRECTION_CONTROLS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

PDF_VARIANT = "pdf/a-3a"  # level A: tagged, so that a screen reader finds headings, lists and table cells
REQUEST_BYTES_MAX = 8 << 20
ANSWER_BYTES_MAX = 64 << 20
RENDERS_PER_CHILD = 250

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class DocumentLine:
    """One line of a quote document. Every value is text for people; an empty one prints as nothing."""

    position: str
    name: str
    sku: str
    detail: str  # "gb: 20"
    quantity: str
    term: str  # "12 months"
    unit_price: str
    discount: str  # empty: none; the column disappears when no line has one
    amount: str
    section: str = ""  # the document's section that the line belongs to
    list_amount: str = ""  # before the discount; printed beside it
    kind: str = ""  # "bundle": the row of a bundle above its items, with a quantity but no prices; "part": one of these items


@dataclass(frozen=True, slots=True)
class QuoteDocument:
    """Content of a quote PDF. Every value is text already formatted for people: nothing is computed here.

    `sections` are headings with their subtotals, in the order of printing; each line belongs to one of them. Without sections, the
    lines form one table. `texts` holds the templates' fixed texts in the document's language. Fields are added, never renamed or
    removed: templates of installations name them. Raises ValueError when `accent` is not "#rrggbb", `created_at` not an ISO 8601
    time with an offset, the template or page size unknown, the logo not a PNG file within its limits, a line's section unknown, or
    when there are over 800 lines.
    """

    title: str  # "Quote"
    quote_id: str
    version: str  # "3"
    account: str
    issued_on: str
    valid_until: str
    prepared_by: str
    currency: str
    term: str  # "12 months"; empty: nothing is recurring
    lines: tuple[DocumentLine, ...]
    unit_price_title: str  # head of the column: "USD per unit/month"
    amount_title: str
    list_total: str
    discount_label: str  # "Discount (12%)"
    discount_total: str  # empty: no subtotal and no discount row
    net_total: str
    terms: tuple[str, ...]
    acceptance: str  # the sentence above the signatures
    seller_name: str
    seller_lines: tuple[str, ...]
    accent: str
    created_at: str  # source of the PDF's own dates; the clock is never used
    texts: Mapping[str, str]
    language: str = "en"
    page: str = "A4"
    bill_to: tuple[str, ...] = ()  # lines below the account: address, VAT id
    contact: tuple[str, ...] = ()
    preparer: tuple[str, ...] = ()  # lines below `prepared_by`: e-mail address, phone number
    start_on: str = ""
    billing: str = ""
    payment: str = ""
    po_number: str = ""  # empty: a line to fill in beside the signature
    note: str = ""  # to the customer
    tax_rows: tuple[tuple[str, str], ...] = ()  # label and amount, the total with tax last; empty: before tax
    template: str = DETAILED
    templates: Mapping[str, str] = field(default_factory=dict)  # the installation's own, by name: they come before the shipped ones
    style: str = ""  # the installation's own style sheet, after the shipped one
    sections: tuple[tuple[str, str], ...] = ()
    split_rows: tuple[tuple[str, str], ...] = ()  # the parts of the total: recurring, one-time
    year_rows: tuple[tuple[str, str], ...] = ()  # the total per year of the contract
    invoice_rows: tuple[tuple[str, str], ...] = ()  # the instalments
    options: tuple[DocumentLine, ...] = ()  # offered beside the total
    clauses: tuple[tuple[str, str], ...] = ()  # title and text of each special term
    key_figures: tuple[tuple[str, str], ...] = ()  # ("Per month", "$1,445.00"): shown prominently
    footer: str = ""  # company register, tax number: at the foot of every page
    logo: bytes = b""  # a PNG file; empty: the seller's name alone

    def __post_init__(self) -> None:
        if not _ACCENT.fullmatch(self.accent):
            raise ValueError(f"accent must look like #1f4e79, not {self.accent!r}")
        if datetime.fromisoformat(self.created_at).tzinfo is None:
            raise ValueError(f"created_at needs an offset from UTC: {self.created_at!r}")
        if len(self.lines) > LINES_MAX:
            raise ValueError(f"a quote document holds at most {LINES_MAX} lines, not {len(self.lines)}")
        known = template_names(self.templates)
        if self.template not in known:
            raise ValueError(f"there is no template {self.template!r}; there are {' and '.join(known)}")
        if self.page not in PAGES:
            raise ValueError(f"there is no page size {self.page!r}; there are {' and '.join(PAGES)}")
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
    logo, templates, style = (values.pop(name) for name in ("logo", "templates", "style"))
    sha256 = hashlib.sha256(logo).hexdigest() if logo else ""
    return {**_printable(values), "logo": sha256, "templates": templates, "style": style}


def template_names(own: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the templates that a document may have: the shipped ones and an installation's `own`, without parts."""
    return tuple(sorted({*TEMPLATES, *(name for name in own if not name.startswith("_"))}))


def packaged_template(name: str) -> str:
    """Return the source of a shipped template or part, by its name."""
    return files("adapters.pdf").joinpath("templates", f"{name}.html").read_text("utf-8")


def request_of(document: QuoteDocument, variant: str) -> bytes:
    """Return the renderer's request: canonical JSON."""
    logo = base64.b64encode(document.logo).decode("ascii")
    return canonical_json({"document": canonical_model(document), "variant": variant, "logo_png": logo})


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


@dataclass(frozen=True, slots=True)
class RenderedPdf:
    """One PDF/A-3a file, its SHA-256 (hex) and its number of pages."""

    content: bytes
    sha256: str
    pages: int


def render_key(document: QuoteDocument) -> str:
    """Return the key of a rendering before it is made: the SHA-256 (hex) of everything that determines its appearance.

    Equal on every machine; another template, style sheet, font, language, PDF variant or WeasyPrint major version changes it.
    """
    decided_by = {
        "document": canonical_model(document),
        "assets": _assets_digest(),
        "variant": PDF_VARIANT,
        "renderer": f"weasyprint {installed_version('weasyprint').partition('.')[0]}",
    }
    return hashlib.sha256(canonical_json(decided_by)).hexdigest()


async def start_worker(memory_bytes: int, timeout_seconds: float, environment: Mapping[str, str]) -> asyncio.subprocess.Process:
    """Start the child: it reads requests from stdin and writes answers to stdout. `environment` is its whole environment."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # do not import from the current directory
        "-m",
        "adapters.pdf.worker",
        str(memory_bytes),
        str(timeout_seconds),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # errors are returned as data; the libraries' output is discarded
        env=environment,
    )


class PdfRenderer:
    """Renderer of one document at a time in one long-lived child, started on demand and replaced when it crashes or times out.

    `timeout_seconds` bounds one render, the child's start included; `memory_bytes` is the child's address space. After
    `renders_per_child` documents it is replaced: the libraries leak some 40 KB per document.
    """

    def __init__(
        self, *, timeout_seconds: float = 60.0, memory_bytes: int = 1 << 30, renders_per_child: int = RENDERS_PER_CHILD
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._memory_bytes = memory_bytes
        self._renders_per_child = renders_per_child
        self._rendered = 0  # by the present child
        self._turn = asyncio.Lock()
        self._child: asyncio.subprocess.Process | None = None
        self._private_cache: tempfile.TemporaryDirectory[str] | None = None
        self._closed = False

    @property
    def child_pid(self) -> int | None:
        """Process id of the running child; None if no child is running."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    async def render(self, document: QuoteDocument) -> RenderedPdf:
        """Render one document. Raises AdapterError; `possibly_applied` is never set, because no external state changes.

        TIMEOUT: timeout. TRANSIENT: renderer_died, closed.
        RENDER: template_error, render_error, missing_glyphs, missing_native_library.
        """
        return await self._ask(request_of(document, PDF_VARIANT))

    async def close(self) -> None:
        """End the child. A render under way fails as transient; later ones are refused."""
        self._closed = True
        await self._discard_child()
        if self._private_cache is not None:
            self._private_cache.cleanup()
            self._private_cache = None

    async def _ask(self, request: bytes) -> RenderedPdf:
        if len(request) > REQUEST_BYTES_MAX:
            raise AdapterError(
                Failure.RENDER, "render_error", f"The document is over {REQUEST_BYTES_MAX >> 20} MiB of text. Shorten it."
            )
        async with self._turn:
            if self._closed:
                raise AdapterError(Failure.TRANSIENT, "closed", "The PDF renderer is shutting down. Another try is safe.")
            answered = False
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    answer, content = await self._exchange(request)
                answered = True
            except TimeoutError as error:
                message = f"The PDF renderer took over {self._timeout_seconds:g} s and was stopped. Nothing was stored."
                raise AdapterError(Failure.TIMEOUT, "timeout", message) from error
            except (OSError, EOFError) as error:
                message = "The PDF renderer's process ended. Nothing was stored."
                raise AdapterError(Failure.TRANSIENT, "renderer_died", message) from error
            finally:
                if not answered:  # also on cancellation: the frames are out of sync
                    await self._discard_child()
            if answer.get("error") and not answer.get("alive", True):
                await self._discard_child()
            return _rendered(answer, content)

    async def _exchange(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        child = await self._living_child()
        if child.stdin is None or child.stdout is None:  # both are pipes, as requested at the start
            raise EOFError
        child.stdin.write(_LENGTH.pack(len(request)) + request)
        await child.stdin.drain()
        answer: dict[str, Any] = json.loads(await _read_frame(child.stdout))
        content = b"" if answer.get("error") else await _read_frame(child.stdout)
        return answer, content

    async def _living_child(self) -> asyncio.subprocess.Process:
        if self._child is not None and self._child.returncode is None and self._rendered < self._renders_per_child:
            self._rendered += 1
            return self._child
        await self._discard_child()
        self._rendered = 1
        self._child = await start_worker(self._memory_bytes, self._timeout_seconds, self._environment())
        return self._child

    async def _discard_child(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        if child.stdin is not None:
            child.stdin.close()
        if child.stdout is not None:
            with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: a running render reads the stream and sees its end
                await child.stdout.read()  # read to the end, so that the transport closes
        await child.wait()

    def _environment(self) -> dict[str, str]:
        """Return the child's complete environment: no tokens, no proxies, nothing that changes the output between runs."""
        kept = ("DYLD_FALLBACK_LIBRARY_PATH", "LD_LIBRARY_PATH", "FONTCONFIG_PATH")
        return {
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "PATH": os.defpath,  # the loader looks for libraries with ldconfig
            "PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent),
            "SOURCE_DATE_EPOCH": "0",  # fontTools would stamp the time into embedded fonts
            "XDG_CACHE_HOME": self._cache_folder(),
            **{name: os.environ[name] for name in kept if name in os.environ},
        }

    def _cache_folder(self) -> str:
        """Return the folder for fontconfig's index: the user's cache, or a private folder if that is not writable."""
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME", "/nonexistent"), ".cache"))
        if usual.is_dir() and os.access(usual, os.W_OK):
            return str(usual)
        if self._private_cache is None:
            self._private_cache = tempfile.TemporaryDirectory(prefix="quotebot-fonts-")
        return self._private_cache.name


async def _read_frame(stream: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
    if length > ANSWER_BYTES_MAX:
        raise EOFError
    return await stream.readexactly(length)


def _rendered(answer: dict[str, Any], content: bytes) -> RenderedPdf:
    if answer.get("error"):
        raise AdapterError(Failure.RENDER, str(answer["error"]), str(answer["message"]))
    if not content.startswith(b"%PDF-"):
        raise AdapterError(Failure.RENDER, "render_error", "The renderer's answer is not a PDF. Nothing was stored.")
    return RenderedPdf(content=content, sha256=hashlib.sha256(content).hexdigest(), pages=int(answer["pages"]))


@cache
def _assets_digest() -> str:
    """Return the SHA-256 over the template folder: names and bytes, sorted. Package data does not change at run time."""
    digest = hashlib.sha256()
    for name, content in sorted(_assets(files("adapters.pdf") / "templates", "")):
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def _assets(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _assets(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry.read_bytes()
