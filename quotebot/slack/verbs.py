"""Entry point of the `/quote` grammar, with the verbs about existing quotes. It never raises and never guesses.

    help, new, status                         parsed by grammar.py; a bare `new` opens a form
    status <ref>                              result of a command, by the reference in its answer
    finalize|accept <quote id> [v<n>]
    submit <quote id> [v<n>] [: note]         the note submits a quote that was sent back again as it is
    cancel <quote id> [v<n>] [: reason]       lost <quote id> [v<n>]: <reason>
    sent <quote id> [v<n>] to <recipient>
    revise|edit <quote id> [v<n>]: <changes>  e.g. 200 pro, add 10 sso, remove support; term 24m; discount 12%
    revise|edit <quote id> [v<n>] to: <a whole request>
    add-line <quote id> [v<n>]: 10 sso        discount <quote id> [v<n>]: 12%      both are revisions
    clone <quote id> [v<n>] [for <account>]
    list [mine|all] [open|<status>] [<account>] [page <n>]
    compare <quote id> [v<n> [v<n>]]          explain <quote id> [v<n>] [line <n>]
    simulate <quote id>: <changes>            simulate: <a whole request>, or price <a whole request>
    products [part of a name]
    audit <quote id>                          ops
    report <name> [by rep|product|role|month]
    delegate ...                              parsed by delegation.py

A version states what the person saw: the command is refused if the quote has a newer one. Without one the head is meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from quotebot.commands.payloads import (
    REASON_CHARACTERS_MAX,
    RECIPIENT_CHARACTERS_MAX,
    AcceptQuote,
    CancelQuote,
    CloneQuote,
    CreateQuote,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
    ReviseQuote,
    SubmitQuote,
)
from quotebot.commands.queries import OPEN, PAGE_MAX, ListRequest
from quotebot.domain.language import N_, _, grouped
from quotebot.domain.pricing.price_requests import Changes
from quotebot.domain.quotes.quote import STATE_WORDS, QuoteState, parse_quote_id
from quotebot.domain.quotes.reports import APPROVAL_GROUPS, GROUPS, REPORTS, ApprovalBy, By, Kind
from quotebot.slack import grammar
from quotebot.slack.delegation import DelegationRequest, DelegationsRequest, read_delegation
from quotebot.slack.digest import DigestRequest, read_digest
from quotebot.slack.grammar import ACCOUNT_CHARACTERS_MAX, GrammarProblem, shown
from quotebot.views import lifecycle_messages, messages
from quotebot.views.card import DISCOUNT, LOSE, REVISE, SEND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quotebot.commands.registry import LifecyclePayload
    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.pricing.engine import PriceRequest

_ALIASES: Final = {
    "help": (),
    "new": ("start", "create"),
    "status": ("show", "approve", "reject"),  # approvers decide by a click on the card, which shows what is decided
    "list": ("ls",),
    "submit": (),
    "revise": ("edit",),
    "add-line": ("addline",),
    "discount": (),
    "audit": ("history",),
    "ops": (),
    "products": ("catalog", "catalogue"),
    "report": ("reports",),
    "clone": ("copy",),
    "compare": ("diff",),
    "simulate": ("price", "preview"),
    "cancel": (),
    "finalize": ("finalise",),
    "sent": ("send",),
    "accept": ("accepted", "won", "win"),
    "lost": ("lose",),
    "explain": (),
    "delegate": ("ooo",),
    "digest": (),
}
VERBS: Final = {name: verb for verb, aliases in _ALIASES.items() for name in (verb, *aliases)}
_SUGGESTED: Final = tuple(name for name, verb in VERBS.items() if verb not in ("ops", "report"))  # the others are for few people
_GREETING = re.compile(r"(?:hi|hello|hey|hallo|moin|servus|hola|salut|thanks|thank)\b", re.IGNORECASE)
_LIKE_A_NUMBER = re.compile(r"[Qq#]?-?[0-9][0-9-]*")
_REF = re.compile(r"c-[0-9a-f]{8}", re.IGNORECASE)
_VERSION = re.compile(r"v([0-9]{1,6})", re.IGNORECASE)
_PAGE = re.compile(r"\bpage ([0-9]{1,5})\b", re.IGNORECASE)
_OWNER = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_LINE = re.compile(r"line ([0-9]{1,4})", re.IGNORECASE)
_BARE: Final[Mapping[str, FinalizeQuote | AcceptQuote]] = {"finalize": FinalizeQuote(), "accept": AcceptQuote()}


@dataclass(frozen=True, slots=True)
class HelpRequest:
    """Request for the help text, or a greeting."""

    greets: bool = False


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Request to show one quote."""

    quote_id: str


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A command about one quote that is to be recorded. `version` is the one named in the text, None for the head."""

    quote_id: str
    version: int | None
    payload: SubmitQuote | LifecyclePayload


@dataclass(frozen=True, slots=True)
class FormRequest:
    """Request to open the form of a new quote."""


@dataclass(frozen=True, slots=True)
class QuoteFormRequest:
    """Request to open a form about a quote, because its verb needs more; `problem` says what is missing where no form opens."""

    quote_id: str
    version: int | None
    action_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class WhichQuote:
    """A verb without a quote: the person chooses one of theirs."""

    verb: str


@dataclass(frozen=True, slots=True)
class RefRequest:
    """Request for the result of one's own command; `ref` is the reference ("c-7f91ab12") in its answer."""

    ref: str


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Request for the differences between two versions; None: the head and the one before it."""

    quote_id: str
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """Request to explain the prices of a quote: all of them, or those of one line (1-based)."""

    quote_id: str
    version: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """Request to simulate a price request, or changes of a quote: cost and required approvals. Writes nothing.

    `account` is the customer of a price request, if it names one.
    """

    quote_id: str | None
    changes: Changes | None
    request: PriceRequest | None
    account: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """Request for a quote's history: events and actors."""

    quote_id: str


