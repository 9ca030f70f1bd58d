"""Tests of the pages of a quote and of the file's format, with a real renderer.

With QUOTEBOT_WRITE_PICTURES=1 the pages of an example are drawn for docs/pictures (needs pdftoppm).
"""

from __future__ import annotations

import asyncio
import ctypes.util
import io
import os
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pypdf
import pytest
import pytest_asyncio

from adapters.pdf.renderer import PdfRenderer
from quotebot.domain.pricing.engine import LineRequest
from quotebot.domain.quotes.quote import QuoteState
from quotebot.views.document import Seller, quote_document
from tests.adapters.test_pdf import DOCUMENT, LINES, SECTIONS, pages_of
from tests.quotebot.domain.ruleset_parts import SAMPLE, ask, priced
from tests.quotebot.views.quote_examples import example_pricing, quote_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from adapters.pdf.renderer import QuoteDocument

pytestmark = pytest.mark.skipif(
    ctypes.util.find_library("pango-1.0") is None, reason="Pango is not installed (doctor names the command)"
)
together = pytest.mark.asyncio(loop_scope="module")  # they share one child
ROWS = re.compile(r"Component (\d+)")
WARM, RENDERS, GROWTH_MIB_MAX = 4, 20, 4.0  # a configuration for each render leaked 7 MiB in so many


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def renderer() -> AsyncIterator[PdfRenderer]:
    renderer = PdfRenderer(timeout_seconds=300)
    yield renderer
    await renderer.close()


def logo(side: int = 64) -> bytes:
    """Return a PNG file of a ring on a transparent background."""

    def pixel(x: int, y: int) -> bytes:
        distance = ((x - side / 2) ** 2 + (y - side / 2) ** 2) ** 0.5
        return b"\x1f\x4e\x79\xff" if side * 0.26 < distance < side * 0.46 else b"\0\0\0\0"

    rows = b"".join(b"\0" + b"".join(pixel(x, y) for x in range(side)) for y in range(side))

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def of_lines(count: int, *, in_sections: bool = False) -> QuoteDocument:
    """Return a quote with `count` lines; in sections, the last three are one-time charges."""
    names = ("Recurring charges", "One-time charges")
    lines = tuple(
        replace(LINES[0], position=str(n), name=f"Component {n}", section=names[n > count - 3] if in_sections else "")
        for n in range(1, count + 1)
    )
    return replace(DOCUMENT, lines=lines, sections=tuple((name, "1.00") for name in names) if in_sections else ())


def test_a_logo_that_is_drawn_here_is_one_that_is_taken() -> None:
    assert replace(DOCUMENT, logo=logo()).logo


@pytest.mark.parametrize(
    "wrong", [b"GIF89a", logo()[:20], logo().replace(b"IHDR\0\0", b"IHDR\xff\xff"), logo() + b"\0" * (512 << 10)]
)
def test_what_is_no_small_png_is_no_logo(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="logo"):
        replace(DOCUMENT, logo=wrong)


@together
async def test_four_hundred_lines_have_their_header_and_number_on_every_page(renderer: PdfRenderer) -> None:
    pages = pages_of(await renderer.render(of_lines(400)))
    assert [int(n) for page in pages for n in ROWS.findall(page)] == list(range(1, 401))
    for number, page in enumerate(pages, start=1):
        assert f"Page {number} of {len(pages)}" in page
        assert ("USD per unit" in page) == bool(ROWS.search(page))


@together
@pytest.mark.parametrize("count", [6, 10, 19])  # counts at which the rows just fit, but their total or heading does not
async def test_no_row_heading_subtotal_or_total_stands_alone_on_a_page(renderer: PdfRenderer, count: int) -> None:
    for document in (of_lines(count), of_lines(count, in_sections=True)):
        pages = pages_of(await renderer.render(document))
        (ending,) = (page for page in pages if "before tax" in page)
        assert len(ROWS.findall(ending)) >= 2
        assert f"Component {count}" in ending
        for page in pages:
            assert ROWS.search(page) or not re.search("Subtotal|Recurring charges|One-time charges", page)


PLAIN = Seller("Seller Ltd", ("1 Street",))
GOODS = [("pro", 150), ("sso", 150), ("support", 1), ("onboarding", 1)]


@together
@pytest.mark.parametrize("count", [1, 2, 3, 4])
async def test_quote_of_one_to_four_lines_is_signed_on_its_only_page(renderer: PdfRenderer, count: int) -> None:
    for goods in (GOODS[:count], GOODS[-count:]):
        (page,) = pages_of(await renderer.render(priced_document(goods)))
        assert "Approved by" not in page
        assert page.count("Signature") == 2


