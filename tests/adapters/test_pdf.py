"""Tests of the PDF adapter, with real child processes."""

from __future__ import annotations

import asyncio
import base64
import ctypes.util
import io
import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pypdf
import pytest
import pytest_asyncio
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

import adapters
from adapters.failures import AdapterError, Failure
from adapters.pdf.renderer import DocumentLine, PdfRenderer, QuoteDocument, RenderedPdf, render_key
from quotebot.views.document import named_texts
from quotebot.views.document_texts import ENGLISH

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.skipif(
    ctypes.util.find_library("pango-1.0") is None, reason="Pango is not installed (doctor names the command)"
)

LINES = (
    DocumentLine("1", "Pro", "pro", "Tier 100+ · billed monthly", "150", "12 months", "6.00", "", "10,800.00"),
    DocumentLine("2", "Single Sign-On", "sso", "billed monthly", "150", "12 months", "2.00", "", "3,600.00"),
    DocumentLine("3", "Premium Support", "support", "flat · billed monthly", "1", "12 months", "500.00", "", "6,000.00"),
)
DOCUMENT = QuoteDocument(
    title="Quote",
    quote_id="Q-2026-0042",
    version="3",
    account="Northwind",
    issued_on="3 March 2026",
    valid_until="2 April 2026",
    prepared_by="Regional sales",
    currency="USD",
    term="12 months",
    lines=LINES,
    unit_price_title="USD per unit/month",
    amount_title="Amount, USD",
    list_total="$20,400.00",
    discount_label="Discount (0%)",
    discount_total="",
    net_total="$20,400.00",
    terms=("Payment is due within 30 days.",),
    acceptance="By signing, both parties agree.",
    seller_name="Acme Software Ltd",
    seller_lines=("100 Harbour Street, Dublin 2",),
    accent="#1f4e79",
    created_at="2026-03-03T09:30:00Z",
    texts=named_texts(ENGLISH),
    tax_rows=(("Tax 19% (estimated)", "$3,876.00"), ("Total with tax", "$24,276.00")),
)
SIXTY = replace(
    DOCUMENT, lines=tuple(replace(LINES[0], position=str(n), name=f"Component {n}", sku=f"sku-{n:03}") for n in range(1, 61))
)
SECTIONS = replace(
    DOCUMENT,
    lines=(
        *(replace(line, section="Recurring charges") for line in LINES),
        replace(LINES[2], position="4", name="Onboarding", quantity="1", amount="5,000.00", section="One-time charges"),
    ),
    sections=(("Recurring charges", "20,400.00"), ("One-time charges", "5,000.00")),
)
LOGO = base64.b64decode(  # 2 x 1 pixels
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAIAAAB7QOjdAAAAD0lEQVR4nGOQ96s8UaEBAAebAk/VZEyvAAAAAElFTkSuQmCC"
)


together = pytest.mark.asyncio(loop_scope="module")  # tests that leave the renderer usable share one


@pytest_asyncio.fixture
async def renderer() -> AsyncIterator[PdfRenderer]:
    renderer = PdfRenderer()
    yield renderer
    await renderer.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[PdfRenderer]:
    renderer = PdfRenderer()
    yield renderer
    await renderer.close()


def pages_of(rendered: RenderedPdf) -> list[str]:
    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(rendered.content)).pages]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def environment_of(pid: int | None) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def until_dead(pid: int) -> None:
    async with asyncio.timeout(60):
        while alive(pid):  # noqa: ASYNC110 -- another program's process sets no event of ours
            await asyncio.sleep(0.01)


@together
async def test_rendered_quote_shows_its_parties_lines_amounts_and_dates(shared: PdfRenderer) -> None:
    rendered = await shared.render(DOCUMENT)

    (text,) = pages_of(rendered)
    for said in (
        "Acme Software Ltd",
        "100 Harbour Street, Dublin 2",
        "Q-2026-0042",
        "Version 3",
        "Northwind",
        "3 March 2026",
        "2 April 2026",
        "Regional sales",
        "Premium Support",
        "Tier 100+ · billed monthly",
        "Tax 19% (estimated)",
        "$24,276.00",
        "10,800.00",
        "$20,400.00",
        "before tax",
        "USD per unit",
        "Payment is due within 30 days.",
        "For Acme Software Ltd",
        "For Northwind",
        "Signature",
        "Page 1 of 1",
    ):
        assert said in text, said
    assert rendered.pages == 1