@dataclass(frozen=True, slots=True)
class OpsRequest:
    """Request of an operator for dead letters and held classes."""


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """Request of a deal desk for a report about the quotes of the last ninety days."""

    kind: Kind
    by: By


@dataclass(frozen=True, slots=True)
class ApprovalReportRequest:
    """Request of a deal desk for a report about the approvals of the last ninety days."""

    by: ApprovalBy


@dataclass(frozen=True, slots=True)
class ProductsRequest:
    """Request for the products on sale and their list prices, by a part of their names; empty: all."""

    search: str = ""


DeskRead = ReportRequest | ApprovalReportRequest | ProductsRequest
Read = DeskRead | RefRequest | ListRequest | CompareRequest | ExplainRequest | SimulateRequest | AuditRequest | OpsRequest
Delegating = DelegationRequest | DelegationsRequest | DigestRequest
Asked = HelpRequest | FormRequest | QuoteFormRequest | WhichQuote | StatusRequest
Meaning = Delegating | Asked | CreateQuote | CloneQuote | ChangeRequest | Read | GrammarProblem


@dataclass(frozen=True, slots=True)
class _About:
    """A typed verb about a quote: the version if one was named, the text that follows, the channel, and the catalogue."""

    verb: str
    quote_id: str
    version: int | None
    rest: str
    channel: str
    catalogue: Catalogue


def parse(text: str, channel: str, catalogue: Catalogue, most: int = grammar.TEXT_CHARACTERS_MAX) -> Meaning:
    """Read one command typed in `channel` (a Slack channel id); text over `most` characters is refused unread."""
    if len(text) > most:
        return GrammarProblem(messages.too_long(most))
    verb, _blank, rest = grammar.normalised(text).partition(" ")
    if verb.endswith(":"):  # `simulate: 10 pro`
        verb, rest = verb[:-1], f": {rest}"
    meaning = VERBS.get(verb.casefold())
    if meaning == "new":
        asked = rest.removeprefix(":").strip()  # `new: for Acme: 10 pro`
        return grammar.creation(asked, channel, catalogue) if asked else FormRequest()
    if not verb or meaning == "help":
        return HelpRequest()
    if meaning is None:
        return _without_verb(verb)
    about_no_quote = ABOUT_NO_QUOTE.get(meaning)
    if about_no_quote is not None:
        return about_no_quote(rest)
    return _of_quote(meaning, verb, rest, channel, catalogue)


