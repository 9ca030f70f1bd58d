"""Entry point of the `/quote` grammar, with the verbs about existing quotes. It never raises and never guesses.

    help, new, status                         parsed by grammar.py; a bare `new` opens a form
    status <ref>                              result of a command, by the reference in its answer
    submit|finalize|accept <quote id> [v<n>]
    cancel <quote id> [v<n>] [: reason]       lost <quote id> [v<n>]: <reason>
    sent <quote id> [v<n>] to <recipient>
    revise|edit <quote id> [v<n>]: <changes>  e.g. 200 pro, add 10 sso, remove support; term 24m; discount 12%
    revise|edit <quote id> [v<n>] to: <a whole request>
    add-line <quote id> [v<n>]: 10 sso        discount <quote id> [v<n>]: 12%      both are revisions
    clone <quote id> [v<n>] [for <account>]
    list [mine|all] [open|<status>] [<account>] [page <n>]
    compare <quote id> [v<n> [v<n>]]          explain <quote id> [v<n>] [line <n>]
    simulate <quote id>: <changes>            simulate: <a whole request>
    audit <quote id>                          ops
    delegate ...                              parsed by delegation.py

A version states what the person saw: the command is refused if the quote has a newer one. Without one the head is meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from quotebot.commands.lifecycle import (
    REASON_CHARACTERS_MAX,
    RECIPIENT_CHARACTERS_MAX,
    AcceptQuote,
    CancelQuote,
    CloneQuote,
    FinalizeQuote,
    LoseQuote,
    MarkSent,
)
from quotebot.commands.queries import ListRequest
from quotebot.commands.registry import CreateQuote, LifecyclePayload, ReviseQuote, SubmitQuote
from quotebot.domain.pricing.price_requests import Changes
from quotebot.domain.quotes.quote import parse_quote_id
from quotebot.slack import grammar
from quotebot.slack.audit_queries import AuditRequest, OpsRequest
from quotebot.slack.delegation import DelegationRequest, DelegationsRequest, read_delegation
from quotebot.slack.grammar import GrammarProblem, HelpRequest, StatusRequest, shown
from quotebot.slack.list_query import read_list
from quotebot.views import lifecycle_messages, messages

if TYPE_CHECKING:
    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.pricing.engine import PriceRequest

_ALIASES: Final = {
    "list": ("ls",),
    "submit": (),
    "revise": ("edit",),
    "add-line": ("addline",),
    "discount": (),
    "audit": ("history",),
    "ops": (),
    "clone": ("copy",),
    "compare": ("diff",),
    "simulate": ("price", "preview"),
    "cancel": (),
    "finalize": ("finalise",),
    "sent": ("send",),
    "accept": ("accepted",),
    "lost": ("lose",),
    "explain": (),
    "delegate": ("ooo",),
    "status": ("approve", "reject"),  # a decision is made by a click on the card, which shows what is decided
}
VERBS: Final = {
    **grammar.VERBS,
    **{name: verb for verb, aliases in _ALIASES.items() for name in (verb, *aliases)},
}
_REF = re.compile(r"c-[0-9a-f]{8}", re.IGNORECASE)
_VERSION = re.compile(r"v([0-9]{1,6})", re.IGNORECASE)
_LINE = re.compile(r"line ([0-9]{1,4})", re.IGNORECASE)


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
    """Request to simulate a price request, or changes of a quote: cost and required approvals. Writes nothing."""

    quote_id: str | None
    changes: Changes | None
    request: PriceRequest | None


Read = RefRequest | ListRequest | CompareRequest | ExplainRequest | SimulateRequest | AuditRequest | OpsRequest
Delegating = DelegationRequest | DelegationsRequest
Meaning = Delegating | HelpRequest | FormRequest | StatusRequest | CreateQuote | CloneQuote | ChangeRequest | Read | GrammarProblem


@dataclass(frozen=True, slots=True)
class _About:
    """The quote that a verb is about, the version if one was named, and the text that follows."""

    quote_id: str
    version: int | None
    rest: str


@dataclass(frozen=True, slots=True)
class _Where:
    """The channel that the command was typed in, and the catalogue."""

    channel: str
    catalogue: Catalogue


def parse(text: str, channel: str, catalogue: Catalogue, most: int = grammar.TEXT_CHARACTERS_MAX) -> Meaning:
    """Read one command typed in `channel` (a Slack channel id); text over `most` characters is refused unread."""
    if len(text) > most:
        return GrammarProblem(messages.too_long(most))
    verb, _, rest = grammar.normalised(text).partition(" ")
    if verb.endswith(":"):  # `simulate: 10 pro`
        verb, rest = verb[:-1], f": {rest}"
    meaning = VERBS.get(verb.casefold())
    if meaning == "new":
        asked = rest.removeprefix(":").strip()  # `new: for Acme: 10 pro`
        return grammar.creation(asked, channel, catalogue) if asked else FormRequest()
    if not verb or meaning == "help":
        return HelpRequest()
    if meaning is None:
        return grammar.unknown_verb(verb, VERBS)
    about_no_quote = _ABOUT_NO_QUOTE.get(meaning)
    if about_no_quote is not None:
        return about_no_quote(rest)
    return _of_quote(meaning, verb, rest, _Where(channel, catalogue))


def typed_creation(text: str) -> str | None:
    """Return the text after `new` in a typed command, or None for another command or a text that is too long."""
    if len(text) > grammar.MESSAGE_CHARACTERS_MAX:
        return None
    verb, _, rest = grammar.normalised(text).partition(" ")
    return rest if VERBS.get(verb.casefold().removesuffix(":")) == "new" else None


def begins_with_verb(text: str) -> bool:
    """Return whether a message begins with a verb, as a command does."""
    return grammar.normalised(text[: grammar.MESSAGE_CHARACTERS_MAX]).partition(" ")[0].removesuffix(":").casefold() in VERBS


def _ops(rest: str) -> Meaning:
    if rest:
        return GrammarProblem(f"I do not understand {shown(rest)} after ops. Nothing was recorded. Type `/quote ops`.")
    return OpsRequest()


_ABOUT_NO_QUOTE: Final[Mapping[str, Callable[[str], Meaning]]] = {"list": read_list, "delegate": read_delegation, "ops": _ops}


def _of_quote(meaning: str, verb: str, rest: str, where: _Where) -> Meaning:
    if meaning == "simulate" and (rest.startswith(":") or rest.casefold().startswith("for ")):
        return _simulate_new(rest.partition(":")[2], where)
    if meaning == "status" and _REF.fullmatch(rest):
        return RefRequest(rest.casefold())
    about = _about(verb, rest)
    return about if isinstance(about, GrammarProblem) else _READERS[meaning](about, where)


def _about(verb: str, rest: str) -> _About | GrammarProblem:
    first, _, after = rest.partition(" ")
    name, colon, glued = first.partition(":")
    quote_id = parse_quote_id(name)
    if quote_id is None:
        what = f"{shown(first)} is no quote number." if first else "Which quote?"
        verb = messages.escape(verb[: grammar.VERB_CHARACTERS_MAX].casefold())
        return GrammarProblem(
            f"{what} Nothing was recorded. Type one such as `/quote {verb} Q-2026-0042`; it stands at the top of the quote's card."
        )
    after = f"{colon}{glued} {after}".strip() if colon else after.strip()
    version = _VERSION.match(after)
    if version is None:
        return _About(quote_id, None, after)
    return _About(quote_id, int(version[1]), after[version.end() :].strip())


def _bare(verb: str, payload: SubmitQuote | FinalizeQuote | AcceptQuote) -> _Reader:
    def read(about: _About, where: _Where) -> Meaning:
        del where
        return _left_over(about, verb) if about.rest else ChangeRequest(about.quote_id, about.version, payload)

    return read


def _status(about: _About, where: _Where) -> Meaning:
    del where
    return _left_over(about, "status") if about.rest else StatusRequest(about.quote_id)


def _left_over(about: _About, verb: str) -> GrammarProblem:
    return GrammarProblem(
        f"I do not understand {shown(about.rest)} after the quote. Nothing was recorded. Type `/quote {verb} {about.quote_id}`."
    )


def _revise(about: _About, where: _Where) -> Meaning:
    head, colon, body = about.rest.partition(":")
    example = lifecycle_messages.revision_example(about.quote_id)
    whole = head.strip().casefold()
    if not colon or whole not in ("", "to"):
        return GrammarProblem(f"Say after a colon what is to change. Nothing was recorded. E.g. `{example}`")
    payload: ReviseQuote
    if whole == "to":
        request = grammar.read_request(body, where.catalogue)
        if isinstance(request, tuple):
            return _problems(request, example)
        payload = ReviseQuote(request=request)
    else:
        changes = grammar.read_changes(body, where.catalogue)
        if isinstance(changes, tuple):
            return _problems(changes, example)
        payload = ReviseQuote(changes=changes)
    return ChangeRequest(about.quote_id, about.version, payload)


def _add_line(about: _About, where: _Where) -> Meaning:
    """Read "10 sso, 5 pro": each is added to the existing lines."""
    example = f"/quote add-line {about.quote_id}: 10 sso"
    read = grammar.read_changes(about.rest.removeprefix(":").strip(), where.catalogue)
    if isinstance(read, tuple):
        return _problems(read, example)
    if read != Changes(read.lines) or any(line.deed == "remove" for line in read.lines):
        return _problems((f"it only adds lines; `/quote revise {about.quote_id}: ...` changes everything else",), example)
    added = tuple(replace(line, deed="add") for line in read.lines)
    return ChangeRequest(about.quote_id, about.version, ReviseQuote(changes=Changes(added)))


def _discount(about: _About, where: _Where) -> Meaning:
    del where
    percent = grammar.read_discount(about.rest.removeprefix(":").strip())
    if isinstance(percent, str):
        return _problems((percent,), f"/quote discount {about.quote_id}: 12%")
    return ChangeRequest(about.quote_id, about.version, ReviseQuote(changes=Changes(discount_percent=percent)))


def _audit(about: _About, where: _Where) -> Meaning:
    del where
    return _left_over(about, "audit") if about.rest or about.version is not None else AuditRequest(about.quote_id)


def _problems(problems: tuple[str, ...], example: str) -> GrammarProblem:
    return GrammarProblem(lifecycle_messages.unreadable_changes(problems, example))


def _simulate(about: _About, where: _Where) -> Meaning:
    body = about.rest.removeprefix(":").strip()
    changes = grammar.read_changes(body, where.catalogue) if body else None
    if isinstance(changes, tuple):
        return _problems(changes, f"/quote simulate {about.quote_id}: 200 pro; term 24m")
    return SimulateRequest(about.quote_id, changes, None)


def _simulate_new(body: str, where: _Where) -> Meaning:
    request = grammar.read_request(body, where.catalogue)
    if isinstance(request, tuple):
        return _problems(request, "/quote simulate: 150 pro; discount 15%")
    return SimulateRequest(None, None, request)


def _clone(about: _About, where: _Where) -> Meaning:
    if not about.rest:
        return CloneQuote(about.quote_id, where.channel, about.version)
    preposition, _, account = about.rest.partition(" ")
    account = account.strip()
    if preposition.casefold() != "for" or not account:
        return _left_over(about, "clone")
    if len(account) > grammar.ACCOUNT_CHARACTERS_MAX:
        limit = grammar.ACCOUNT_CHARACTERS_MAX
        return GrammarProblem(f"The customer's name is longer than {limit} characters. Nothing was recorded. Shorten it.")
    return CloneQuote(about.quote_id, where.channel, about.version, account)


def _cancel(about: _About, where: _Where) -> Meaning:
    del where
    reason = _reason("cancel", about)
    if isinstance(reason, GrammarProblem):
        return reason
    return ChangeRequest(about.quote_id, about.version, CancelQuote(reason or None))


def _lost(about: _About, where: _Where) -> Meaning:
    del where
    reason = _reason("lost", about)
    if isinstance(reason, GrammarProblem):
        return reason
    if not reason:
        return GrammarProblem(lifecycle_messages.reason_needed(about.quote_id))
    return ChangeRequest(about.quote_id, about.version, LoseQuote(reason))


def _reason(verb: str, about: _About) -> str | GrammarProblem:
    reason = about.rest.removeprefix(":").strip()
    if reason and not about.rest.startswith(":"):
        return GrammarProblem(f"Put a colon before the reason. Nothing was recorded. `/quote {verb} {about.quote_id}: reason`")
    if len(reason) > REASON_CHARACTERS_MAX:
        return GrammarProblem(lifecycle_messages.too_long("reason", REASON_CHARACTERS_MAX))
    return reason


def _sent(about: _About, where: _Where) -> Meaning:
    del where
    preposition, _, recipient = about.rest.partition(" ")
    recipient = recipient.strip()
    if preposition.casefold() != "to" or not recipient:
        return GrammarProblem(lifecycle_messages.recipient_needed(about.quote_id))
    if len(recipient) > RECIPIENT_CHARACTERS_MAX:
        return GrammarProblem(lifecycle_messages.too_long("recipient", RECIPIENT_CHARACTERS_MAX))
    return ChangeRequest(about.quote_id, about.version, MarkSent(recipient))


def _compare(about: _About, where: _Where) -> Meaning:
    del where
    if not about.rest:
        return CompareRequest(about.quote_id, about.version)
    after = _VERSION.fullmatch(about.rest)
    if about.version is None or after is None:
        return _left_over(about, "compare")
    return CompareRequest(about.quote_id, about.version, int(after[1]))


def _explain(about: _About, where: _Where) -> Meaning:
    del where
    if not about.rest:
        return ExplainRequest(about.quote_id, about.version)
    line = _LINE.fullmatch(about.rest)
    return _left_over(about, "explain") if line is None else ExplainRequest(about.quote_id, about.version, int(line[1]))


_Reader = Callable[[_About, _Where], Meaning]
_READERS: Final[Mapping[str, _Reader]] = {
    "status": _status,
    "submit": _bare("submit", SubmitQuote()),
    "finalize": _bare("finalize", FinalizeQuote()),
    "accept": _bare("accept", AcceptQuote()),
    "revise": _revise,
    "add-line": _add_line,
    "discount": _discount,
    "audit": _audit,
    "clone": _clone,
    "compare": _compare,
    "explain": _explain,
    "simulate": _simulate,
    "cancel": _cancel,
    "lost": _lost,
    "sent": _sent,
}
