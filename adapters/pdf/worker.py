"""Child process of the PDF renderer: reads JSON frames and writes PDF frames (see adapters/pdf/renderer.py) until stdin ends.

Run as `python -m adapters.pdf.worker MEMORY_BYTES TIMEOUT_SECONDS`. It holds no state and may be killed at any time;
it ends by itself when its parent dies, and at a request's deadline even if the parent does not enforce it.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import ctypes.util
import gc
import json
import logging
import math
import os
import resource
import signal
import struct
import sys
import traceback
import unicodedata
from importlib.resources import files
from typing import TYPE_CHECKING, Any, BinaryIO
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_LENGTH = struct.Struct(">I")
_PR_SET_PDEATHSIG = 1
_OVERTIME_SECONDS = 5  # the parent's own deadline comes first
LOGO = "quotebot:logo.png"
PNG_SIZE_AT, PNG_SIZE = 16, struct.Struct(">II")  # width and height, in the header of every PNG file
TEXT_WIDTHS = {"A4": 174, "Letter": 180}  # millimetres between the margins
PAGE_RULES = {
    "A4": "@page { size: A4 }",
    "Letter": "@page { size: Letter; margin: 21mm 18mm 17mm } @page :first { margin-top: 11mm }",  # 18 mm shorter than A4
}
GLYPHS_SHOWN = 5
_NARROW_CHARACTERS = frozenset(" !'(),./:;I[]fijlrt|\u00b7")
_USUAL_CHARACTERS = frozenset("-#$&*0123456789?BEFJLPRSTZ_abcdeghknopqsuvxyz\u2013")
_KNOWN_CHARACTERS = frozenset(map(chr, range(0x20, 0x7F))) | _NARROW_CHARACTERS | _USUAL_CHARACTERS
_NARROW, _USUAL, _WIDE = 0.41, 0.67, 1.02  # of the font's size
_POINT_MILLIMETRES = 25.4 / 72
_NICENESS = 5  # answering Slack within three seconds has priority over rendering

INSTALL_NATIVE_LIBRARIES = (
    "WeasyPrint cannot load Pango, so no PDF can be rendered on this machine. Install it, then replay the render. "
    "Debian or Ubuntu: apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0. "
    "macOS: brew install pango (with a Python from elsewhere also set DYLD_FALLBACK_LIBRARY_PATH=/opt/homebrew/lib)."
)


# PDF/A asks for a description of a schema that it does not define itself.
ACCESSIBLE = b"""<rdf:Description xmlns:pdfaExtension="http://www.aiim.org/pdfa/ns/extension/"
 xmlns:pdfaSchema="http://www.aiim.org/pdfa/ns/schema#" xmlns:pdfaProperty="http://www.aiim.org/pdfa/ns/property#" rdf:about="">
