"""Tests of every kind of person at every entry point, through Slack's socket, against the table of docs/access.md."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ledger.audit.keyring import load_keyring
from ledger.keys import digest
from quotebot.commands.queries import ListRequest, Section
from quotebot.sandbox.salesforce.schema import SCHEMA
from quotebot.sandbox.slack.directory import BOT_USER_ID, TEAM_ID, Person
from quotebot.sandbox.slack.payloads import Payloads
from quotebot.slack import message_text, verbs
from quotebot.store.homes import HomeChoice
from quotebot.views import (
    confirmations,
    crm_messages,
    dead_letter_card,
    forms,
    help_messages,
    home,
    list_card,
    messages,
    operator_messages,
    pending_buttons,
    report_messages,
)
from quotebot.views.blocks import ButtonValue, menu_text, read_any, value_text, written
from quotebot.views.card import (
    ACCEPT,
    APPROVE,
    APPROVE_WITH_REASON,
    CANCEL_BY_FORM,
    CANCEL_QUOTE,
    DISCOUNT,
    EXPLAIN,
    FINALIZE,
    LOSE,
    MORE,
    REFRESH,
    REJECT,
    REMIND,
    REQUEST_CHANGES,
    RESUBMIT,
    REVISE,
    SEND,
    SUBMIT,
)
from quotebot.views.seals import Seals
from tests.quotebot.crm_parts import recorded
from tests.rig import FIRST_QUOTE, bot_in, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from quotebot.sandbox.slack.messages import Message
    from quotebot.sandbox.world import World
    from tests.rig import Deal

PAGE: Final = Path(__file__).parents[2] / "docs" / "access.md"
CHANNEL: Final = "C0DEALS"
CUSTOMER, AMOUNT, NUMBER = "Secret Rival Corp", "131,760", FIRST_QUOTE
UNKNOWN: Final = re.sub(r"[0-9]{4}$", "9999", FIRST_QUOTE)
REFUSALS: Final = tuple(messages.turned_away(code) for code in ("not_a_member", "foreign_team", "not_known", "foreign_click"))
COLUMNS: Final = ("members", "listed guests", "everybody else")
ENTRIES: Final = {"command", "button", "form", "menu", "shortcut", "home", "mention", "direct_message"}  # of the audit
LINK: Final = "link to a quote's record in Salesforce: a preview that everybody in the channel may see"
MENUS: Final = "menus with names of Salesforce"
CONTACT: Final = "Kim Secret"
SETTINGS: Final[dict[str, Any]] = {
    "guest_reps": ("U0AGENCY",),
    "enterprise_id": "E0HOUSE",
    "crm_account_lookup": True,
    "crm_opportunity_lookup": True,
    "crm_sync_minutes": 60,
    "crm_mirror": ("accounts", "contacts", "opportunities"),
}

# the person -> the column of the page, and whether Slack names their workspace in events
PEOPLE: Final[dict[str, tuple[Person | str, str, bool]]] = {
    "a member": (Person("U0MEMBER", "member", "Member", "member"), "members", True),
    "the requester": ("U0REP", "members", True),
    "an approver of too low a role": ("U0MANAGER", "members", True),
    "an operator": ("U0OPERATOR", "members", True),
    "a member of another workspace of the organization": (
        Person("W0GRID", "grid", "Grid", "grid", team_id="T0SISTER", enterprise_id="E0HOUSE", teams=("T0SISTER",)),
        "members",
        True,
    ),
    "a listed guest": (Person("U0AGENCY", "agency", "Agency", "agency", is_guest=True), "listed guests", True),
    "a guest": ("U0GUEST", "everybody else", True),
    "an external person": ("U0PARTNER", "everybody else", True),
    "an external person without user_team": ("U0PARTNER", "everybody else", False),
    "an external member of an organization": (
        Person("W0OTHER", "other", "Other", "other", team_id="T0OTHER", enterprise_id="E0OTHER", teams=("T0OTHER",)),
        "everybody else",
        True,
    ),
    "somebody who left": (Person("U0GONE", "gone", "Gone", "gone", is_deactivated=True), "everybody else", True),
    "a bot": (Person("U0ROBOT", "robot", "Robot", "robot", is_bot=True), "everybody else", True),
}
SHOWN: Final = "*Decide* under a reminder, *Show* under an answer"
ROWS: Final = {
    "new": "`/quote new`, typed or as a form",
    "ops": "`/quote ops` (operators)",
    "report": "`/quote report` (deal desk)",
}
# the typed text, if it is not the verb and the quote number
TYPED: Final = {
    "help": "help",
    "new": "new for {customer}: 3 pro",
    "list": "list all",
    "ops": "ops",
    "report": "report discounts",
    "products": "products pro",
    "delegate": "delegate <@U0CFO> until 2099-01-01",
    "digest": "digest on",
    "revise": "revise {quote}: 900 pro",
    "add-line": "add-line {quote}: 1 support",
    "discount": "discount {quote} 12%",
    "sent": "sent {quote} to buyer@acme.example",
    "lost": "lost {quote} too expensive",
    "simulate": "simulate {quote}: discount 12%",
}


def table() -> dict[str, dict[str, str]]:
    """Read the page's table: entry point -> column -> yes, own or no."""
    rows = re.findall(r"^\| (.+?) \| (yes|own|no) \| (yes|own|no) \| (yes|own|no) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {name: dict(zip(COLUMNS, cells, strict=True)) for name, *cells in rows}


@dataclass(slots=True)
class Hand:
    """One person's actions, and everything that only they see."""

    world: World
    deal: Deal
    user: str
    with_teams: bool = True
    seen: int = 0

    @property
    def seals(self) -> Seals:
        """The seals of the bot, which has made the form or answer for this person."""
        return Seals(load_keyring(self.deal.data_dir))

    async def _card(self, value: str) -> Message | None:
        """Return the card of the quote that a value names, the first card if it names none, None if there is no such card."""
        named = (read_any(value) or {}).get("q", FIRST_QUOTE)
        found = await self.deal.rows(f"SELECT thread_ts FROM quotes WHERE quote_id = '{named}'")  # noqa: S608 -- our own number
        return self.world.slack.messages.get(CHANNEL, found[0]["thread_ts"]) if found else None

    @property
    def payloads(self) -> Payloads:
        return Payloads(self.world.slack)

    async def typed(self, text: str) -> str:
        payload, _ = self.payloads.slash(self.user, self.world.slack.directory.channels[CHANNEL], "/quote", text)
        return await self.sent("slash_commands", payload)

    async def pressed(self, action_id: str, value: str, *, menu: bool = False, private: bool = False) -> str:
        """Press a button that is on the card of the quote that its value names, or under a `private` answer, or could be."""
        found = await self._card(value)
        message, private = found or await self._card("{}"), private or found is None
        assert message is not None
        if private:
            message, value = replace(message, ephemeral_for=self.user), self.seals.sealed(self.user, action_id, value)
        chosen = {"selected_option": {"value": value, "text": {"type": "plain_text", "text": "x"}}} if menu else {"value": value}
        stamp = self.world.slack.clock.stamp()
        action = {"action_id": action_id, "block_id": "b", "type": "button", "action_ts": stamp, **chosen}
        return await self.sent("interactive", self.payloads.message_action(self.user, message, action, {}))

    async def submitted(self, callback_id: str, carried: str, block_id: str, value: str) -> str:
        """Submit a form with one field."""
        field = {"type": "input", "block_id": block_id, "element": {"type": "plain_text_input", "action_id": block_id}}
        values = {block_id: {block_id: {"type": "plain_text_input", "value": value}}}
        return await self.sent("interactive", self._of_view("view_submission", callback_id, carried, [field], values))

    async def sought(self, action_id: str, callback_id: str, carried: str, typed: str = "Sec") -> str:
        """Type into a menu; return what it offers."""
        view = self._of_view("block_suggestion", callback_id, carried, [], {})
        return await self.sent("interactive", {**view, "action_id": action_id, "block_id": action_id, "value": typed})

    async def chose(self, action_id: str, callback_id: str, carried: str, value: str) -> str:
        """Choose an entry of a form's menu."""
        view = self._of_view("block_actions", callback_id, carried, [], {})
        action = {"action_id": action_id, "block_id": action_id, "type": "external_select", "selected_option": {"value": value}}
        return await self.sent("interactive", {**view, "actions": [action]})

    def _of_view(self, kind: str, callback_id: str, carried: str, blocks: list[Any], values: dict[str, Any]) -> dict[str, Any]:
        stamp = self.world.slack.clock.stamp()
        sealed = self.seals.sealed(self.user, callback_id, carried)
        view = {"id": f"V{stamp}", "hash": "h", "type": "modal", "callback_id": callback_id, "private_metadata": sealed}
        about = {**view, "blocks": blocks, "state": {"values": values}, "root_view_id": view["id"]}
        person = self.world.slack.directory.people[self.user]
        who = {"id": person.id, "username": person.name, "name": person.name, "team_id": person.team_id}
        team = {"id": person.team_id, "domain": "x"}
        return {"type": kind, "user": who, "team": team, "trigger_id": self.world.slack.passes.trigger(self.user), "view": about}

    async def sought_at_home(self, typed: str) -> str:
        """Type into the menu of the person's Home tab; return what it offers."""
        asked = self._of_view("block_suggestion", "", "", [], {})
        about = {"view": {**asked["view"], "type": "home"}, "action_id": home.FIND, "block_id": "b", "value": typed}
        return await self.sent("interactive", {**asked, **about})

    async def pressed_at_home(self, action_id: str, value: str) -> str:
        """Press a button that the person's Home tab could have shown."""
        body = self._of_view("block_actions", "", "", [], {})
        sealed = self.seals.sealed(self.user, action_id, value)
        action = {"action_id": action_id, "block_id": "b", "type": "button", "value": sealed}
        return await self.sent("interactive", {**body, "view": {**body["view"], "type": "home"}, "actions": [action]})

    async def shortcut(self) -> str:
        message = self.world.slack.messages.get(CHANNEL, (await self.deal.cards())[0]["ts"])
        return await self.sent("interactive", self.payloads.shortcut(self.user, forms.FROM_MESSAGE, message))

    async def opened_home(self) -> str:
        await self.world.courier.raise_event(self.payloads.home_opened(self.user))
        return await self.answered({})

    async def added_the_bot(self) -> str:
        event = {
            "type": "member_joined_channel",
            "user": BOT_USER_ID,
            "channel": CHANNEL,
            "channel_type": "C",
            "inviter": self.user,
        }
        await self.world.courier.raise_event({**event, "team": TEAM_ID, "event_ts": self.world.slack.clock.stamp()})
        return await self.answered({})

    async def wrote(self, text: str, *, channel: str = CHANNEL, thread_ts: str | None = None) -> str:
        """Write a message; `channel` may be the person's own direct message."""
        workspace = self.world.slack
        place = workspace.directory.open_im(self.user) if channel == "im" else workspace.directory.channels[channel]
        message = workspace.post_as_user(place, self.user, text, thread_ts, None)
        kind = "message" if channel == "im" else "app_mention"
        event = self.payloads.message_event(message, kind, with_teams=self.with_teams)
        await self.world.courier.raise_event(event)
        return await self.answered({}, own=message.ts)

    async def linked(self, quote: str) -> str:
        """Write a message that links to the record of a quote."""
        record = f"0Q0{quote[-4:]:0>12}AAA"
        await recorded(self.deal, record, quote)
        text = f"see {self.world.salesforce.url}/{record}"
        written = await self.deal.post("message", user=self.user, channel=CHANNEL, text=text)
        answer = await self.answered({})
        message = self.world.slack.messages.get(CHANNEL, written["ts"])
        assert message is not None
        return json.dumps([answer, message.attachments], ensure_ascii=False) if message.attachments else answer

    async def sent(self, kind: Any, payload: dict[str, Any]) -> str:
        _, ack = await self._send(kind, payload)
        return await self.answered(ack.payload)

    async def _send(self, kind: Any, payload: dict[str, Any]) -> Any:
        return await self.world.courier.send(kind, payload, accepts_response=True, on_ack=lambda ack: ack.error)

    async def answered(self, ack: Any, own: str = "") -> str:
        """Return all that the person was shown since they asked: acknowledgement, private messages, windows, Home tab."""
        assert ack is not None, "not acknowledged"
        await self.deal.settled()
        workspace = self.world.slack
        place = f"D{self.user[1:]}"
        state = await self.deal.get("state")
        told = [m for m in state["messages"] if m["ephemeral_for"] == self.user or m["channel"] == place]
        fresh, self.seen = told[self.seen :], len(told)
        shown: list[Any] = [ack, *((m["text"], m["blocks"]) for m in fresh if m["ts"] != own)]
        shown += [view.content for view in workspace.views.stacks.pop(self.user, [])]
        drawn = workspace.views.homes.pop(self.user, None)
        return json.dumps([*shown, *([] if drawn is None else [drawn.content])], ensure_ascii=False)


def guidance(hand: Hand, quote: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what leads to a welcome or a preview, and the clicks under help and under a refused text or click."""
    there = value_text(ButtonValue(quote, 1, None))
    yield "`/quote clone`", partial(hand.pressed, confirmations.CLONE, there, private=True)
    yield "invitation of the bot to a channel", hand.added_the_bot
    yield LINK, partial(hand.linked, quote)
    yield "buttons under a private answer", partial(hand.pressed, confirmations.EDIT_FIRST, written({"t": "ab" * 32}), private=True)
    typed = written({"w": f"new for Corrected {hand.user} {quote}: 2 pro", "t": digest([hand.user, quote]), "n": None})
    for action_id, value in ((help_messages.HELP, "x"), (help_messages.COMMANDS, "x"), (confirmations.REPAIR, typed)):
        yield "buttons under a private answer", partial(hand.pressed, action_id, value, private=True)


def cover(hand: Hand) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what names and ends a person's cover."""
    row = "buttons and form of a cover"
    yield row, partial(hand.pressed_at_home, confirmations.COVER, "cover")
    yield row, partial(hand.submitted, forms.COVER_FORM, written({"z": "UTC"}), forms.REASON, "no")
    yield row, partial(hand.pressed_at_home, home.COVER_END, "end")


def search(hand: Hand, quote: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what searches a quote by number and by customer on the Home tab, and what shows it."""
    row = "*Find a quote* on the Home tab"
    for typed in (quote, "Sec"):
        yield row, partial(hand.sought_at_home, typed)
    yield row, partial(hand.pressed_at_home, home.FIND, value_text(ButtonValue(quote, 1, None)))


def difference(hand: Hand) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what opens the form of a difference with Salesforce, and what settles it."""
    row = "buttons and form of a difference with Salesforce (operators)"
    for action_id in crm_messages.TAKES:
        yield row, partial(hand.pressed, action_id, written({"x": 1}), private=True)
    decided = written({"x": 1, "k": "ours", "s": "In Review"})
    yield row, partial(hand.submitted, crm_messages.RECONCILE_FORM, decided, crm_messages.REASON, "no")


def requests(hand: Hand, quote: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield (row of the page, one request of that row about `quote`), everything that there is."""
    value = ButtonValue(quote, 1, quote.replace("Q-", "A-") + "-v1-1")
    text = value_text(value)
    for verb in dict.fromkeys(verbs.VERBS.values()):
        row = ROWS.get(verb, f"`/quote {verb}`")
        typed = TYPED.get(verb, f"{verb} {quote}").format(quote=quote, customer=f"Own {hand.user} {quote}")
        yield row, partial(hand.typed, typed)
    yield "`/quote new`, typed or as a form", partial(hand.typed, "new")
    for action_id in (
        REVISE,
        SEND,
        LOSE,
        RESUBMIT,
        SUBMIT,
        FINALIZE,
        ACCEPT,
    ):
        yield "buttons of a quote's card", partial(hand.pressed, action_id, text)
    for deed in (EXPLAIN, DISCOUNT, REFRESH, REVISE, CANCEL_BY_FORM):
        yield "menu of a quote's card", partial(hand.pressed, MORE, menu_text(deed, value), menu=True)
    yield from (
        (row, partial(hand.pressed, each, text))
        for row, each in (("Approve", APPROVE), ("Remind", REMIND), (SHOWN, confirmations.SHOW))
    )
    for action_id in (REJECT, REQUEST_CHANGES, APPROVE_WITH_REASON):
        yield "buttons of a quote's card", partial(hand.pressed, action_id, text)
    for callback in (forms.REJECT_CALLBACK, forms.CHANGES_CALLBACK, forms.APPROVE_CALLBACK):
        yield "forms of an approval", partial(hand.submitted, callback, text, forms.REASON, "no")
    for callback, field in ((forms.LOSE_FORM, forms.REASON), (forms.RESUBMIT_FORM, forms.APPROVER_NOTE), (forms.CANCEL_FORM, "x")):
        yield "forms of a quote", partial(hand.submitted, callback, text, field, "too dear")
    yield (
        "form of a new quote",
        partial(hand.submitted, forms.CREATE_FORM, written({"c": CHANNEL, "r": [], "k": 0}), forms.ACCOUNT, "Acme"),
    )
    yield "buttons under a private answer", partial(hand.pressed, confirmations.CREATE_ANOTHER, "ab" * 32, private=True)
    yield "buttons under a private answer", partial(hand.pressed, confirmations.FILL_IN, "5 pro", private=True)
    yield from (*guidance(hand, quote), *cover(hand), *search(hand, quote), *difference(hand))
    asked = list_card.question_text(ListRequest(mine=False))
    yield "buttons under a list", partial(hand.pressed, "list.all", asked, private=True)
    for action_id in (pending_buttons.RETRY, pending_buttons.CHECK, pending_buttons.CANCEL):
        carried = pending_buttons.pending_effect_value(pending_buttons.PendingEffectValue(quote, 1, 1, 1))
        yield "buttons under a pending effect", partial(hand.pressed, action_id, carried)
    for action_id in (pending_buttons.RETRY_COMMAND, pending_buttons.CHECK_COMMAND, pending_buttons.CANCEL_COMMAND):
        carried = pending_buttons.pending_command_value(pending_buttons.PendingCommandValue(quote, 1, 1, 1))
        yield "buttons under a pending command", partial(hand.pressed, action_id, carried)
    for action_id in (dead_letter_card.RETRY, dead_letter_card.EDIT, dead_letter_card.DISCARD, dead_letter_card.DETAILS):
        letter = written({"l": "1", "c": 1})
        row = "buttons and form of a dead letter (operators)"
        yield row, partial(hand.pressed, action_id, letter)
    yield row, partial(hand.submitted, dead_letter_card.DISCARD_FORM, letter, dead_letter_card.REASON, "no")
    yield row, partial(hand.submitted, dead_letter_card.EDIT_FORM, letter, dead_letter_card.REASON, "no")
    new, account = written({"c": CHANNEL, "r": [], "k": 0}), forms.block_of(CUSTOMER)
    yield MENUS, partial(hand.sought, forms.FOUND, forms.CREATE_FORM, new)
    yield MENUS, partial(hand.sought, account, forms.CREATE_FORM, written({"c": CHANNEL, "a": CUSTOMER, "r": [], "k": 0}), "")
    yield MENUS, partial(hand.sought, forms.CONTACT, forms.SEND_FORM, text, "")
    yield MENUS, partial(hand.chose, forms.FOUND, forms.CREATE_FORM, new, CUSTOMER)
    edited = written({"q": quote, "n": 1, "d": 0, "r": [], "k": 0})
    yield "form of a new quote", partial(hand.sought, "product.0", forms.CREATE_FORM, new, "pro")
    yield "forms of a quote", partial(hand.chose, "product.0", forms.REVISE_FORM, edited, "pro")
    yield "shortcut on a message", hand.shortcut
    yield "Home tab", hand.opened_home
    yield "Home tab", partial(hand.pressed, home.NEW_QUOTE, "new")
    yield "Home tab", partial(hand.pressed_at_home, home.EXAMPLE, "example")
    yield "Home tab", partial(hand.pressed_at_home, home.DIGEST, home.digest_text(wanted=True))
    yield "Home tab", partial(hand.pressed_at_home, home.NEXT, home.choice_text(HomeChoice(Section.NEEDS_YOU)))
    yield "mention in a channel", partial(hand.wrote, f"<@U0QUOTEBOT> new for Mention {hand.user} {quote}: 2 pro")
    yield "mention in a channel", partial(hand.wrote, "<@U0QUOTEBOT> list")
    yield "mention in a quote's thread", partial(in_thread, hand)
    yield "mention in a quote's thread", partial(hand.pressed, message_text.APPLY, "x")
    yield "direct message", partial(hand.wrote, "help", channel="im")
    yield "`/quote status`", partial(hand.wrote, f"status {quote}", channel="im")
    yield "`/quote status`", partial(hand.wrote, f"<@U0QUOTEBOT> status {quote}")
    yield "`/quote cancel`", partial(hand.pressed, CANCEL_QUOTE, text)


async def in_thread(hand: Hand) -> str:
    return await hand.wrote("<@U0QUOTEBOT> give them 12%", thread_ts=(await hand.deal.cards())[0]["ts"])


def holds_a_fact(answer: str) -> bool:
    return any(fact in answer for fact in (CUSTOMER, AMOUNT))


def joined(world: World, who: Person | str) -> str:
    """Add a person to the workspace and to the channel."""
    directory = world.slack.directory
    if isinstance(who, Person):
        directory.people[who.id] = who
    user = who.id if isinstance(who, Person) else who
    deals = directory.channels[CHANNEL]
    directory.channels[CHANNEL] = replace(deals, members=(*dict.fromkeys((*deals.members, user)),))
    return user


@asynccontextmanager
async def bot_with_a_request(world: World, folder: Path, who: str) -> AsyncIterator[tuple[Deal, Hand]]:
    """Yield a bot whose first quote waits for the CFO, a person in its channel, and a mirror of an org with the customer."""
    person, _, with_teams = PEOPLE[who]
    user = joined(world, person)
    world.slack.directory.enterprise_id = "E0HOUSE"
    org = world.salesforce._org
    account = org.create(SCHEMA["account"], {"Name": CUSTOMER})
    org.create(SCHEMA["contact"], {"FirstName": "Kim", "LastName": "Secret", "AccountId": account})
    about = {"Name": "Secret renewal", "AccountId": account, "StageName": "Prospecting", "CloseDate": "2030-01-31"}
    org.create(SCHEMA["opportunity"], about)
    async with bot_in(world, folder, **SETTINGS) as deal:
        await eventually(lambda: copied(deal), "the copy of the org")
        await deal.slash(f"new for {CUSTOMER}: 1000 pro; term 36m; discount 39%")
        await deal.settled()
        await deal.click("quote.submit", user="U0REP")
        await deal.settled()
        hand = Hand(world, deal, user, with_teams)
        await hand.typed("help")  # the bot has read this user from Slack
        yield deal, hand


async def copied(deal: Deal) -> bool:
    return len(await deal.rows("SELECT 1 FROM crm_mirror_cursors WHERE whole_at IS NOT NULL")) == 3


@pytest.mark.parametrize("who", PEOPLE)
async def test_each_person_at_each_entry_point(world: World, tmp_path: Path, who: str) -> None:
    column = PEOPLE[who][1]
    async with bot_with_a_request(world, tmp_path / "bot", who) as (deal, hand):
        allowed, offered = table(), ""
        for row, request in requests(hand, NUMBER):
            answer = await request()
            judge(row, allowed[row][column], answer, own=False)
            offered += answer if row == MENUS else ""
            assert row != LINK or (CUSTOMER in answer) == (column == "members"), answer
        assert [name for name in (CUSTOMER, "Secret renewal", CONTACT) if (name in offered) != (column == "members")] == []
        if column == "everybody else":
            await all_refused(deal, hand.user)
        elif column == "listed guests":
            made = (await deal.rows("SELECT quote_id FROM quotes WHERE requester = 'U0AGENCY'"))[0]["quote_id"]
            for row, request in requests(hand, made):
                judge(row, allowed[row][column], await request(), own=True)
        states = await deal.rows("SELECT state FROM quotes WHERE quote_id LIKE '%-0001'")
        assert column == "members" or states == [{"state": "pending_approval"}]


WITHOUT_THE_ROLE: Final = {  # of the CFO, and the code of the refusal
    "a member": "missing_role",
    "the requester": "own_request",
    "an approver of too low a role": "missing_role",
    "an operator": "missing_role",
    "a member of another workspace of the organization": "missing_role",
    "a listed guest": "not_a_member",
}


@pytest.mark.parametrize("who", WITHOUT_THE_ROLE)
async def test_without_the_role_no_gesture_decides_and_each_is_audited(world: World, tmp_path: Path, who: str) -> None:
    async with bot_with_a_request(world, tmp_path / "bot", who) as (deal, hand):
        carried = value_text(ButtonValue(NUMBER, 1, NUMBER.replace("Q-", "A-") + "-v1-1"))
        gestures = [
            partial(hand.pressed, APPROVE, carried),
            partial(hand.pressed_at_home, APPROVE, carried),
            *(
                partial(hand.submitted, callback, carried, forms.REASON, "INC-1 says no")
                for callback in (forms.REJECT_CALLBACK, forms.CHANGES_CALLBACK, forms.APPROVE_CALLBACK)
            ),
        ]
        for gesture in gestures:
            await gesture()
        events = await deal.rows("SELECT actor, after FROM audit_events WHERE event_type IN ('approval.refused', 'access.refused')")
        codes = [json.loads(row["after"])["code"] for row in events if row["actor"] == hand.user]
        assert codes == [WITHOUT_THE_ROLE[who]] * len(gestures)
        assert await deal.rows("SELECT q.state, a.decided_by FROM quotes AS q JOIN approvals AS a USING (quote_id)") == [
            {"state": "pending_approval", "decided_by": None}
        ]


async def test_listed_guest_cannot_tell_another_persons_quote_from_none(world: World, tmp_path: Path) -> None:
    async with bot_with_a_request(world, tmp_path / "bot", "a listed guest") as (_, hand):
        pairs = zip(requests(hand, NUMBER), requests(hand, UNKNOWN), strict=True)
        for (row, about_another), (_, about_none) in pairs:
            if table()[row]["listed guests"] == "own":
                another, none = await about_another(), await about_none()
                assert varying(another) == varying(none), row


def varying(answer: str) -> str:
    """Remove the parts of an answer that differ between requests."""
    return re.sub(r"Q-[0-9]{4}-[0-9]{4}|c-[0-9a-f]{8}|[0-9]{10}\.[0-9]{6}|\"block_id\": \"[^\"]*\"", "", answer)


def test_every_row_of_the_page_is_driven() -> None:
    unused: Any = None
    assert {row for row, _ in requests(Hand(unused, unused, "U0REP"), NUMBER)} == set(table())


def judge(row: str, cell: str, answer: str, *, own: bool) -> None:
    """Compare one answer with a cell of the page."""
    refused = any(refusal in answer for refusal in REFUSALS)
    without_role = {"(operators)": operator_messages.NOT_OPERATOR, "(deal desk)": report_messages.NOT_FOR_YOU}
    refused = refused or (cell == "no" and any(kind in row and reply in answer for kind, reply in without_role.items()))
    if cell == "no":
        assert not holds_a_fact(answer), (row, answer)
        assert not re.search(r"Q-[0-9]{4}-", answer), (row, answer)
        assert refused or answer in ("[{}]", '[{"options": []}]'), (row, answer)  # silent the second time in a minute
    else:
        assert not refused, (row, answer)
        assert own or cell == "yes" or not holds_a_fact(answer), (row, answer)


async def all_refused(deal: Deal, user: str) -> None:
    """Check that nothing was recorded for the person, and that a refusal is audited for each entry point."""
    assert user not in {row["actor"] for row in await deal.rows("SELECT actor FROM operations")}
    events = await deal.rows("SELECT actor, after FROM audit_events WHERE event_type = 'access.refused'")
    entries = [json.loads(row["after"])["entry"] for row in events if row["actor"] == user]
    assert sorted(entries) == sorted(ENTRIES)