@together
@pytest.mark.parametrize("terms", [(), ("liability_cap", "net_60", "exclusivity")])
async def test_signature_never_stands_alone_on_a_page(renderer: PdfRenderer, terms: tuple[str, ...]) -> None:
    goods = [*GOODS, ("enterprise", 20)]
    for lines in (goods, *([*goods, *((f"p{number}", 1) for number in range(more))] for more in (1, 2, 3))):
        *_, last = pages_of(await renderer.render(priced_document(lines, terms=terms)))
        assert last.count("Signature") == 2
        assert re.search(r"as agreed in writing|binding when", last)
        assert re.search(r"agree to this quote \(Q-2026-0042,\s+version 1\)\s+at\s+\$[\d,.]+", last)


def priced_document(goods: list[tuple[str, int]], seller: Seller = PLAIN, **asked: Any) -> QuoteDocument:
    """Return the document of an approved quote by the sample ruleset; goods that it does not have are copies of pro."""
    known = [(sku, quantity) for sku, quantity in goods if sku in SAMPLE.catalogue.products]
    pricing = priced(ask(*known, term=12, discount="15", **asked))
    copies = tuple(replace(pricing.lines[0], sku=sku, name=sku, position=9) for sku, _ in goods[len(known) :])
    pricing = replace(pricing, lines=(*pricing.lines, *copies))
    return quote_document(replace(quote_in(QuoteState.APPROVED), pricing=pricing), seller, "Rita Meyer")


@together
@pytest.mark.parametrize("locale", ["en_US", "de_DE"])
async def test_six_mixed_lines_with_three_special_terms_take_one_page(renderer: PdfRenderer, locale: str) -> None:
    terms = ("liability_cap", "net_60", "exclusivity")
    seller = Seller("Acme Software Inc.", ("100 Harbor Street", "Boston", "USA"), logo=logo(192), footer="VAT 1", locale=locale)
    document = priced_document([*GOODS, ("enterprise", 20), ("p1", 1)], seller, terms=terms)
    (page,) = pages_of(
        await renderer.render(replace(document, bill_to=("1 Long Lane", "10115 Berlin", "VAT ID DE1"), contact=("A", "B")))
    )
    assert "Q-2026-0042" in page


@together
async def test_bundle_has_a_row_with_its_name_above_its_items(renderer: PdfRenderer) -> None:
    bundle = replace(LINES[0], position="", name="Starter Kit", detail="Bundle of the items below", unit_price="", kind="bundle")
    document = replace(DOCUMENT, lines=(replace(bundle, amount="", term="", discount=""), *LINES))
    for template in ("detailed", "summary"):
        (page,) = pages_of(await renderer.render(replace(document, template=template)))
        assert page.index("Starter Kit") < page.index(LINES[0].name)
        assert "\u2013" not in page.split("Starter Kit")[1].split(LINES[0].name)[0]


@together
async def test_sections_come_in_their_order_with_their_lines_and_subtotals(renderer: PdfRenderer) -> None:
    text = "\n".join(pages_of(await renderer.render(SECTIONS)))
    expected = (
        "Recurring charges",
        "Pro",
        "Premium Support",
        "Subtotal",
        "20,400.00",
        "One-time charges",
        "Onboarding",
        "5,000.00",
    )
    places = [text.index(word) for word in ("Recurring charges", "Single Sign-On", "One-time charges", "Onboarding")]
    assert places == sorted(places)
    assert all(word in text for word in expected)
    assert text.count("Subtotal") == 2


@together
async def test_the_summary_says_what_and_how_much_and_no_unit_price(renderer: PdfRenderer) -> None:
    document = replace(DOCUMENT, template="summary", key_figures=(("Per month", "$1,700.00"),), footer="VAT IE1234567T")
    (text,) = pages_of(await renderer.render(document))
    for said in ("Premium Support", "10,800.00", "$20,400.00", "Per month", "$1,700.00", "VAT IE1234567T", "Signature"):
        assert said in text, said
    assert "per unit" not in text
    assert "500.00" not in text.replace("1,500.00", "")