<pdfaExtension:schemas><rdf:Bag><rdf:li rdf:parseType="Resource">
<pdfaSchema:schema>PDF/UA identification schema</pdfaSchema:schema>
<pdfaSchema:namespaceURI>http://www.aiim.org/pdfua/ns/id/</pdfaSchema:namespaceURI>
<pdfaSchema:prefix>pdfuaid</pdfaSchema:prefix>
<pdfaSchema:property><rdf:Seq><rdf:li rdf:parseType="Resource">
<pdfaProperty:name>part</pdfaProperty:name>
<pdfaProperty:valueType>Integer</pdfaProperty:valueType>
<pdfaProperty:category>internal</pdfaProperty:category>
<pdfaProperty:description>Part of ISO 14289 that the file follows</pdfaProperty:description>
</rdf:li></rdf:Seq></pdfaSchema:property>
</rdf:li></rdf:Bag></pdfaExtension:schemas>
</rdf:Description>
<rdf:Description rdf:about="" xmlns:pdfuaid="http://www.aiim.org/pdfua/ns/id/" pdfuaid:part="1"/>
"""


class RefusedError(Exception):
    """One request that cannot be rendered: a code and a sentence. `alive` is false when this process should be replaced."""

    def __init__(self, code: str, message: str, *, alive: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.alive = alive


def main() -> None:
    """Serve until stdin ends."""
    memory_bytes, timeout_seconds = int(sys.argv[1]), float(sys.argv[2])
    requests, answers = _claim_streams()
    _bound_this_process(memory_bytes)
    renderer: Renderer | None = None
    while (request := _read_frame(requests)) is not None:
        signal.alarm(math.ceil(timeout_seconds) + _OVERTIME_SECONDS)
        content = b""
        try:
            if renderer is None:
                # Automatic garbage collection is disabled: it took a sixth of the time of a document. It is disabled during
                # loading too, when there is no garbage: it took a tenth of that time.
                gc.disable()
                renderer = Renderer()
                gc.collect()
                gc.freeze()
            content, pages = renderer.render(json.loads(request))
            answer: dict[str, Any] = {"pages": pages}
        except RefusedError as error:
            answer = {"error": error.code, "message": str(error), "alive": error.alive}
        signal.alarm(0)
        _write_frame(answers, json.dumps(answer).encode())
        if content:
            _write_frame(answers, content)
        answers.flush()
        gc.collect()  # between documents, when no request is pending


class Renderer:
    """Renderer with WeasyPrint and the templates, loaded once. The constructor and `render` raise RefusedError."""

    def __init__(self) -> None:
        weasyprint, jinja2 = load_libraries()
        folder = files("adapters.pdf") / "templates"
        self._weasyprint = weasyprint
        self._template_error = jinja2.TemplateError
        # One shared configuration: a new one for each document leaks a third of a megabyte every time.
        self._fonts = weasyprint.text.fonts.FontConfiguration()
        self._resources: dict[str, tuple[str, bytes]] = {}
        self._fetcher = fixed_fetcher(self._resources)
        self._html_type = html_type((folder / "elements.css").read_text("utf-8"))
        common = weasyprint.CSS(string=(folder / "quote.css").read_text("utf-8"))
        self._styles = {page: [common, weasyprint.CSS(string=rules)] for page, rules in PAGE_RULES.items()}
        self._complaints = Complaints()
        logging.getLogger("weasyprint").addHandler(self._complaints)
        self._sources = {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".html")}
        self._environment = environment_of(self._sources)
        self._own: tuple[dict[str, str], Any] = ({}, self._environment)  # the last templates of an installation

    def render(self, request: Mapping[str, Any]) -> tuple[bytes, int]:
        """Render {document, variant, logo_png} to the bytes of a PDF and its number of pages."""
        page = self._page(request)
        self._resources[LOGO] = ("image/png", _logo(request))
        self._complaints.forget()
        try:
            source = self._html_type(page, self._fetcher)
            pages = source.render(
                font_config=self._fonts, stylesheets=self._sheets(request["document"]), pdf_variant=request["variant"]
            )
            content = pages.write_pdf(finisher=finish, pdf_variant=request["variant"])
        except MemoryError as error:
            message = "The document needs more memory than the PDF renderer may use. Shorten the quote, then replay the render."
            raise RefusedError("render_error", message, alive=False) from error
        except (Exception, self._weasyprint.urls.FatalURLFetchingError) as error:
            raise RefusedError("render_error", f"WeasyPrint could not render the quote{_where(error)}.") from error
        self._complaints.refuse()
        return content, len(pages.pages)

    def _environment_of(self, own: dict[str, str]) -> Any:
        """Return the environment of the shipped templates, or of an installation's own ones before them."""
        if not own:
            return self._environment
        if self._own[0] != own:
            self._own = (own, environment_of({**self._sources, **{f"{name}.html": text for name, text in own.items()}}, own=True))
        return self._own[1]

    def _sheets(self, document: Mapping[str, Any]) -> list[Any]:
        """Return the style sheets of a document, the installation's own one last. It may name no file and no address."""
        own, shipped = document.get("style", ""), self._styles[document["page"]]
        if not own:
            return shipped
        return [*shipped, self._weasyprint.CSS(string=own, url_fetcher=self._fetcher, font_config=self._fonts)]

    def _page(self, request: Mapping[str, Any]) -> ET.Element:
        """Fill in the template. It is well-formed XML: expat is several times faster than an HTML parser."""
        try:
            document = request["document"]
            sizes = {"width": TEXT_WIDTHS[document["page"]], "logo_width": logo_width(_logo(request))}
            values = {"document": document, "texts": document["texts"], **sizes}
            template = self._environment_of(document.get("templates", {})).get_template(f"{document['template']}.html")
            page = template.render(values)
            return ET.fromstring(page)  # noqa: S314 -- written by our template, which escapes every value
        except self._template_error as error:
            raise RefusedError("template_error", f"The quote template failed: {str(error).rstrip('.')}.") from error
        except Exception as error:
            raise RefusedError("template_error", f"The quote template failed{_where(error)}.") from error