@together
async def test_without_a_discount_neither_its_column_nor_its_row_is_shown(shared: PdfRenderer) -> None:
    (plain,) = pages_of(await shared.render(DOCUMENT))
    discounted_lines = (replace(LINES[0], discount="10%"), *LINES[1:])
    (discounted,) = pages_of(
        await shared.render(
            replace(DOCUMENT, lines=discounted_lines, discount_label="Discount (10%)", discount_total="\u2212$1,080.00")
        )
    )

    assert "Discount" not in plain
    assert "List price" not in plain
    assert "Discount (10%)" in discounted
    assert "\u2212$1,080.00" in discounted
    assert "List price" in discounted


@together
async def test_sixty_lines_repeat_the_header_and_count_the_pages(shared: PdfRenderer) -> None:
    rendered = await shared.render(SIXTY)

    pages = pages_of(rendered)
    assert len(pages) == rendered.pages > 2
    for number, text in enumerate(pages, start=1):
        assert f"Page {number} of {len(pages)}" in text
        assert "Q-2026-0042" in text
        if "Component" in text:
            assert "USD per unit" in text
    positions = [int(found) for text in pages for found in re.findall(r"Component (\d+)", text)]
    assert positions == list(range(1, 61))
    for text in pages:  # no row is split: its name, sku and amount are on one page
        assert text.count("Component ") == text.count("billed monthly") == text.count("10,800.00")


@together
async def test_an_empty_quote_and_empty_sections_still_render(shared: PdfRenderer) -> None:
    rendered = await shared.render(replace(DOCUMENT, lines=(), terms=(), seller_lines=()))

    (text,) = pages_of(rendered)
    assert "No items." in text
    assert "TERMS" not in text.upper().replace("TO ITS TERMS", "")


@together
async def test_two_processes_render_the_same_bytes(shared: PdfRenderer) -> None:
    other = PdfRenderer()
    try:
        first, second, again = await shared.render(SIXTY), await other.render(SIXTY), await shared.render(SIXTY)
        assert shared.child_pid != other.child_pid
    finally:
        await other.close()

    assert first.content.startswith(b"%PDF-")
    assert first == second == again


@together
async def test_it_is_pdf_a_dated_by_the_quote_and_embeds_its_own_font(shared: PdfRenderer) -> None:
    rendered = await shared.render(DOCUMENT)

    reader = pypdf.PdfReader(io.BytesIO(rendered.content))
    metadata = reader.root_object["/Metadata"].get_object()
    assert isinstance(metadata, pypdf.generic.StreamObject)
    assert b"pdfaid:conformance" in metadata.get_data()
    assert b"pdfuaid:part" in metadata.get_data()
    assert reader.metadata is not None
    assert reader.metadata.creation_date_raw == "D:20260303093000Z"
    assert reader.metadata.title == "Quote Q-2026-0042 version 3"
    fonts = reader.pages[0]["/Resources"]["/Font"]  # type: ignore[index]
    names = {str(font.get_object()["/BaseFont"]).rpartition("+")[2] for font in fonts.values()}
    assert all("Inter" in name for name in names), names