@pytest.mark.parametrize(
    "document", [replace(SECTIONS, logo=logo(), footer="VAT IE1234567T"), replace(DOCUMENT, template="summary")]
)
@together
async def test_the_file_is_built_as_pdf_a_3a_and_pdf_ua_ask(renderer: PdfRenderer, document: QuoteDocument) -> None:
    content = (await renderer.render(document)).content
    reader = pypdf.PdfReader(io.BytesIO(content))
    root: Any = reader.root_object
    xmp = root["/Metadata"].get_object().get_data().decode()
    assert re.search(r"pdfaid:part[^0-9]{1,3}3", xmp)
    assert re.search(r"pdfaid:conformance[^A-Z]{1,3}A", xmp)
    assert re.search(r"pdfuaid:part[^0-9]{1,3}1", xmp)
    assert xmp.count("<rdf:RDF") == 1
    assert root["/MarkInfo"]["/Marked"]
    assert "Quote Q-2026-0042 version 3" in xmp
    (intent,) = root["/OutputIntents"]
    assert intent["/S"] == "/GTS_PDFA1"
    assert b"acsp" in intent["/DestOutputProfile"].get_object().get_data()[:64]  # an ICC profile
    trailer: Any = reader.trailer
    assert "/Encrypt" not in trailer
    assert len(trailer["/ID"]) == 2
    assert not {"/AA", "/OpenAction", "/AcroForm"} & set(root)
    assert "/Names" not in root or "/EmbeddedFiles" not in root["/Names"]  # an embedded file would need an /AFRelationship
    for each in reader.pages:
        page: Any = each
        assert "/AA" not in page
        for font in page["/Resources"]["/Font"].values():
            (descendant,) = font.get_object()["/DescendantFonts"]
            descriptor = descendant.get_object()["/FontDescriptor"].get_object()
            assert {"/FontFile2", "/FontFile3"} & set(descriptor), "a font is not embedded"
            assert "/ToUnicode" in font.get_object()
    for number in range(1, len(reader.xref[0]) + 1):
        found: Any = reader.get_object(number)
        assert not (isinstance(found, dict) and found.get("/S") in {"/JavaScript", "/Launch", "/URI"})


@together
async def test_a_logo_is_drawn_and_one_that_is_broken_inside_is_refused(renderer: PdfRenderer) -> None:
    plain, branded = await renderer.render(DOCUMENT), await renderer.render(replace(DOCUMENT, logo=logo()))
    assert len(branded.content) > len(plain.content)
    whole = logo()
    broken = whole[:40] + bytes(len(whole) - 40)
    with pytest.raises(Exception, match="The logo cannot be drawn"):
        await renderer.render(replace(DOCUMENT, logo=broken))
    assert (await renderer.render(DOCUMENT)).pages == 1


@together
async def test_rendering_over_and_over_does_not_fill_the_memory(renderer: PdfRenderer) -> None:
    for _ in range(WARM):
        await renderer.render(DOCUMENT)
    before = memory_mib(renderer.child_pid)
    for number in range(RENDERS):
        await renderer.render(replace(DOCUMENT, account=f"Account {number}"))
    assert memory_mib(renderer.child_pid) - before < GROWTH_MIB_MAX


def memory_mib(pid: int | None) -> float:
    (line,) = (row for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


@pytest.mark.skipif(
    "QUOTEBOT_WRITE_PICTURES" not in os.environ, reason="writes docs/pictures when asked (QUOTEBOT_WRITE_PICTURES=1)"
)
@together
async def test_the_pictures_of_the_documentation_are_drawn_anew(renderer: PdfRenderer, checkout: Path) -> None:
    lines = (LineRequest("pro", 150), LineRequest("sso", 150), LineRequest("support", 1), LineRequest("onboarding", 1))
    quote = replace(quote_in(QuoteState.APPROVED), pricing=example_pricing(lines=lines), account="Northwind Trading Ltd")
    address = ("100 Harbour Street", "Dublin 2, Ireland")
    seller = Seller("Acme Software Ltd", address, logo=logo(192), footer="Registered in Ireland 123456 · VAT IE1234567T")
    for template in ("detailed", "summary"):
        document = quote_document(quote, replace(seller, template=template), "Regional sales")
        content = (await renderer.render(document)).content
        target = str(checkout / "docs" / "pictures" / f"document-{template}")
        drawing = await asyncio.create_subprocess_exec(
            *("pdftoppm", "-r", "80", "-png", "-f", "1", "-l", "1", "-singlefile", "-", target), stdin=asyncio.subprocess.PIPE
        )
        await drawing.communicate(content)
        assert drawing.returncode == 0