def _without_verb(first: str) -> Meaning:
    """Return the meaning of a text that begins with a quote's number, a greeting or another word."""
    quote_id = parse_quote_id(first)
    if quote_id is not None:
        return StatusRequest(quote_id)
    return HelpRequest(greets=True) if _GREETING.match(first) else grammar.unknown_verb(first, _SUGGESTED)


def typed_creation(text: str) -> str | None:
    """Return the text after `new` in a typed command, or None for another command or a text that is too long."""
    if len(text) > grammar.MESSAGE_CHARACTERS_MAX:
        return None
    verb, _blank, rest = grammar.normalised(text).partition(" ")
    return rest if VERBS.get(verb.casefold().removesuffix(":")) == "new" else None


def _state_filters() -> tuple[tuple[str, frozenset[QuoteState]], ...]:
    """Return each filter of a list with its states: their ids, their words in English, `pending` and `open`; longest first."""
    found = {"pending": frozenset({QuoteState.PENDING_APPROVAL}), "open": OPEN}
    for state in QuoteState:
        for name in (state.value, state.value.replace("_", " "), STATE_WORDS[state]):
            found[name] = found.get(name, frozenset()) | {state}
    return tuple(sorted(found.items(), key=lambda each: -len(each[0])))


_STATE_FILTERS: Final = _state_filters()


def _list(rest: str) -> ListRequest | GrammarProblem:
    """Parse the text after `list`: the owner, the states and the page; the rest is a part of the customer's name."""
    page = _PAGE.search(rest)
    number = 1 if page is None else int(page[1])
    if not 1 <= number <= PAGE_MAX:
        return GrammarProblem(_("Pages are 1 to {n}. Example: `/quote list page 2`.", n=grouped(PAGE_MAX)))
    text = f" {rest if page is None else rest[: page.start()] + rest[page.end() :]} "
    mine, owner, states = True, None, frozenset[QuoteState]()
    for name, meant in _STATE_FILTERS:
        text, found = _taken(text, name)
        states |= meant if found else frozenset()
    text, everybody = _taken(text, "all")
    text, own = _taken(text, "mine")
    if named := _OWNER.search(text):
        owner, text = named[1], text[: named.start()] + text[named.end() :]
    mine = own or not (everybody or owner)
    account = text.strip().removeprefix("for ").strip()
    if len(account) > ACCOUNT_CHARACTERS_MAX:
        return _customer_too_long()
    return ListRequest(mine, owner, states, account or None, number)


def _customer_too_long() -> GrammarProblem:
    return GrammarProblem(_("That customer's name is too long ({n} characters max).", n=grouped(ACCOUNT_CHARACTERS_MAX)))


def _not_understood(rest: str, command: str) -> GrammarProblem:
    return GrammarProblem(_("I didn't understand {text}. Try `/quote {command}`.", text=shown(rest), command=command))


def _taken(text: str, name: str) -> tuple[str, bool]:
    """Return the text without the word `name`, and whether it was found."""
    found = re.search(rf"(?<= ){re.escape(name)}(?= )", text, re.IGNORECASE)
    return (text, False) if found is None else (text[: found.start()].rstrip() + text[found.end() :], True)


def _ops(rest: str) -> Meaning:
    return _not_understood(rest, "ops") if rest else OpsRequest()