def longer_than(text: str, millimetres: float, points: float) -> bool:
    """Return whether a text at this font size may be wider than `millimetres`; never False for a text that is.

    A character of another script may have any width.
    """
    return not set(text) <= _KNOWN_CHARACTERS or text_width(text, points) > millimetres


def text_width(text: str, points: float) -> float:
    """Return a width in millimetres that holds a Latin text at this font size: a character counts as the widest of its group."""
    widths = (_NARROW if c in _NARROW_CHARACTERS else _USUAL if c in _USUAL_CHARACTERS else _WIDE for c in text)
    return sum(widths) * points * _POINT_MILLIMETRES


def environment_of(sources: Mapping[str, str], *, own: bool = False) -> Any:
    """Return a Jinja environment over these templates, by file name. Templates of an installation run in a sandbox."""
    import jinja2.sandbox  # noqa: PLC0415 -- imported after the limits are set

    made = jinja2.sandbox.ImmutableSandboxedEnvironment if own else jinja2.Environment
    environment = made(loader=jinja2.DictLoader(sources), autoescape=True, undefined=jinja2.StrictUndefined, auto_reload=False)
    environment.tests["longer_than"] = longer_than
    environment.filters["text_width"] = text_width
    return environment


def _logo(request: Mapping[str, Any]) -> bytes:
    return base64.b64decode(request.get("logo_png", ""))


def logo_width(png: bytes) -> float:
    """Return the width in millimetres of a logo as it is drawn: at most 50 x 16."""
    if len(png) < PNG_SIZE_AT + PNG_SIZE.size:
        return 0.0
    width, height = PNG_SIZE.unpack_from(png, PNG_SIZE_AT)
    return float(min(50.0, 16.0 * width / max(height, 1)))


class Complaints(logging.Handler):
    """Log handler for defects that WeasyPrint only logs: missing glyphs, printed as boxes, and omitted images."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._missing: set[str] = set()
        self._unusable = False

    def emit(self, record: logging.LogRecord) -> None:
        """Record a log message of WeasyPrint."""
        if str(record.msg).startswith(".notdef glyph") and isinstance(record.args, tuple):
            self._missing.add(str(record.args[0]))
        self._unusable |= record.levelno >= logging.ERROR

    def forget(self) -> None:
        """Reset the findings for the next document."""
        self._missing.clear()
        self._unusable = False

    def refuse(self) -> None:
        """Raise RefusedError if the document just rendered has a defect."""
        if self._unusable:
            message = "The logo cannot be drawn. Nothing was stored. Set seller_logo to a sound PNG file, then replay the render."
            raise RefusedError("render_error", message)
        if self._missing:
            raise RefusedError("missing_glyphs", missing_glyphs(self._missing))


def missing_glyphs(characters: Iterable[str]) -> str:
    """Return the error text for characters that no installed font can print: code points, scripts and the fonts to install."""
    found = sorted(characters)
    scripts = sorted({unicodedata.name(character, "unnamed").split()[0].split("-")[0].lower() for character in found})
    numbers = ", ".join(f"U+{ord(character):04X}" for character in found[:GLYPHS_SHOWN])
    more = f" and {len(found) - GLYPHS_SHOWN} more" if len(found) > GLYPHS_SHOWN else ""
    return (
        f"No font on this machine can print {numbers}{more} ({', '.join(scripts)}), and the customer would see boxes. Nothing was "
        "stored. Install fonts for that script (Debian: fonts-noto-cjk for Chinese, Japanese and Korean, fonts-noto-core for most "
        "others), restart the bot, then replay the render."
    )


def fixed_fetcher(resources: Mapping[str, tuple[str, bytes]]) -> Any:
    """Return a WeasyPrint URL fetcher that serves only these {url: (media type, bytes)} and aborts the render at any other URL."""
    from weasyprint.urls import FatalURLFetchingError, URLFetcher, URLFetcherResponse  # noqa: PLC0415 -- needs native libraries

    class FixedFetcher(URLFetcher):  # type: ignore[misc] # the library is untyped
        def fetch(self, url: str, headers: Any = None) -> Any:  # noqa: ARG002 -- the library's signature
            if url not in resources:
                raise FatalURLFetchingError("a URL outside the template's own resources was asked for")
            media_type, content = resources[url]
            return URLFetcherResponse(url, content, {"Content-Type": media_type})

    return FixedFetcher(allowed_protocols=(), allow_redirects=False)


def html_type(elements: str) -> Any:
    """Return WeasyPrint's document class for pages parsed already; the style sheet `elements` defines their elements."""
    from cssselect2 import ElementWrapper  # noqa: PLC0415 -- only the child imports it
    from weasyprint import CSS, HTML  # noqa: PLC0415 -- needs native libraries

    sheets = [CSS(string=elements)]

    class PlainHtml(HTML):  # type: ignore[misc] # the library is untyped
        def __init__(self, page: ET.Element, fetcher: Any) -> None:  # the library's would parse HTML
            self.etree_element, self.wrapper_element = page, ElementWrapper.from_html_root(page)
            self.base_url, self.media_type, self.url_fetcher = None, "print", fetcher

        def _ua_stylesheets(self, forms: bool = False) -> list[Any]:  # noqa: ARG002, FBT001, FBT002 -- the library's signature
            return sheets

    return PlainHtml