@together
async def test_markup_in_a_value_is_text_and_no_url_in_it_is_fetched(shared: PdfRenderer, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("do-not-embed")
    visits = 0

    async def visited(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal visits
        visits += 1
        writer.close()

    server = await asyncio.start_server(visited, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        planted = (
            f'<img src="http://127.0.0.1:{port}/a.png"><link rel="attachment" href="{secret.as_uri()}">'
            f'<style>@import "http://127.0.0.1:{port}/b.css"; p {{ background: url({secret.as_uri()}) }}</style><b>bold</b>'
        )
        document = replace(
            DOCUMENT, account=planted, seller_name=planted, prepared_by="<script>alert(1)</script>", terms=(planted,)
        )
        rendered = await shared.render(document)

    reader = pypdf.PdfReader(io.BytesIO(rendered.content))
    text = "".join("".join(pages_of(rendered)).split())
    assert "<script>alert(1)</script>" in text
    assert "<b>bold</b>" in text
    assert visits == 0
    assert not reader.attachments
    assert b"do-not-embed" not in rendered.content


@together
async def test_long_names_break_and_figures_never_do(shared: PdfRenderer) -> None:
    account = "Donaudampfschifffahrtsgesellschaft" * 8
    lines = (replace(LINES[0], name="N" * 300, unit_price="99,999,999,999.99", amount="999,999,999,999,999.99"),)

    rendered = await shared.render(replace(DOCUMENT, account=account, lines=lines))

    assert "999,999,999,999,999.99" in "".join(pages_of(rendered))  # in one piece: a figure is never split over two lines


@together
@pytest.mark.parametrize("name", ["", " ", "  Zebra ", "Zebra  Pro", "Zebra\u00a0", "\u200bZebra \u200e", "Zebra " * 40])
async def test_padded_or_blank_product_name_keeps_its_own_line_above_the_details(shared: PdfRenderer, name: str) -> None:
    (text,) = pages_of(await shared.render(replace(DOCUMENT, lines=(replace(LINES[0], name=name),))))

    rows = text.splitlines()
    (about,) = (number for number, row in enumerate(rows) if "Tier 100+ · billed monthly" in row)
    assert ("Zebra" in rows[about - 1]) == ("Zebra" in name)
    assert text.count("Zebra") == name.count("Zebra")
    assert "\u2029" not in text


@together
@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("株式会社テスト", "cjk"),
        ("한국어", "hangul"),
        ("שלום עולם", "hebrew"),
        ("شركة", "arabic"),
        ("Ελλάδα Україна", "greek"),
        ("\U0010fffd", "unnamed"),  # belongs to no script: no font has it
    ],
)
async def test_a_name_in_any_script_is_printed_or_refused_by_script_but_never_as_boxes(
    shared: PdfRenderer, name: str, script: str
) -> None:
    try:
        rendered = await shared.render(replace(DOCUMENT, account=name))
    except AdapterError as error:
        refused = error
    else:
        assert script != "unnamed"
        assert set(name) - {" "} <= set("".join(pages_of(rendered)))
        return
    assert (refused.failure, refused.code) == (Failure.RENDER, "missing_glyphs")
    assert any(f"U+{ord(character):04X}" in str(refused) for character in name)
    assert script in str(refused)
    assert name not in str(refused)


@together
async def test_joiners_and_variation_selectors_need_no_glyph(shared: PdfRenderer) -> None:
    assert (await shared.render(replace(DOCUMENT, account="No\u00adrth\u200dwind\ufe0e \u200bLtd\u200e"))).pages == 1


async def test_a_font_that_the_machine_gets_makes_a_refused_name_printable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    character = "\U000f0f0f"
    fonts = FontBuilder(1000, isTTF=True)
    fonts.setupGlyphOrder([".notdef", "made"])
    fonts.setupCharacterMap({ord(character): "made"})
    pen = TTGlyphPen(None)
    for step, point in enumerate(((100, 0), (100, 700), (500, 700))):
        (pen.lineTo if step else pen.moveTo)(point)
    pen.closePath()
    fonts.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "made": pen.glyph()})
    fonts.setupHorizontalMetrics({".notdef": (600, 0), "made": (600, 100)})
    fonts.setupHorizontalHeader(ascent=800, descent=-200)
    fonts.setupNameTable({"familyName": "Made", "styleName": "Regular"})
    fonts.setupOS2()
    fonts.setupPost()
    fonts.save(tmp_path / "made.ttf")
    (tmp_path / "fonts.conf").write_text(f"<fontconfig><dir>{tmp_path}</dir></fontconfig>")
    monkeypatch.setenv("FONTCONFIG_PATH", str(tmp_path))
    renderer = PdfRenderer()
    try:
        (text,) = pages_of(await renderer.render(replace(DOCUMENT, account=f"{character} Ltd")))
    finally:
        await renderer.close()

    assert character in text


@together
async def test_control_characters_surrogates_and_direction_overrides_are_dropped(shared: PdfRenderer) -> None:
    account = "North\x00\x07wi\ud800nd\ufffe \u202e00.1\u202c\nLtd"

    rendered = await shared.render(replace(DOCUMENT, account=account))

    assert "Northwind 00.1 Ltd" in "".join(pages_of(rendered))
    assert render_key(replace(DOCUMENT, account=account)) == render_key(replace(DOCUMENT, account="Northwind 00.1 Ltd"))


@together
async def test_renders_asked_for_at_once_share_one_child(shared: PdfRenderer) -> None:
    rendered = await asyncio.gather(*(shared.render(replace(DOCUMENT, account=f"Account {n}")) for n in range(4)))

    assert len({one.sha256 for one in rendered}) == 4
    for number, one in enumerate(rendered):
        assert f"Account {number}" in "".join(pages_of(one))