def _report(rest: str) -> Meaning:
    """Parse the text after `report`: "discounts", "approvals by month"."""
    name, _blank, after = rest.casefold().replace("cycle time", "cycle-time").replace("win loss", "win-loss").partition(" ")
    by = after.removeprefix("by ").strip()
    asked = next((each for each in APPROVAL_GROUPS if each == (by or "role")), None)
    if name == "approvals" and asked is not None:
        return ApprovalReportRequest(asked)
    kind = next((each for each in REPORTS if each == name), None)
    group = next((each for each in GROUPS if each == (by or "rep")), None)
    if kind is None or group is None:
        names = ", ".join((*REPORTS, "approvals"))
        return GrammarProblem(
            _(
                "The reports are {names}, by rep, product or month (approvals: by role, rep or month). "
                "Example: `/quote report discounts by product`.",
                names=names,
            )
        )
    return ReportRequest(kind, group)


def _products(rest: str) -> Meaning:
    if len(rest) > ACCOUNT_CHARACTERS_MAX:
        return GrammarProblem(_("That product's name is too long ({n} characters max).", n=grouped(ACCOUNT_CHARACTERS_MAX)))
    return ProductsRequest(rest.removeprefix(":").strip())


ABOUT_NO_QUOTE: Final[Mapping[str, Callable[[str], Meaning]]] = {
    "list": _list,
    "delegate": read_delegation,
    "digest": read_digest,
    "ops": _ops,
    "report": _report,
    "products": _products,
}


def _of_quote(meaning: str, verb: str, rest: str, channel: str, catalogue: Catalogue) -> Meaning:
    if meaning == "simulate" and (rest.startswith(":") or rest.casefold().startswith("for ") or rest[:1].isdigit()):
        customer, _colon, content = rest.partition(":")
        body = rest if rest[:1].isdigit() else content
        request = grammar.read_request(body, catalogue)
        example = "/quote simulate: 150 pro; discount 15%"
        if isinstance(request, tuple):
            return _problems(request, example, "simulate: ", body, catalogue, grammar.read_request)
        account = customer[len("for ") :].strip() if customer.casefold().startswith("for ") else ""
        return SimulateRequest(None, None, request, account or None)
    if meaning == "status" and _REF.fullmatch(rest):
        return RefRequest(rest.casefold())
    first, _blank, after = rest.partition(" ")
    name, colon, glued = first.partition(":")
    quote_id = parse_quote_id(name)
    if quote_id is None:
        return _no_number(meaning, messages.escape(verb[: grammar.VERB_CHARACTERS_MAX].casefold()), rest)
    after = f"{colon}{glued} {after}".strip() if colon else after.strip()
    version = _VERSION.match(after)
    named = None if version is None else int(version[1])
    left = after if version is None else after[version.end() :].strip()
    return _READERS[meaning](_About(meaning, quote_id, named, left, channel, catalogue))


def _no_number(meaning: str, verb: str, rest: str) -> Meaning:
    """Return the meaning of a verb that is followed by no quote's number: nothing, or words, by which "show" searches."""
    first = rest.partition(" ")[0]
    if not first:
        return WhichQuote(verb)
    if meaning == "status" and not _LIKE_A_NUMBER.fullmatch(first) and len(rest) <= ACCOUNT_CHARACTERS_MAX:
        return ListRequest(mine=False, account=rest)
    return GrammarProblem(_("{text} isn't a quote number. Example: `/quote {verb} Q-2026-0042`.", text=shown(first), verb=verb))


def _bare(about: _About) -> Meaning:
    return _left_over(about) if about.rest else ChangeRequest(about.quote_id, about.version, _BARE[about.verb])


def _status(about: _About) -> Meaning:
    return _left_over(about) if about.rest else StatusRequest(about.quote_id)


def _left_over(about: _About) -> GrammarProblem:
    return _not_understood(about.rest, f"{about.verb} {about.quote_id}")


def _revise(about: _About) -> Meaning:
    head, colon, body = about.rest.partition(":")
    example = lifecycle_messages.revision_example(about.quote_id)
    whole = head.strip().casefold()
    if not about.rest:
        return QuoteFormRequest(about.quote_id, about.version, REVISE, lifecycle_messages.changes_needed(about.quote_id))
    if not colon or whole not in ("", "to"):
        return GrammarProblem(lifecycle_messages.changes_needed(about.quote_id))
    payload: ReviseQuote
    before = _before(about)
    if whole == "to":
        request = grammar.read_request(body, about.catalogue)
        if isinstance(request, tuple):
            return _problems(request, example, f"{before} to: ", body, about.catalogue, grammar.read_request)
        payload = ReviseQuote(request=request)
    else:
        changes = grammar.read_changes(body, about.catalogue)
        if isinstance(changes, tuple):
            return _unreadable_changes(about, body, changes, example)
        payload = ReviseQuote(changes=changes)
    return ChangeRequest(about.quote_id, about.version, payload)


