"""Tests of pending documents: rendered once, stored with their rows, uploaded; and the outcome of each failure.

The results of the renderer's child and of Slack are scripted; everything else is the bot's own code. tests/adapters/test_pdf.py and
test_slack_failures.py show that the real ones fail in these ways.
"""

from __future__ import annotations

import errno
import hashlib
import json
import sqlite3
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest

from adapters.artefacts import Artefacts, Files
from adapters.failures import AdapterError, Failure
from adapters.pdf.renderer import PdfRenderer
from adapters.pdf.worker import INSTALL_NATIVE_LIBRARIES, missing_glyphs
from adapters.slack.api import ChannelFacts, PostedMessage, SharedFile, UploadTicket
from adapters.slack.errors import ADDRESS_STATUSES, refusal
from ledger.records import Delivered
from quotebot import effects
from quotebot.dispatch.dispatcher import Dispatcher
from quotebot.dispatch.documents import Documents
from quotebot.dispatch.registry import HANDLERS
from quotebot.dispatch.services import Adapters, EffectHandlers
from quotebot.domain.quotes.quote import QuoteState
from quotebot.jobs.maintenance import ArtefactSweep
from quotebot.store import quotes
from quotebot.views.document import file_name, file_title
from quotebot.views.operator_messages import failure_words
from tests.quotebot.dispatch.test_follow_ups import SELLER, approved
from tests.quotebot.parts import MATRIX, RULES
from tests.quotebot.views.quote_examples import quote_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from quotebot.domain.quotes.quote import Quote
    from tests.quotebot.parts import Bench

__all__ = ["approved"]  # a fixture

Answer = dict[str, Any] | BaseException | None


class ScriptedChild(PdfRenderer):
    """The renderer, with a scripted child; without a script it returns the document's own words."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: deque[Answer] = deque()
        self.renders = 0
        self.ink = b""  # another build renders other bytes

    async def _exchange(self, request: bytes) -> tuple[dict[str, Any], bytes]:
        self.renders += 1
        answer = self.answers.popleft() if self.answers else None
        if isinstance(answer, BaseException):
            raise answer
        return (answer, b"") if answer else ({"pages": 1}, b"%PDF-1.7 " + self.ink + request)


class ScriptedSlack:
    """A Slack with the three upload calls; each fails by the script: (call, error)."""

    def __init__(self) -> None:
        self.failures: deque[tuple[str, AdapterError]] = deque()
        self.calls: list[str] = []
        self.uploaded: list[bytes] = []
        self.titles: list[str] = []
        self.shared = False

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if self.failures and self.failures[0][0] == name:
            raise self.failures.popleft()[1]

    async def upload_url(self, **_: object) -> UploadTicket:
        self._called("url")
        return UploadTicket("F1", "https://files.slack.com/upload/1")

    async def upload_bytes(self, _: str, content: bytes) -> None:
        self._called("bytes")
        self.uploaded.append(content)

    async def complete_upload(self, *, file_id: str, title: str, **_: object) -> SharedFile:
        self._called("complete")
        self.titles.append(title)
        self.shared = True
        return SharedFile(file_id, "https://slack/F1")

    async def find_file(self, *, file_id: str, **_: object) -> SharedFile | None:
        self._called("find")
        return SharedFile(file_id, "https://slack/F1") if self.shared else None

    async def update(self, **_: object) -> None:
        """Draw a card; not tested here."""

    async def channel(self, **_: object) -> ChannelFacts:
        """Return a channel's facts; not tested here."""
        return ChannelFacts("public", ext_shared=False)

    async def post(self, **_: object) -> PostedMessage:
        return PostedMessage("C0SALES", "17.5")


class FullDisk(Files):
    """File steps that refuse to write while the disk is full."""

    full = False

    def write(self, descriptor: int, content: bytes) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(descriptor, content)