@together
async def test_a_hung_child_is_a_transient_timeout_and_is_replaced(shared: PdfRenderer) -> None:
    patience = shared._timeout_seconds
    try:
        await shared.render(DOCUMENT)
        hung = shared.child_pid
        assert hung is not None
        shared._timeout_seconds = 0.3
        os.kill(hung, signal.SIGSTOP)
        with pytest.raises(AdapterError) as caught:
            await shared.render(DOCUMENT)
        shared._timeout_seconds = patience

        assert (caught.value.failure, caught.value.code, caught.value.possibly_applied) == (Failure.TIMEOUT, "timeout", False)
        assert not alive(hung)
        assert (await shared.render(DOCUMENT)).pages == 1
        assert shared.child_pid != hung
    finally:
        shared._timeout_seconds = patience


async def test_a_child_is_replaced_after_so_many_documents_and_the_bytes_stay_the_same() -> None:
    renderer = PdfRenderer(renders_per_child=2)
    children, contents = [], set()
    try:
        for _ in range(3):
            contents.add((await renderer.render(DOCUMENT)).content)
            children.append(renderer.child_pid)
    finally:
        await renderer.close()
    assert children[0] == children[1] != children[2]
    assert len(contents) == 1


@together
async def test_a_child_killed_while_rendering_is_transient_and_is_replaced(shared: PdfRenderer) -> None:
    await shared.render(DOCUMENT)
    doomed = shared.child_pid
    assert doomed is not None
    os.kill(doomed, signal.SIGSTOP)
    render = asyncio.create_task(shared.render(DOCUMENT))
    await asyncio.sleep(0)
    os.kill(doomed, signal.SIGKILL)

    with pytest.raises(AdapterError) as caught:
        await render

    assert (caught.value.failure, caught.value.code, caught.value.possibly_applied) == (Failure.TRANSIENT, "renderer_died", False)
    assert (await shared.render(DOCUMENT)).pages == 1


@together
async def test_child_killed_while_idle_is_replaced_within_two_renders(shared: PdfRenderer) -> None:
    await shared.render(DOCUMENT)
    doomed = shared.child_pid
    assert doomed is not None
    os.kill(doomed, signal.SIGKILL)

    with suppress(AdapterError):  # the adapter may not have noticed its death yet
        await shared.render(DOCUMENT)

    assert (await shared.render(DOCUMENT)).pages == 1
    assert shared.child_pid != doomed


@together
async def test_a_cancelled_render_leaves_no_answer_behind_for_the_next(shared: PdfRenderer) -> None:
    await shared.render(DOCUMENT)
    render = asyncio.create_task(shared.render(SIXTY))
    await asyncio.sleep(0)
    render.cancel()
    with pytest.raises(asyncio.CancelledError):
        await render

    assert (await shared.render(DOCUMENT)).pages == 1


@together
async def test_a_field_the_template_needs_and_lacks_is_a_template_error(shared: PdfRenderer) -> None:
    with pytest.raises(AdapterError) as caught:
        await shared._ask(b'{"document":{"page":"A4","texts":{},"template":"detailed"},"variant":"pdf/a-3a"}')

    assert (caught.value.failure, caught.value.code) == (Failure.RENDER, "template_error")
    first = shared.child_pid
    assert (await shared.render(DOCUMENT)).pages == 1
    assert shared.child_pid == first  # an error is data: the child continues


@together
async def test_what_weasyprint_refuses_is_a_render_error_that_names_no_text_of_the_quote(shared: PdfRenderer) -> None:
    request = (await _request_of(DOCUMENT)).replace(b'"variant":"pdf/a-3a"', b'"variant":"pdf/none-such"')
    with pytest.raises(AdapterError) as caught:
        await shared._ask(request)

    assert (caught.value.failure, caught.value.code) == (Failure.RENDER, "render_error")
    assert "Northwind" not in str(caught.value)


async def _request_of(document: QuoteDocument) -> bytes:
    class Recorder(PdfRenderer):
        request = b""

        async def _ask(self, request: bytes) -> RenderedPdf:
            self.request = request
            return RenderedPdf(b"", "", 0)

    recorder = Recorder()
    await recorder.render(document)
    return recorder.request


async def test_a_child_without_enough_memory_fails_the_render_and_nothing_else() -> None:
    renderer = PdfRenderer(memory_bytes=64 << 20)
    try:
        with pytest.raises(AdapterError) as caught:
            await renderer.render(DOCUMENT)
        assert caught.value.code in {"render_error", "renderer_died", "missing_native_library"}
    finally:
        await renderer.close()


async def test_a_document_over_8_mib_of_text_is_refused_and_no_child_reads_it(renderer: PdfRenderer) -> None:
    with pytest.raises(AdapterError, match="over 8 MiB of text") as caught:
        await renderer.render(replace(DOCUMENT, terms=("x" * (8 << 20),)))
    assert (caught.value.failure, caught.value.code) == (Failure.RENDER, "render_error")
    assert renderer.child_pid is None