def finish(document: Any, pdf: Any) -> None:
    """Complete a tagged PDF/A: say that it is PDF/UA-1 as well, then compress it."""
    import pydyf  # noqa: PLC0415 -- only the child imports it

    (metadata,) = (part for part in pdf.objects if isinstance(part, pydyf.Stream) and part.extra.get("Type") == "/Metadata")
    metadata.stream = [text.replace(b"</rdf:RDF>", ACCESSIBLE + b"</rdf:RDF>") for text in metadata.stream]
    compress_once(document, pdf)


def compress_once(_document: Any, pdf: Any) -> None:
    """Compress a PDF's streams once: pydyf would compress them for writing and again for the file's identifier."""
    import pydyf  # noqa: PLC0415 -- only the child imports it

    class Compressed(pydyf.Stream):  # type: ignore[misc] # the library is untyped
        data = b""

    for number, part in enumerate(pdf.objects):
        if isinstance(part, pydyf.Stream):
            pdf.objects[number] = compressed = Compressed()
            compressed.number, compressed.data = part.number, part.data


def load_libraries() -> tuple[Any, Any]:
    """Import and return WeasyPrint and Jinja. Raises RefusedError."""
    import jinja2  # noqa: PLC0415 -- imported after the limits are set

    return _load_weasyprint(), jinja2


def _load_weasyprint() -> Any:
    # Our fonts first, then the system's: fontconfig reads this at its first load, so nothing is copied to a temporary folder.
    os.environ["FONTCONFIG_FILE"] = str(files("adapters.pdf") / "templates" / "fonts" / "quote-fonts.conf")
    try:
        with _libraries_by_name():
            import weasyprint  # noqa: PLC0415 -- needs native libraries; where they are missing it also prints a banner
        import weasyprint.text.fonts  # noqa: PLC0415 -- only the child imports it
        import weasyprint.urls  # noqa: PLC0415 -- only the child imports it
    except OSError as error:
        raise RefusedError("missing_native_library", INSTALL_NATIVE_LIBRARIES, alive=False) from error
    except (ImportError, MemoryError) as error:
        raise RefusedError("render_error", f"WeasyPrint cannot be loaded{_where(error)}.", alive=False) from error
    return weasyprint


@contextlib.contextmanager
def _libraries_by_name() -> Iterator[None]:
    """Disable `find_library` on Linux, so that the loader finds native libraries by the names in their headers.

    WeasyPrint tries names of other systems first, and each would start ldconfig, gcc and ld: about fifty processes.
    """
    if sys.platform != "linux":
        yield
        return
    looked_for = ctypes.util.find_library
    ctypes.util.find_library = lambda name: None  # noqa: ARG005 -- the signature cffi calls
    try:
        yield
    finally:
        ctypes.util.find_library = looked_for


def _where(error: BaseException) -> str:
    """Return the error's location without its text, which may quote the customer."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119 -- a name, not a file


def _claim_streams() -> tuple[BinaryIO, BinaryIO]:
    """Reserve stdin and stdout for frames: other output goes to stderr, other reads see an empty stdin."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 -- a descriptor is needed
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def _bound_this_process(memory_bytes: int) -> None:
    # The parent ends this process by closing stdin or with SIGKILL; it ignores signals of a terminal or a service manager.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.nice(_NICENESS)
    with contextlib.suppress(ValueError, OSError):  # not every system supports this limit
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with contextlib.suppress(OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold customers' quotes
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _read_frame(stream: BinaryIO) -> bytes | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def _write_frame(stream: BinaryIO, body: bytes) -> None:
    stream.write(_LENGTH.pack(len(body)) + body)


if __name__ == "__main__":
    main()