@dataclass(frozen=True, slots=True)
class Desk:
    """A ledger with an approved quote, its performer, and scripted external services."""

    bench: Bench
    quote_id: str
    folder: Path
    disk: FullDisk
    child: ScriptedChild
    slack: ScriptedSlack
    performer: EffectHandlers
    dispatcher: Dispatcher

    @property
    def store(self) -> Artefacts:
        return Artefacts(self.folder, self.disk)

    def stored(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*"))

    def effect(self, effect_class: str) -> dict[str, Any]:
        return self.bench.row("SELECT * FROM effects WHERE class = ?", effect_class)

    def given_up(self) -> list[str]:
        """Return the thread's messages about effects that failed for good."""
        rows = self.bench.rows("SELECT payload FROM effects WHERE class = 'slack.post' AND payload LIKE '%notice%' ORDER BY id")
        texts = [json.loads(row["payload"])["text"] for row in rows]
        return [text for text in texts if " failed: " in text]

    async def quote(self) -> Quote:
        effect: Any = About(self.quote_id, {"quote_id": self.quote_id, "version": 1})
        return await self.performer.services.quote(effect)

    @contextmanager
    def only(self, effect_class: str) -> Iterator[None]:
        """Hold all other classes, so that a step executes one class only."""
        sql = "UPDATE effects SET next_attempt_at = next_attempt_at + ? WHERE class <> ? AND state = 'pending'"
        far = 10**9
        self.bench.rows(sql, far, effect_class)
        yield
        self.bench.rows(sql, -far, effect_class)

    async def tried(self, effect_class: str) -> float | None:
        """Run one attempt of a class; return the seconds until the next one, None if there is none."""
        due = self.effect(effect_class)["next_attempt_at"]
        self.bench.clock.advance(max(0, due - self.bench.clock.now_ms()))
        with self.only(effect_class):
            await self.dispatcher.step()
            await self.dispatcher.drain(5.0)
        row = self.effect(effect_class)
        return None if row["next_attempt_at"] is None else (row["next_attempt_at"] - self.bench.clock.now_ms()) / 1000


@dataclass(frozen=True, slots=True)
class About:
    """The part of an effect that names its quote."""

    aggregate_id: str
    payload: dict[str, Any]


@pytest.fixture
def desk(bench: Bench, approved: str, tmp_path: Path) -> Desk:
    disk, child, slack = FullDisk(), ScriptedChild(), ScriptedSlack()
    folder = tmp_path / "artefacts"
    adapters = Adapters(slack=slack, pdf=child, artefacts=Artefacts(folder, disk), salesforce=None)  # type: ignore[arg-type] # three of its calls
    performer = EffectHandlers(bench.ledger, adapters, RULES, SELLER, handlers=HANDLERS, settle_delay_seconds=30)
    dispatcher = Dispatcher(bench.ledger, performer, lambda _, high: high, MATRIX, settle_delay_seconds=30)
    return Desk(bench, approved, folder, disk, child, slack, performer, dispatcher)


# --------------------------------------------------------------------------------------------------- a document and its row


async def test_a_render_leaves_one_file_and_one_row_with_both_checksums(desk: Desk) -> None:
    assert await desk.tried(effects.RENDER) is None
    row = desk.bench.row("SELECT * FROM artefacts")
    content = (desk.folder / f"{row['sha256']}.pdf").read_bytes()
    assert hashlib.sha256(content).hexdigest() == row["sha256"]
    assert (row["quote_id"], row["version"], row["pages"], len(row["render_key"])) == (desk.quote_id, 1, 1, 64)
    assert desk.effect(effects.RENDER)["external_ref"] == row["sha256"]


async def test_the_same_document_asked_for_again_is_not_rendered_again(desk: Desk) -> None:
    await desk.tried(effects.RENDER)
    again = await Documents(desk.performer.services).render(await desk.quote())
    assert (desk.child.renders, again.already_there, again.external_ref) == (1, True, desk.effect(effects.RENDER)["external_ref"])


async def test_approved_version_keeps_the_documents_set_of_its_approval(desk: Desk) -> None:
    pinned = desk.bench.row("SELECT p.version, p.sha256, s.content FROM document_pins AS p JOIN document_sets AS s USING (sha256)")
    assert (pinned["version"], hashlib.sha256(pinned["content"].encode()).hexdigest()) == (1, pinned["sha256"])
    later = replace(SELLER, name="Renamed Ltd", template="own", templates={"own": "<p/>"}, style="p { color: red }")
    services = replace(desk.performer.services, seller=later)
    made = await Documents(services).render(await desk.quote())
    content = (desk.folder / f"{made.external_ref}.pdf").read_bytes()
    assert (SELLER.name.encode() in content, b"Renamed" in content, b"color: red" in content) == (True, False, False)
    await desk.tried(effects.RENDER)
    assert desk.effect(effects.RENDER)["external_ref"] == made.external_ref


async def test_a_document_says_how_its_preparer_could_be_reached_at_the_approval(desk: Desk) -> None:
    place = (desk.quote_id, 1)
    await desk.bench.ledger.database.write("test", lambda tx: quotes.pin_contact(tx, *place, "rep@acme.example", "+1 555 0100"))
    await desk.bench.ledger.database.write("test", lambda tx: quotes.pin_contact(tx, *place, "new@acme.example", ""))
    made = await Documents(desk.performer.services).render(await desk.quote())
    content = (desk.folder / f"{made.external_ref}.pdf").read_bytes()
    assert (b"rep@acme.example" in content, b"+1 555 0100" in content, b"new@" in content) == (True, True, False)
    for change in ("UPDATE document_contacts SET email = ''", "DELETE FROM document_contacts"):
        with pytest.raises(sqlite3.IntegrityError, match="keeps its contact"):
            desk.bench.rows(change)


async def test_version_without_a_set_is_made_with_the_present_one(desk: Desk) -> None:
    unpinned = replace(await desk.quote(), version=2)
    made = await Documents(replace(desk.performer.services, seller=replace(SELLER, name="Renamed Ltd"))).render(unpinned)
    assert b"Renamed Ltd" in (desk.folder / f"{made.external_ref}.pdf").read_bytes()


async def test_template_that_is_not_there_is_a_dead_letter_that_names_those_that_are(desk: Desk) -> None:
    bad = replace(desk.performer.services, seller=replace(SELLER, template="gone"))
    with pytest.raises(AdapterError, match="no template 'gone'; there are detailed and summary") as refused:
        await Documents(bad).render(replace(await desk.quote(), version=2))
    assert (refused.value.failure, refused.value.code) == (Failure.RENDER, "template_error")


@pytest.mark.parametrize("table", ["document_sets", "document_pins"])
@pytest.mark.parametrize("change", ["UPDATE {} SET sha256 = 'x'", "DELETE FROM {}"])
async def test_no_document_set_is_changed_or_removed(desk: Desk, table: str, change: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=r"stays as it is|keeps its document set|is kept"):
        desk.bench.rows(change.format(table))


@pytest.mark.parametrize("damage", ["removed", "cut short"])
async def test_a_lost_or_damaged_file_is_rendered_again_to_the_same_bytes(desk: Desk, damage: str) -> None:
    await desk.tried(effects.RENDER)
    (path,) = desk.folder.iterdir()
    before = path.read_bytes()
    path.unlink() if damage == "removed" else path.write_bytes(before[:-1])
    assert await desk.tried(effects.FILE) is None
    assert (desk.child.renders, desk.slack.uploaded, path.read_bytes()) == (2, [before], before)
    assert len(desk.bench.rows("SELECT * FROM artefacts")) == 1


async def test_lost_file_rendered_to_other_bytes_is_uploaded_with_its_own_row(desk: Desk) -> None:
    await desk.tried(effects.RENDER)
    (path,) = desk.folder.iterdir()
    path.unlink()
    desk.child.ink = b"of another build "
    desk.slack.failures.append(("complete", transient("files.completeUploadExternal")))
    await desk.tried(effects.FILE)
    assert await desk.tried(effects.FILE) is None
    sha256 = hashlib.sha256(desk.slack.uploaded[-1]).hexdigest()
    rows = desk.bench.rows("SELECT * FROM artefacts")
    assert desk.child.renders == 2  # the second attempt uses the file of the first
    assert {path.stem, sha256} == {row["sha256"] for row in rows}
    assert len({row["render_key"] for row in rows}) == 1


@pytest.mark.parametrize("change", ["UPDATE artefacts SET sha256 = render_key", "DELETE FROM artefacts"])
async def test_no_row_of_a_document_is_changed_or_removed(desk: Desk, change: str) -> None:
    await desk.tried(effects.RENDER)
    with pytest.raises(sqlite3.IntegrityError, match="rendered document"):
        desk.bench.rows(change)


def test_a_file_is_called_by_its_version_within_slacks_length() -> None:
    quote = quote_in(QuoteState.APPROVED)
    assert file_title(quote) == "Q-2026-0042 v1 - Acme"
    assert len(file_title(replace(quote, account="A" * 300))) == 200


@pytest.mark.parametrize(
    ("account", "name"),
    [
        ("Acme", "Quote Q-2026-0042 v1 - Acme.pdf"),
        ("Müller & Söhne GmbH", "Quote Q-2026-0042 v1 - Müller & Söhne GmbH.pdf"),
        ("../../etc/passwd", "Quote Q-2026-0042 v1 - etc passwd.pdf"),
        ('a"<b>|c?*:\\d\n', "Quote Q-2026-0042 v1 - a b c d.pdf"),
        ("...", "Quote Q-2026-0042 v1.pdf"),
        ("株" * 300, f"Quote Q-2026-0042 v1 - {'株' * 60}.pdf"),
        ("𠮷" * 300, f"Quote Q-2026-0042 v1 - {'𠮷' * 55}.pdf"),  # four bytes each
    ],
)
def test_file_is_named_after_its_quote_and_customer(account: str, name: str) -> None:
    found = file_name(replace(quote_in(QuoteState.APPROVED), account=account))
    assert found == name
    assert len(found.encode()) <= 255


# ------------------------------------------------------------------------------------------------------------- the sweep


def sweep_of(desk: Desk) -> ArtefactSweep:
    return ArtefactSweep(desk.bench.ledger.database, desk.store, Documents(desk.performer.services).restore)


async def test_orphaned_file_is_removed_by_the_second_sweep(desk: Desk) -> None:
    await desk.tried(effects.RENDER)
    kept = desk.stored()
    desk.store.put(b"%PDF of nobody")
    (desk.folder / "notes.txt").write_text("somebody's")
    sweep = sweep_of(desk)
    assert await sweep.sweep() == (0, 0, 0)
    assert await sweep.sweep() == (1, 0, 0)
    assert desk.stored() == sorted([*kept, "notes.txt"])


async def test_nothing_is_removed_while_a_document_is_rendered_or_uploaded(desk: Desk) -> None:
    desk.store.put(b"%PDF whose row is not there yet")
    sweep = sweep_of(desk)
    await sweep.sweep()
    (claimed,) = await desk.bench.ledger.claim_effects({effects.RENDER: 1})
    assert await sweep.sweep() == (0, 0, 0)
    await desk.bench.ledger.settle(claimed, Delivered("f" * 64, {"sha256": "f" * 64}), desk.performer.follow_ups)
    assert await sweep.sweep() == (1, 0, 0)


async def test_a_row_without_its_file_gets_it_back(desk: Desk) -> None:
    await desk.tried(effects.RENDER)
    (path,) = desk.folder.iterdir()
    before = path.read_bytes()
    path.unlink()
    assert await sweep_of(desk).sweep() == (0, 1, 0)
    assert path.read_bytes() == before


async def test_what_cannot_be_made_to_the_same_bytes_is_said_and_not_tried_over_and_over(desk: Desk) -> None:
    await desk.tried(effects.RENDER)
    (path,) = desk.folder.iterdir()
    path.unlink()
    desk.child.ink = b"of another build "
    sweep = sweep_of(desk)
    assert await sweep.sweep() == (0, 0, 1)
    assert await sweep.sweep() == (0, 0, 1)
    assert (desk.child.renders, desk.stored()) == (2, [])


async def test_a_renderer_that_fails_loses_no_document(desk: Desk) -> None:
    await desk.tried(effects.RENDER)
    next(desk.folder.iterdir()).unlink()
    desk.child.answers.append(EOFError())
    sweep = sweep_of(desk)
    assert await sweep.sweep() == (0, 0, 0)
    assert await sweep.sweep() == (0, 1, 0)


# --------------------------------------------------------------------------------------------- the catalogue of failures


def template_error() -> Answer:
    return {"error": "template_error", "message": "The quote template failed: no_such_thing.", "alive": True}


def render_error() -> Answer:
    return {"error": "render_error", "message": "WeasyPrint could not render the quote at x.py:1.", "alive": True}


def no_library() -> Answer:
    return {"error": "missing_native_library", "message": INSTALL_NATIVE_LIBRARIES, "alive": False}


def no_glyph() -> Answer:
    return {"error": "missing_glyphs", "message": missing_glyphs("\u682a"), "alive": True}


@pytest.mark.parametrize(
    ("trouble", "waits", "category", "told"),
    [
        # what happens to the renderer, how long each next try is away in seconds, the class, what the thread is told
        ([EOFError()], [1.0], None, ""),
        ([TimeoutError()], [1.0], None, ""),
        ([EOFError(), TimeoutError()], [1.0, 3.0], None, ""),
        ([EOFError(), EOFError(), EOFError()], [1.0, 3.0], "transient", "The PDF renderer's process ended"),
        ([TimeoutError(), TimeoutError(), TimeoutError()], [1.0, 3.0], "timeout", "took over 60 s and was stopped"),
        ([template_error()], [], "render", "The quote template failed"),
        ([render_error()], [1.0], None, ""),
        ([render_error(), render_error()], [1.0], "render", "WeasyPrint could not render the quote"),
        ([no_library(), no_library()], [1.0], "render", "apt-get install libpango-1.0-0"),
        ([no_glyph(), no_glyph()], [1.0], "render", "No font on this machine can print U+682A (cjk)"),
        ([EOFError(), render_error(), render_error()], [1.0, 3.0], "render", "WeasyPrint could not render the quote"),
    ],
    ids=lambda value: (
        "+".join(type(each).__name__ if isinstance(each, BaseException) else each["error"] for each in value)
        if isinstance(value, list) and value and not isinstance(value[0], float)
        else None
    ),
)
async def test_a_render_that_fails(desk: Desk, trouble: list[Answer], waits: list[float], category: str | None, told: str) -> None:
    desk.child.answers.extend(trouble)
    quote = desk.bench.row("SELECT * FROM quotes")
    seen = []
    while (wait := await desk.tried(effects.RENDER)) is not None:
        seen.append(wait)
    assert seen == waits
    row = desk.effect(effects.RENDER)
    errors = desk.bench.rows("SELECT * FROM audit_events WHERE event_type = 'system.error'")
    letters = desk.bench.rows("SELECT * FROM dead_letters")
    if category is None:
        assert (row["state"], errors, letters, desk.given_up()) == ("delivered", [], [], [])
        return
    assert (row["state"], row["attempts"], row["category"]) == ("failed", len(waits) + 1, category)
    assert [(event["failure_category"], event["recovery_action"]) for event in errors] == [(category, "replay")]
    assert [(letter["class"], letter["category"], letter["status"]) for letter in letters] == [("pdf.render", category, "pending")]
    (notice,) = desk.given_up()
    assert told in row["last_error"]
    assert f" failed: {failure_words(category)}. The quote is still approved." in notice
    assert row["correlation_id"] in notice
    assert (desk.stored(), desk.bench.rows("SELECT * FROM artefacts")) == ([], [])
    assert desk.bench.rows("SELECT * FROM effects WHERE class = 'slack.file'") == []
    assert desk.bench.row("SELECT * FROM quotes") == quote
    assert "<html" not in json.dumps([*errors, *letters, notice, row["last_error"]], default=str).lower()


async def test_a_full_disk_is_waited_for_and_then_the_file_is_there(desk: Desk) -> None:
    desk.disk.full = True
    assert await desk.tried(effects.RENDER) == 1.0
    assert desk.effect(effects.RENDER)["last_error"].startswith("The disk refused to store a rendered file (ENOSPC)")
    desk.disk.full = False
    assert await desk.tried(effects.RENDER) is None
    assert len(desk.stored()) == 1


def transient(what: str) -> AdapterError:
    return AdapterError(Failure.TRANSIENT, "network", f"No connection for {what}.")


def lost(what: str) -> AdapterError:
    return AdapterError(Failure.TIMEOUT, "timeout", f"No answer to {what}.", possibly_applied=True)


def answered(what: str, status: int, error: str = "") -> AdapterError:
    body = {"ok": False, "error": error} if error else None
    return refusal(what, status, {}, body, ADDRESS_STATUSES if what == "upload" else {})


@pytest.mark.parametrize(
    ("failures", "waits", "category", "calls"),
    [
        # which call fails how, how long each next try is away, the class of the dead letter, every call that was made
        ([("url", transient("url"))], [0.25], None, "url url bytes complete"),
        ([("url", lost("url"))], [0.25], None, "url url bytes complete"),
        ([("bytes", transient("bytes"))], [0.25], None, "url bytes url bytes complete"),
        ([("bytes", lost("bytes"))], [0.25], None, "url bytes url bytes complete"),
        ([("bytes", answered("upload", HTTPStatus.BAD_GATEWAY))] * 2, [0.25, 0.5], None, "url bytes url bytes url bytes complete"),
        ([("complete", transient("complete"))], [0.25], None, "url bytes complete complete"),
        ([("complete", lost("complete"))], [0.25, 29.75, 0.0], None, "url bytes complete find find url bytes complete"),
        ([("url", answered("files.getUploadURLExternal", 200, "invalid_arguments"))], [], "validation", "url"),
        ([("complete", answered("files.completeUploadExternal", 200, "file_not_found"))], [0.25, 29.75, 0.0], None, None),
        ([("bytes", answered("upload", HTTPStatus.BAD_GATEWAY))] * 6, [0.25, 0.5, 1.0, 2.0, 4.0], "transient", None),
    ],
)
async def test_an_upload_that_fails(
    desk: Desk, failures: list[tuple[str, AdapterError]], waits: list[float], category: str | None, calls: str | None
) -> None:
    await desk.tried(effects.RENDER)
    desk.slack.failures.extend(failures)
    seen = []
    while (wait := await desk.tried(effects.FILE)) is not None:
        seen.append(wait)
        assert len(seen) < 9
    assert seen == waits
    assert calls is None or desk.slack.calls == calls.split()
    assert desk.child.renders == 1  # whatever the upload goes through
    assert len(set(desk.slack.uploaded)) <= 1
    letters = desk.bench.rows("SELECT category FROM dead_letters")
    assert [letter["category"] for letter in letters] == ([] if category is None else [category])
    if category is not None:
        (notice,) = desk.given_up()
        assert "The PDF for Q-2026-0001 failed: " in notice