def _add_line(about: _About) -> Meaning:
    """Read "10 sso, 5 pro": each is added to the existing lines."""
    example = f"/quote add-line {about.quote_id}: 10 sso"
    body = about.rest.removeprefix(":").strip()
    read = grammar.read_changes(body, about.catalogue)
    if isinstance(read, tuple):
        return _problems(read, example, f"{_before(about)}: ", body, about.catalogue, grammar.read_changes)
    if read != Changes(read.lines) or any(line.deed == "remove" for line in read.lines):
        other = lifecycle_messages.revision_example(about.quote_id)
        return GrammarProblem(_("add-line only adds products. For other changes: `{example}`", example=other))
    added = tuple(replace(line, deed="add") for line in read.lines)
    return ChangeRequest(about.quote_id, about.version, ReviseQuote(changes=Changes(added)))


def _discount(about: _About) -> Meaning:
    example = f"/quote discount {about.quote_id}: 12%"
    typed = about.rest.removeprefix(":").strip()
    if not typed:
        problem = _("What discount? Example: `{example}`", example=example)
        return QuoteFormRequest(about.quote_id, about.version, DISCOUNT, problem)
    percent = grammar.read_discount(typed)
    if isinstance(percent, str):
        return _problems((percent,), example)
    return ChangeRequest(about.quote_id, about.version, ReviseQuote(changes=Changes(discount_percent=percent)))


def _audit(about: _About) -> Meaning:
    return _left_over(about) if about.rest or about.version is not None else AuditRequest(about.quote_id)


def _before(about: _About) -> str:
    """Return the typed command up to the colon before its text."""
    return f"{about.verb} {about.quote_id}{'' if about.version is None else f' v{about.version}'}"


def _problems(
    problems: tuple[str, ...],
    example: str,
    before: str = "",
    body: str = "",
    catalogue: Catalogue | None = None,
    read: Callable[[str, Catalogue], object] = grammar.read_changes,
) -> GrammarProblem:
    """Refuse a text that `read` could not read, with its correction if that can be read."""
    corrected, label = ("", "") if catalogue is None else grammar.corrected_products(grammar.separated(body), catalogue)
    if catalogue is None or corrected == body or isinstance(read(corrected, catalogue), tuple):
        return GrammarProblem(lifecycle_messages.unreadable_changes(problems, example))
    repair = grammar.Repair(f"{before}{corrected.strip()}", label)
    return GrammarProblem(lifecycle_messages.unreadable_changes(problems, f"/quote {repair.text}"), repair)


def _unreadable_changes(about: _About, body: str, problems: tuple[str, ...], example: str) -> GrammarProblem:
    """Refuse changes that could not be read; ask about a number after a product: the new quantity, or an addition."""
    before, asked = _before(about), grammar.product_and_number(body, about.catalogue)
    if asked is None:
        return _problems(problems, example, f"{before}: ", body, about.catalogue, grammar.read_changes)
    sku, number = asked
    labels = lifecycle_messages.quantity_labels(about.catalogue.products[sku].name, number)
    texts = f"{before}: {number} {sku}", f"{before}: add {number} {sku}"
    choices = tuple(grammar.Repair(text, label) for text, label in zip(texts, labels, strict=True))
    return GrammarProblem(lifecycle_messages.quantity_or_addition(), choices=choices)


def _simulate(about: _About) -> Meaning:
    body = about.rest.removeprefix(":").strip()
    changes = grammar.read_changes(body, about.catalogue) if body else None
    if isinstance(changes, tuple):
        return _unreadable_changes(about, body, changes, f"/quote simulate {about.quote_id}: 200 pro; term 24m")
    return SimulateRequest(about.quote_id, changes, None)