async def test_a_closed_renderer_ends_its_child_and_refuses(renderer: PdfRenderer) -> None:
    await renderer.render(DOCUMENT)
    child = renderer.child_pid
    assert child is not None

    await renderer.close()

    assert not alive(child)
    with pytest.raises(AdapterError) as caught:
        await renderer.render(DOCUMENT)
    assert (caught.value.failure, caught.value.code) == (Failure.TRANSIENT, "closed")


async def test_closing_during_a_render_fails_it_as_transient(renderer: PdfRenderer) -> None:
    await renderer.render(DOCUMENT)
    render = asyncio.create_task(renderer.render(SIXTY))
    await asyncio.sleep(0)

    await renderer.close()

    with pytest.raises(AdapterError) as caught:
        await render
    assert caught.value.failure is Failure.TRANSIENT


async def test_the_child_sees_no_secret_of_its_parent(renderer: PdfRenderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-planted")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    await renderer.render(DOCUMENT)

    environment = environment_of(renderer.child_pid)

    names = {entry.partition(b"=")[0].decode() for entry in environment.split(b"\0") if entry}
    allowed = {"LC_ALL", "TZ", "PATH", "PYTHONPATH", "SOURCE_DATE_EPOCH", "XDG_CACHE_HOME"}
    assert names <= allowed | {"LD_LIBRARY_PATH", "FONTCONFIG_PATH", "FONTCONFIG_FILE"}
    assert b"xoxb-planted" not in environment


async def test_unwritable_cache_is_replaced_by_a_private_one_that_is_removed_on_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "absent"))
    renderer = PdfRenderer()
    await renderer.render(DOCUMENT)
    assert renderer._private_cache is not None
    private = renderer._private_cache.name
    assert os.path.isdir(private)  # noqa: ASYNC240, PTH112 -- one look at a local folder

    await renderer.close()

    assert not os.path.exists(private)  # noqa: ASYNC240, PTH110 -- one look at a local folder


async def test_the_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, sys\n"
        "from adapters.pdf.renderer import PdfRenderer\n"
        "async def main():\n"
        "    renderer = PdfRenderer()\n"
        "    try:\n"
        "        await renderer._ask(b'{}')\n"
        "    except Exception:\n"
        "        pass\n"
        "    print(renderer.child_pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    root = str(Path(adapters.__file__).parent.parent)
    parent = await asyncio.create_subprocess_exec(
        sys.executable, str(script), stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": root}
    )
    assert parent.stdout is not None
    child = int(await asyncio.wait_for(parent.stdout.readline(), 20))
    os.kill(child, signal.SIGSTOP)  # even one that reads nothing

    parent.kill()
    await parent.wait()

    await until_dead(child)


def test_a_render_key_is_stable_and_every_field_changes_it() -> None:
    key = render_key(DOCUMENT)

    assert re.fullmatch(r"[0-9a-f]{64}", key)
    assert key == render_key(replace(DOCUMENT))
    changed = {key}
    for field in fields(QuoteDocument):
        value = getattr(DOCUMENT, field.name)
        other: object = (*value, value[0] if value else ("x", "y")) if isinstance(value, tuple) else f"{value}x"
        if field.name == "texts":
            other = {**value, "total": "Sum"}
        if field.name == "page":
            other = "Letter"
        if field.name == "accent":
            other = "#ffffff"
        if field.name == "created_at":
            other = "2026-03-03T09:30:01Z"
        if field.name == "template":
            other = "summary"
        if field.name == "logo":
            other = LOGO
        if field.name == "sections":
            continue  # its lines change with it
        changed.add(render_key(replace(DOCUMENT, **{field.name: other})))  # type: ignore[arg-type] # each of its own type
    changed.add(render_key(SECTIONS))
    assert len(changed) == len(fields(QuoteDocument)) + 1


def test_a_document_refuses_what_could_reach_a_style_or_a_wrong_date() -> None:
    for wrong in ("red", "#12345", "#1f4e79; background: url(x)", "#1f4e79\n"):
        with pytest.raises(ValueError, match="accent"):
            replace(DOCUMENT, accent=wrong)
    with pytest.raises(ValueError, match="offset"):
        replace(DOCUMENT, created_at="2026-03-03T09:30:00")
    with pytest.raises(ValueError, match="isoformat"):
        replace(DOCUMENT, created_at="yesterday")
    with pytest.raises(ValueError, match="800"):
        replace(DOCUMENT, lines=LINES[:1] * 801)
