"""Tests of the effect that shows quotes below links: for whom it asks, and which refusals end it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from adapters.failures import AdapterError, Failure
from adapters.slack.api import ChannelFacts
from ledger.records import Delivered, Drop, Retry
from quotebot.dispatch.slack_unfurl import READERS_MAX, UnfurlHandler
from quotebot.execution.membership import Audience, Channels, Known
from quotebot.store import quotes
from tests.quotebot.parts import RULES
from tests.quotebot.views.quote_examples import example_quote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BOT: Final = "U0BOT"
URL: Final = "https://acme.my.salesforce.com/0Q0000000000001"
QUOTE: Final = example_quote()
ELSEWHERE: Final = "C0ELSEWHERE"


class World:
    """Stand-in for Slack, the channels and the directory. `kinds` are those of people who are no members."""

    def __init__(self, members: tuple[str, ...], *, public: bool = False, quote_public: bool = True, **kinds: str | None) -> None:
        self.audience_of: Audience | None = Audience(public, frozenset({*members, BOT}))
        self.quote_public, self.kinds = quote_public, kinds
        self.near: frozenset[str] = frozenset()
        self.sent: list[dict[str, Any]] = []
        self.refusal: AdapterError | None = None
        self.outage: AdapterError | None = None

    async def audience(self, _channel: str) -> Audience | None:
        if self.outage is not None:
            raise self.outage
        return self.audience_of

    async def is_public(self, _channel: str) -> bool:
        return self.quote_public

    async def is_open_to(self, user: str, _channel: str) -> bool:
        return user in self.near

    async def bot_user(self) -> str:
        return BOT

    async def learn(self, _team_id: str, user: str) -> Known | None:
        kind = self.kinds.get(user, "member")
        return None if kind is None else Known(kind, 1)

    async def unfurl(self, **sent: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.sent.append(sent)

    async def read(self, work: Any) -> Any:
        return work(None)

    async def put_off(self, *_who: object) -> None:
        return None

    @asynccontextmanager
    async def place_in(self, _channel: str) -> AsyncIterator[None]:
        yield None

    def now_ms(self) -> int:
        return 1

    async def shown(self, channel: str = ELSEWHERE) -> Any:
        """Perform the effect for a link in a channel."""
        ledger = SimpleNamespace(database=self, clock=self)
        adapters, rules = SimpleNamespace(slack=self), RULES
        services: Any = SimpleNamespace(ledger=ledger, adapters=adapters, rules=rules, channels=self, directory=self, pacer=self)
        payload = {"channel": channel, "ts": "1.1", "team_id": QUOTE.team_id, "links": {URL: QUOTE.quote_id}}
        effect: Any = SimpleNamespace(payload=payload, id=1, correlation_id="c-1")
        return await UnfurlHandler(services).perform(effect)


@pytest.fixture(autouse=True)
def the_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotes, "load", lambda _tx, _quote_id: QUOTE)


async def test_preview_is_sent_where_all_readers_are_members() -> None:
    world = World(("U0A", "U0B"), public=True)
    assert await world.shown() == Delivered(None, {"quotes": [QUOTE.quote_id]})
    assert (world.sent[0]["ts"], list(world.sent[0]["previews"])) == ("1.1", [URL])


@pytest.mark.parametrize(
    "world",
    [
        World(("U0A", "U0GUEST"), U0GUEST="guest"),
        World(("U0A", "U0ROBOT"), U0ROBOT="bot"),
        World(("U0A", "U0OTHER"), U0OTHER="stranger"),
        World(("U0A",), public=True, quote_public=False),
        World(("U0A",), quote_public=False),
        World(tuple(f"U{number}" for number in range(READERS_MAX))),
    ],
)
async def test_nothing_is_sent_where_one_reader_may_not_see_the_quote(world: World) -> None:
    assert isinstance(await world.shown(), Drop)
    assert world.sent == []
    assert isinstance(await world.shown(QUOTE.channel), Delivered)  # its card is there
    world.audience_of = None
    assert isinstance(await world.shown(QUOTE.channel), Drop)


async def test_members_of_a_private_channel_and_role_holders_see_its_quotes() -> None:
    holder = next(iter(RULES.role_holders))
    world = World(("U0A", QUOTE.requester, holder), quote_public=False)
    assert isinstance(await world.shown(), Drop)
    world.near = frozenset({"U0A"})
    assert isinstance(await world.shown(), Delivered)
    world.audience_of = Audience(public=True, members=frozenset({"U0A", BOT}))  # everybody may join it
    assert isinstance(await world.shown(), Drop)


async def test_an_unknown_reader_is_asked_for_again() -> None:
    world = World(("U0A", "U0B"), U0B=None)
    found = await world.shown()
    assert isinstance(found, Retry)
    assert (found.trouble.category, found.trouble.maybe_sent, found.spent) == (Failure.TRANSIENT, False, False)
    assert not found.trouble.unavailable
    assert world.sent == []


@pytest.mark.parametrize(
    ("failure", "code", "ends"),
    [
        (Failure.NOT_FOUND, "cannot_find_message", True),
        (Failure.VALIDATION, "cannot_unfurl_url", True),
        (Failure.AUTH, "missing_scope", True),
        (Failure.AUTH, "no_permission", True),
        (Failure.TRANSIENT, "fatal_error", False),
        (Failure.VALIDATION, "block_kit", False),
    ],
)
async def test_refusal_of_a_preview_holds_up_nothing_else(failure: Failure, code: str, *, ends: bool) -> None:
    world = World(("U0A",))
    world.refusal = AdapterError(failure, code, "no")
    if ends:
        assert isinstance(await world.shown(), Drop)
    else:
        with pytest.raises(AdapterError, match="no"):
            await world.shown()


async def test_an_outage_before_the_call_leaves_nothing_uncertain() -> None:
    world = World(("U0A",))
    world.outage = AdapterError(Failure.TIMEOUT, "timeout", "no", possibly_applied=True)
    found = await world.shown()
    assert isinstance(found, Retry)
    assert (found.trouble.maybe_sent, found.trouble.unavailable) == (False, True)
    assert found.spent is False  # until the preview is too old: no outage makes it a dead letter
    world.outage = AdapterError(Failure.AUTH, "token_revoked", "no", possibly_applied=True)
    with pytest.raises(AdapterError) as raised:
        await world.shown()
    assert raised.value.possibly_applied is False


@pytest.mark.parametrize(
    ("facts", "members", "expected"),
    [
        (ChannelFacts("public", ext_shared=False), {"U0A"}, Audience(public=True, members=frozenset({"U0A"}))),
        (ChannelFacts("private", ext_shared=False), {"U0A"}, Audience(public=False, members=frozenset({"U0A"}))),
        (ChannelFacts("public", ext_shared=True), {"U0A"}, None),
        (ChannelFacts("private", ext_shared=False, org_shared=True), {"U0A"}, None),
        (ChannelFacts("direct", ext_shared=False), {"U0A"}, None),
        (ChannelFacts("public", ext_shared=False), AdapterError(Failure.AUTH, "missing_scope", "no"), None),
        (AdapterError(Failure.AUTH, "missing_scope", "no"), {"U0A"}, None),
        (AdapterError(Failure.NOT_FOUND, "channel_not_found", "no"), {"U0A"}, None),
    ],
)
async def test_audience_of_a_shared_or_unknown_channel_is_none(facts: Any, members: Any, expected: Audience | None) -> None:
    def answer(found: Any) -> Any:
        if isinstance(found, AdapterError):
            raise found
        return found

    async def channel(**_: str) -> Any:
        return answer(facts)

    async def members_of(**_: str) -> Any:
        return frozenset(answer(members))

    slack: Any = SimpleNamespace(channel=channel, members=members_of)
    clock: Any = SimpleNamespace(now_ms=lambda: 1)
    assert await Channels(clock, slack, ("C0LISTED",)).audience("C0LISTED") == expected
    assert await Channels(clock, slack).audience("D0A") is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ChannelFacts("public", ext_shared=False), True),
        (ChannelFacts("private", ext_shared=False), False),
        (AdapterError(Failure.NOT_FOUND, "channel_not_found", "no"), False),
        (AdapterError(Failure.AUTH, "access_denied", "no"), False),
    ],
)
async def test_a_quotes_channel_that_slack_does_not_show_is_not_public(answer: Any, *, expected: bool) -> None:
    async def channel(**_: str) -> Any:
        if isinstance(answer, AdapterError):
            raise answer
        return answer

    slack: Any = SimpleNamespace(channel=channel)
    clock: Any = SimpleNamespace(now_ms=lambda: 1)
    assert await Channels(clock, slack).is_public("C0PRIVATE") is expected
