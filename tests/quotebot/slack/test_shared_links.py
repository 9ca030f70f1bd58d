"""Tests of links to records in Salesforce: the quote of a record is shown where everybody may see it, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from quotebot.cli.doctor.others import SCOPES
from quotebot.commands.payloads import LinkedQuote, PreviewLinks
from quotebot.domain.access import admit
from quotebot.execution import membership
from quotebot.execution.executor import failure_answer, untrusted
from quotebot.handlers.decision import turned_away
from quotebot.sandbox.slack.directory import BOT_USER_ID
from quotebot.sandbox.world import World
from quotebot.slack.shared_links import LINKS_READ_MAX, PREVIEWS_MAX, SharedLinks, hosts_of, record_of, records_in
from tests.quotebot.crm_parts import recorded
from tests.rig import FIRST_QUOTE, bot_in

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rig import Deal

RECORD = "0Q0000000000001"
CLASSIC = "https://acme.my.salesforce.com"
LIGHTNING = "https://acme.lightning.force.com"
HOSTS = hosts_of(CLASSIC)
PLACE = {"channel": "C0DEALS", "is_bot_user_member": True, "user": "U0REP", "message_ts": "1.1", "source": "conversations_history"}
MEMBERS = ["U0REP", "U0MANAGER", "U0VP"]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (f"{CLASSIC}/{RECORD}AAA", RECORD),
        (f"{CLASSIC}/{RECORD}", RECORD),
        (f"{LIGHTNING}/lightning/r/SBQQ__Quote__c/{RECORD}AAA/view?ws=%2Fa", RECORD),
        (f"{LIGHTNING}/lightning/r/{RECORD}AAA/view", RECORD),
        (f"https://ACME.lightning.force.com/lightning/r/Quote/{RECORD}AAA/view", RECORD),
        (f"{LIGHTNING}/lightning/o/Quote/list", None),
        (f"{LIGHTNING}/lightning/r/Quote/{RECORD}AAA/edit/more", None),
        (f"https://evil.example/{RECORD}AAA", None),
        (f"https://acme.my.salesforce.com.evil.example/{RECORD}AAA", None),
        (f"https://acme.my.salesforce.com@evil.example/{RECORD}AAA", None),
        (f"ftp://acme.my.salesforce.com/{RECORD}AAA", None),
        (f"{CLASSIC}/{RECORD}AAA?{'x' * 1000}", None),
        ("https://[", None),
        (None, None),
    ],
)
def test_record_is_read_from_links_to_the_org_alone(url: object, found: str | None) -> None:
    assert record_of(url, HOSTS) == found


def test_a_sandbox_org_has_two_hosts_and_other_addresses_one() -> None:
    sandbox = "acme--test.sandbox"
    assert hosts_of(f"https://{sandbox}.my.salesforce.com") == {f"{sandbox}.my.salesforce.com", f"{sandbox}.lightning.force.com"}
    assert hosts_of("https://127.0.0.1:8443") == {"127.0.0.1:8443"}
    assert hosts_of(None) == frozenset()


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "composer", "channel": "COMPOSER"},
        {"is_bot_user_member": False},
        {"channel": "D0REP"},
        {"user": None},
        {"message_ts": None},
        {"links": "x"},
        {"links": [{"url": 5}, "x", None]},
    ],
)
def test_event_without_a_sent_link_in_a_channel_with_the_bot_is_ignored(changed: dict[str, Any]) -> None:
    event = {**PLACE, "links": [{"domain": "acme.my.salesforce.com", "url": f"{CLASSIC}/{RECORD}AAA"}]}
    assert records_in(event, HOSTS) == {f"{CLASSIC}/{RECORD}AAA": RECORD}
    assert records_in({**event, **changed}, HOSTS) == {}


def test_links_beyond_the_limit_of_one_message_are_not_read() -> None:
    links = [{"url": f"{CLASSIC}/0Q{number:013d}"} for number in range(LINKS_READ_MAX + 5)]
    assert len(records_in({**PLACE, "links": links}, HOSTS)) == LINKS_READ_MAX


class Outlet:
    """Stand-in for the surface, its gate and its ledger: it records what would be recorded."""

    def __init__(self, sharer: Any, *, known: bool) -> None:
        self.recorded_commands: list[Any] = []
        self.asked: list[str] = []
        self.acked = 0
        self._sharer, self._known = sharer, known
        self.record_hosts = HOSTS
        self.gate = self.ledger = self.database = self.clock = self

    async def read(self, work: Any) -> Any:
        return work(self)

    def one(self, _name: str, **_values: Any) -> Any:
        return {"quote_id": FIRST_QUOTE} if self._known else None

    async def learned(self, user: str) -> Any:
        self.asked.append(user)
        return self._sharer

    def now_ms(self) -> int:
        return 1

    async def recorded(self, _context: Any, command: Any) -> str:
        self.recorded_commands.append(command)
        return "over the budget"

    async def ack(self) -> None:
        self.acked += 1


MEMBER = admit("U0REP", "T0QUOTE", "member", ())


@pytest.mark.parametrize(
    ("sharer", "known", "recorded_links", "asked"),
    [
        (MEMBER, True, PREVIEWS_MAX, ["U0REP"]),
        (MEMBER, False, 0, []),
        (admit("U0REP", "T0QUOTE", "guest", ()), True, 0, ["U0REP"]),
        (admit("U0REP", "T0QUOTE", "guest", ("U0REP",)), True, 0, ["U0REP"]),
        (admit("U0REP", "T0QUOTE", "unknown", ()), True, 0, ["U0REP"]),
    ],
)
async def test_only_members_links_to_quotes_are_recorded(
    sharer: Any, *, known: bool, recorded_links: int, asked: list[str]
) -> None:
    outlet: Any = Outlet(sharer, known=known)
    links = [{"url": f"{CLASSIC}/0Q{number:013d}"} for number in range(PREVIEWS_MAX + 2)]
    body = {"team_id": "T0QUOTE", "event_id": "Ev1", "event": {**PLACE, "type": "link_shared", "links": links}}
    await SharedLinks(outlet).on_shared(outlet.ack, body, {})
    assert [len(command.payload.links) for command in outlet.recorded_commands] == [recorded_links] * bool(recorded_links)
    assert (outlet.asked, outlet.acked) == (asked, 1)


def test_nobody_is_told_that_a_preview_was_refused_or_failed() -> None:
    asked: Any = SimpleNamespace(actor="U0GUEST", actor_kind="guest")
    wanted = PreviewLinks("C0DEALS", "1.1", (LinkedQuote(f"{CLASSIC}/{RECORD}", FIRST_QUOTE),))
    decision = turned_away(asked, admit("U0GUEST", "T0QUOTE", "guest", ("U0GUEST",)), wanted, wanted.aggregate_id)
    assert decision is not None
    assert (decision.kind, decision.effects, [event.event_type for event in decision.events]) == ("refused", (), ["access.refused"])
    operation: Any = SimpleNamespace(
        actor_type="user", action_kind=PreviewLinks.kind, cycle=1, source="slack_event", correlation_id="c"
    )
    operation.aggregate_id = wanted.aggregate_id
    no_tx: Any = None
    assert failure_answer(no_tx, operation, "it failed", 1) == ()
    assert untrusted(operation, 1).effects == ()


async def shared(deal: Deal, world: World, channel: str = "C0DEALS", *, user: str = "U0REP", record: str = f"{RECORD}AAA") -> str:
    """Write a message with a link to a record; return its previews as one text."""
    url = f"{world.salesforce.url}/{record}"
    written = await deal.post("message", user=user, channel=channel, text=f"see {url} please")
    await deal.settled()
    message = world.slack.messages.get(channel, written["ts"])
    assert message is not None
    return json.dumps(message.attachments, ensure_ascii=False) if message.attachments else ""


async def test_link_to_a_record_shows_its_quote_once(deal: Deal, world: World) -> None:
    await deal.slash("new for Bolt Ltd: 5 pro")
    await deal.settled()
    await deal.complete(deal.click("quote.submit", user="U0REP"))
    (record,) = await deal.rows("SELECT record_id, quote_id FROM crm_records")
    assert record["quote_id"] == FIRST_QUOTE
    shown = await shared(deal, world, record=record["record_id"])
    assert "Bolt Ltd" in shown
    assert "As of <!date^" in shown
    assert '"type": "actions"' not in shown
    sent = world.courier.last
    assert sent is not None
    await deal.post("redeliver", request_id=sent.request_id, kind="retry", times=2)
    await deal.settled()
    assert await deal.rows("SELECT state, outcome FROM operations WHERE action_kind = 'link.preview'") == [
        {"state": "completed", "outcome": "applied"}
    ]
    assert await shared(deal, world, record="0Q0999999999999AAA") == ""
    assert len(await deal.rows("SELECT 1 FROM operations WHERE action_kind = 'link.preview'")) == 1


async def test_preview_is_shown_only_where_everybody_may_see_the_quote(
    deal: Deal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "SHARING_FRESH_MS", 0)
    places = world.slack.directory.channels
    await deal.slash("new for Secret Corp: 5 pro")
    await deal.settled()
    await recorded(deal, f"{RECORD}AAA", FIRST_QUOTE)

    async def is_shown(channel: str, **changed: Any) -> bool:
        return "Secret Corp" in await shared(deal, world, channel, **changed)

    assert await is_shown("C0DEALS")  # has the card, and a guest reads that
    assert not await is_shown("C0GENERAL")  # a guest reads it
    places["C0GENERAL"] = replace(places["C0GENERAL"], members=(*MEMBERS, BOT_USER_ID))
    assert await is_shown("C0GENERAL")
    places["C0GENERAL"] = replace(places["C0GENERAL"], members=tuple(MEMBERS))
    assert not await is_shown("C0GENERAL")  # without the bot
    assert not await is_shown("C0PARTNER")  # another organization reads it
    assert not await is_shown("D0REP")
    assert not await is_shown("C0DEALS", user="U0GUEST")

    await deal.post("channel", channel="C0DEALS", private=True, members=["U0REP", "U0VP"])
    monkeypatch.setattr(membership, "MEMBERS_FRESH_MS", 0)
    places["C0GENERAL"] = replace(places["C0GENERAL"], members=(*MEMBERS, BOT_USER_ID))
    assert await is_shown("C0DEALS")
    assert not await is_shown("C0GENERAL")  # everybody may join it
    await deal.post("channel", channel="C0GENERAL", private=True, members=MEMBERS)
    assert await is_shown("C0GENERAL")  # the manager is an approver
    people = world.slack.directory.people
    people["U0NEW"] = replace(people["U0REP"], id="U0NEW", name="new")
    await deal.post("channel", channel="C0GENERAL", private=True, members=[*MEMBERS, "U0NEW"])
    assert not await is_shown("C0GENERAL")
    assert await deal.rows("SELECT 1 FROM effects WHERE state = 'failed'") == []


async def test_without_the_scope_nothing_is_shown_and_nothing_is_held(tmp_path: Path) -> None:
    scopes = SCOPES | {"channels:read", "groups:read", "links:read"}
    async with World(tmp_path / "world", scopes=scopes).serve() as world, bot_in(world, tmp_path / "bot") as deal:
        await deal.slash("new for Secret Corp: 5 pro")
        await deal.settled()
        await recorded(deal, f"{RECORD}AAA", FIRST_QUOTE)
        assert await shared(deal, world) == ""
        assert await deal.rows("SELECT state FROM effects WHERE class = 'slack.unfurl'") == [{"state": "superseded"}]
        assert await deal.rows("SELECT name FROM gates WHERE state = 'held'") == []
