"""Tests that hostile text stays text in every output: Slack, documents, spreadsheets, addresses, file names."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from adapters.artefacts import Artefacts
from adapters.failures import AdapterError
from adapters.pdf.worker import Renderer
from adapters.salesforce.graph import checked_key
from quotebot.domain.catalogue.sheets import cell_of_text, read_sheet, text_of, write_sheet
from quotebot.views import messages
from quotebot.views.card import status_card
from quotebot.views.digest_card import digest_card
from quotebot.views.work_queue import Home
from tests.adapters.test_pdf import DOCUMENT
from tests.quotebot.views.quote_examples import example_approval, example_quote

if TYPE_CHECKING:
    from quotebot.domain.catalogue.sheets import SheetProblem

HOSTILE: Final[dict[str, list[str]]] = json.loads((Path(__file__).parent / "data" / "hostile.json").read_text("utf-8"))
COLUMNS: Final = (("sku", "name"), ())
SPLIT: Final = ("Acme;=A1+9;x", "a\t=1", "a\n@x", "a;'=1", "a;''=1", "'=1;=2", "\t=1;\t-1;'", "'\t='", "7;8 '9'")
RUN_BY_SPREADSHEETS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class Shape(HTMLParser):
    """Parser of a page: its tags and attributes, and its text separately."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(f"{tag} {[(name, value) for name, value in attrs if name != 'content']}")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def template() -> Any:
    """Return the template as in the renderer's process."""
    return Renderer()._environment.get_template("detailed.html")


def page_saying(template: Any, text: str) -> Shape:
    said = replace(
        DOCUMENT,
        account=text,
        bill_to=(text,),
        terms=(text,),
        clauses=((text, text),),
        note=text,
        seller_name=text,
        prepared_by=text,
    )
    return Shape(template.render(document=asdict(said), texts=said.texts, width=174, logo_width=0))


def test_there_are_twenty_of_each() -> None:
    assert {name: len(set(texts)) for name, texts in HOSTILE.items()} == dict.fromkeys(HOSTILE, 20)


@pytest.mark.parametrize("text", HOSTILE["mrkdwn"], ids=ascii)
def test_text_becomes_no_mention_no_link_and_no_line_of_the_bots_own(text: str) -> None:
    escaped = messages.escape(messages.one_line(text))
    assert not {"<", ">", "\n", "\u202e", "\u2028", "\x00"} & set(escaped)
    card = status_card(example_quote(account=text, approval=example_approval(reasons=(text,))), ())
    told = json.dumps(card.blocks, ensure_ascii=False) + card.text
    assert not any(
        sign in told for sign in ("<!", "<#", "<http", "<mailto", "<javascript", "<@U0CFO", "<@U0VP", "\u202e", "\\n✅ Approved by")
    )


@pytest.mark.parametrize("text", HOSTILE["mrkdwn"], ids=ascii)
def test_name_in_a_profile_becomes_no_mention_and_no_link_in_a_digest(text: str) -> None:
    card = digest_card(Home(name=text))
    assert "<" not in card.text + json.dumps(card.blocks)


@pytest.mark.parametrize("text", HOSTILE["html"] + HOSTILE["mrkdwn"], ids=ascii)
def test_text_changes_nothing_of_a_documents_structure(template: Any, text: str) -> None:
    harmless = page_saying(template, "Acme")
    page = page_saying(template, text)
    assert page.tags == harmless.tags
    assert "49" not in page.text or "49" in harmless.text  # nothing was evaluated


@pytest.mark.parametrize("text", HOSTILE["csv"], ids=ascii)
def test_no_cell_of_a_sheet_is_run_and_all_are_read_back_as_they_were(text: str) -> None:
    problems: list[SheetProblem] = []
    for cell in (text, cell_of_text(text)):
        written = write_sheet(("sku", "name"), [{"sku": "pro", "name": cell}])
        ((_, _), (_, found)) = csv.reader(io.StringIO(written, newline=""))
        assert not found.startswith(RUN_BY_SPREADSHEETS)
    (row,) = read_sheet("a.csv", written.encode(), ("sku", "name"), (), problems)
    assert (text_of(row.cells["name"]), problems) == (text, [])


@pytest.mark.parametrize("text", SPLIT, ids=ascii)
def test_no_part_of_a_cell_is_run_by_a_spreadsheet_that_splits_elsewhere(text: str) -> None:
    written = write_sheet(("sku", "name"), [{"sku": "pro", "name": text}])
    assert not [part for part in re.split(r"[;\t\r\n]", written) if part.startswith(RUN_BY_SPREADSHEETS)]
    (row,) = read_sheet("a.csv", write_sheet(("sku", "name"), [{"sku": "pro", "name": cell_of_text(text)}]).encode(), *COLUMNS, [])
    assert text_of(row.cells["name"]) == text
    assert "'7" not in written


def test_every_letter_that_typed_text_keeps_can_stand_in_a_document() -> None:
    kept = messages.one_line("".join(map(chr, range(0x1_0000))))
    assert ET.fromstring(f"<p>{escape(kept)}</p>").text == kept  # noqa: S314 -- our own page


@pytest.mark.parametrize("text", HOSTILE["key"], ids=ascii)
def test_what_could_leave_its_place_in_an_address_or_a_query_is_no_key_of_a_record(text: str) -> None:
    with pytest.raises(AdapterError, match="Nothing was sent"):
        checked_key(text)


@pytest.mark.parametrize("text", HOSTILE["path"], ids=ascii)
def test_no_name_leads_out_of_the_folder_of_documents(tmp_path: Path, text: str) -> None:
    (tmp_path / "ledger.db").write_text("not for you")
    with pytest.raises(AdapterError, match="64 lower-case"):
        Artefacts(tmp_path / "artefacts").get(text)