def _clone(about: _About) -> Meaning:
    if not about.rest:
        return CloneQuote(about.quote_id, about.channel, about.version)
    preposition, _blank, account = about.rest.partition(" ")
    account = account.strip()
    if preposition.casefold() != "for" or not account:
        return _left_over(about)
    if len(account) > ACCOUNT_CHARACTERS_MAX:
        return _customer_too_long()
    return CloneQuote(about.quote_id, about.channel, about.version, account)


def _submit(about: _About) -> Meaning:
    note = _reason(about)
    return note if isinstance(note, GrammarProblem) else ChangeRequest(about.quote_id, about.version, SubmitQuote(note or None))


def _cancel(about: _About) -> Meaning:
    reason = _reason(about)
    if isinstance(reason, GrammarProblem):
        return reason
    return ChangeRequest(about.quote_id, about.version, CancelQuote(reason or None))


def _lost(about: _About) -> Meaning:
    reason = _reason(about)
    if isinstance(reason, GrammarProblem):
        return reason
    if not reason:
        return QuoteFormRequest(about.quote_id, about.version, LOSE, lifecycle_messages.reason_needed(about.quote_id))
    return ChangeRequest(about.quote_id, about.version, LoseQuote(reason))


_REASONS: Final = {"cancel": "duplicate", "lost": "too expensive", "submit": "they need SSO"}  # an example for each verb


def _reason(about: _About) -> str | GrammarProblem:
    """Return the text after the colon: a reason, or the note of a submission; empty if there is none."""
    reason, is_note = about.rest.removeprefix(":").strip(), about.verb == "submit"
    if reason and not about.rest.startswith(":"):
        colon = (
            N_("Put a colon before the note: `/quote {example}`")
            if is_note
            else N_("Put a colon before the reason: `/quote {example}`")
        )
        return GrammarProblem(_(colon, example=f"{about.verb} {about.quote_id}: {_REASONS[about.verb]}"))
    if len(reason) > REASON_CHARACTERS_MAX:
        return GrammarProblem(lifecycle_messages.too_long("note" if is_note else "reason", REASON_CHARACTERS_MAX))
    return reason


def _sent(about: _About) -> Meaning:
    preposition, _blank, recipient = about.rest.partition(" ")
    recipient = recipient.strip()
    if preposition.casefold() != "to" or not recipient:
        needed = lifecycle_messages.recipient_needed(about.quote_id)
        return GrammarProblem(needed) if about.rest else QuoteFormRequest(about.quote_id, about.version, SEND, needed)
    if len(recipient) > RECIPIENT_CHARACTERS_MAX:
        return GrammarProblem(lifecycle_messages.too_long("recipient", RECIPIENT_CHARACTERS_MAX))
    return ChangeRequest(about.quote_id, about.version, MarkSent(recipient))


def _compare(about: _About) -> Meaning:
    if not about.rest:
        return CompareRequest(about.quote_id, about.version)
    after = _VERSION.fullmatch(about.rest)
    if about.version is None or after is None:
        return _left_over(about)
    return CompareRequest(about.quote_id, about.version, int(after[1]))


def _explain(about: _About) -> Meaning:
    if not about.rest:
        return ExplainRequest(about.quote_id, about.version)
    line = _LINE.fullmatch(about.rest)
    return _left_over(about) if line is None else ExplainRequest(about.quote_id, about.version, int(line[1]))


_READERS: Final[Mapping[str, Callable[[_About], Meaning]]] = {
    "status": _status,
    **dict.fromkeys(_BARE, _bare),
    "revise": _revise,
    "add-line": _add_line,
    "discount": _discount,
    "audit": _audit,
    "clone": _clone,
    "compare": _compare,
    "explain": _explain,
    "simulate": _simulate,
    "submit": _submit,
    "cancel": _cancel,
    "lost": _lost,
    "sent": _sent,
}
