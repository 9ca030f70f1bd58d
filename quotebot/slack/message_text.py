"""Interpretation of messages to the bot. No side effects: a click confirms each proposed quote or change.

A message in a quote's own thread is about that quote:

    @Quotebot status                          a verb without a number means the thread's quote
    @Quotebot revise: 200 pro                 shown as a simulation, with a button that applies it
    @Quotebot make it 200 pro, 12% discount   parsed by the fixed rules of domain/extraction, likewise

Words that qualify a number ("20 more", "without") are never interpreted: the bot asks what is meant, where it can with a button for
each meaning. Elsewhere a message that is no
command is a request for a new quote: a proposal if it is clear, otherwise a question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from quotebot.commands.payloads import ReviseQuote
from quotebot.domain import money
from quotebot.domain.extraction.extractor import Extraction, extract
from quotebot.domain.extraction.inputs import NO_INPUTS
from quotebot.domain.extraction.tokens import tokens
from quotebot.domain.extraction.vocabulary import english
from quotebot.domain.language import _, grouped, typed_number
from quotebot.domain.pricing.engine import request_of
from quotebot.domain.pricing.price_requests import Changes, LineChange, changed
from quotebot.domain.quotes.lifecycle import may_be_changed
from quotebot.domain.quotes.quote import QUOTE_ID, parse_quote_id
from quotebot.domain.quotes.versions import Simulation, difference, simulate
from quotebot.slack import grammar, verbs
from quotebot.slack.queries import preview
from quotebot.views import extraction_messages, lifecycle_messages
from quotebot.views.blocks import VALUE_CHARACTERS_MAX, Json, button, named_version, section, written
from quotebot.views.blocks import read as read_value
from quotebot.views.card import REVISE, button_value
from quotebot.views.confirmations import problem_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.quotes.quote import Quote
    from quotebot.domain.rules import Rules

APPLY: Final = "quote.apply_change"  # action_id
SHOWN_CHARACTERS_MAX: Final = 1_400  # of the differences; the remarks have as much, and a section holds 3,000
RESULT_LINES: Final = 2  # of the differences beside a choice: the total and the line
_ABOUT_NO_QUOTE: Final = {"help", "new", *verbs.ABOUT_NO_QUOTE}
# Not "discount": in a thread it is a change to show first.
_ABOUT_A_QUOTE: Final = {name for name, verb in verbs.VERBS.items() if verb not in _ABOUT_NO_QUOTE} - {"discount"}
_HOW: Final = re.compile(
    r"\b(?:add(?:ed|ing|itional)?|again|another|away|but|decrease|delete|double|down|drop|except|extra|fewer|half|if|increase|less"
    r"|lower|minus|more|no|not|one-off|or|plus|raise|reduce|removed?|than|triple|twice|unless|up|without)\b",
    re.IGNORECASE,
)

# Of those, words that add to a quantity or name the new one; and words that say nothing beside them.
_ADDING: Final = re.compile(r"add(?:ed|ing|itional)?|again|another|extra|increase|more|plus|raise|up", re.IGNORECASE)
_BESIDE: Final = re.compile(rf"{_ADDING.pattern}|by|edit|revise", re.IGNORECASE)

_LONE_PERCENT: Final = re.compile(
    r"(?:please |can (?:we|you) |could (?:we|you) |let'?s |just |now )*"
    r"(?:make|set|change|do|try|give|go|use)?(?: (?:it|this|that|them|us))?(?: (?:to|with|for|at))?(?: an?)? ?"
    r"([0-9]{1,3}(?:[.,][0-9]{1,2})?) ?(?:%|percent|pct|per cent)(?: (?:please|then|instead|now))*[ .!?]*",
    re.IGNORECASE,
)

# A verb about the thread's quote and nothing more, such as "please cancel this quote".
_VERB_ALONE: Final = re.compile(
    r"(?:please )?([a-z-]+)(?: (?:it|that|this|this one|(?:this|the) quote))?(?: (?:please|now))*[ .!]*", re.IGNORECASE
)

_NUMBER: Final = re.compile(rf"\b{QUOTE_ID.pattern}\b", re.IGNORECASE)
_ASKING: Final = re.compile(
    r"\?\s*$|\b(?:status|state|where|who|when|what|which|how|total|price|approv\w*|waiting|valid|expir\w*)\b", re.IGNORECASE
)

Answer = tuple[str, list[Json] | None]


@dataclass(frozen=True, slots=True)
class Applied:
    """Change that a button applies, with the quote and the version for which it was shown."""

    quote_id: str
    version: int
    payload: ReviseQuote


def with_number(text: str, quote: Quote) -> str:
    """Return the message with the quote's number inserted after a verb that lacks one; otherwise unchanged."""
    plain = grammar.normalised(text)
    alone = _VERB_ALONE.fullmatch(plain)
    if alone is not None and alone[1].casefold() in _ABOUT_A_QUOTE:
        return f"{alone[1]} {quote.quote_id}"
    verb, _blank, rest = plain.partition(" ")
    bare = verb.removesuffix(":")
    if bare.casefold() not in _ABOUT_A_QUOTE or parse_quote_id(rest.partition(" ")[0].partition(":")[0]) is not None:
        return text
    return f"{bare} {quote.quote_id}{':' if bare != verb else ''} {rest}".strip()


def proposed(text: str, quote: Quote, rules: Rules, now: int) -> Answer | None:
    """Return the simulated change with a button that applies it, or why there is none; None if no change is requested.

    `now` is Unix milliseconds.
    """
    asked = verbs.parse(text, quote.channel, rules.catalogue, grammar.MESSAGE_CHARACTERS_MAX)
    if isinstance(asked, verbs.ChangeRequest):
        same = asked.quote_id == quote.quote_id and asked.version in (None, quote.version)
        return _shown(quote, asked.payload, "", rules, now) if same and isinstance(asked.payload, ReviseQuote) else None
    if not isinstance(asked, grammar.GrammarProblem) or len(text) > grammar.MESSAGE_CHARACTERS_MAX:
        return None
    plain = grammar.normalised(text.replace("\n", " ; "))
    changes = grammar.read_changes(plain, rules.catalogue)
    if isinstance(changes, Changes):
        return _shown(quote, ReviseQuote(changes=changes), "", rules, now)
    plain = plain.replace(quote.quote_id, "").replace(quote.quote_id.lower(), "").strip()
    found = _of_this_quote(plain, quote, rules.catalogue)
    return None if found is None else _of_free_text(plain, found, quote, rules, now)


def _of_free_text(plain: str, found: Extraction, quote: Quote, rules: Rules, now: int) -> Answer:
    """Return the change extracted from free text, or the question that must be answered first."""
    percent = _LONE_PERCENT.fullmatch(plain)
    discount = None if percent is None else typed_number(percent[1])
    if discount is not None:
        change = ReviseQuote(changes=Changes(discount_percent=discount))
        labels = _("Set discount to {percent}", percent=money.format_percent(discount)), _("Something else")
        return _shown(quote, change, "", rules, now, labels)
    words = {token.text for token in tokens(plain) if token.kind == "word" and _HOW.fullmatch(english(token.text))}
    unsure = sorted(words | {word.casefold() for word in _HOW.findall(plain)})
    asked = _quantity_or_addition(plain, found, unsure)
    if asked is not None:
        return _which_quantity(quote, *asked, rules, now, adds=bool(unsure))
    if unsure:
        return lifecycle_messages.how_is_it_meant(tuple(unsure)), None
    if found.open_questions:
        return extraction_messages.question(found), None
    return _shown(quote, ReviseQuote(changes=_changes(found)), extraction_messages.beside(found.remarks), rules, now)


def _quantity_or_addition(plain: str, found: Extraction, unsure: Sequence[str]) -> tuple[str, int] | None:
    """Return sku and number of a message that says nothing else, where the number may be the new quantity or an addition."""
    skus = {sku for sku, _words in found.named}
    numbers = [token for token in tokens(plain) if token.kind == "number"]
    said = (found.term_months, found.discount_percent, found.currency, found.inputs) != (None, None, None, NO_INPUTS)
    if len(skus) != 1 or len(numbers) != 1 or said or not all(_ADDING.fullmatch(english(word)) for word in unsure):
        return None
    (sku, words), number = found.named[0], numbers[0]
    typed, value = plain[number.start : number.end], number.value
    if not all(
        remark.code == "no_quantity"
        or (remark.code == "number" and remark.excerpt == typed)
        or (remark.code in ("word", "unclaimed") and _BESIDE.fullmatch(english(remark.excerpt.casefold())))
        for remark in found.remarks
    ):
        return None
    if value is None or value != value.to_integral_value() or value <= 0:
        return None
    bare = re.search(rf"{re.escape(words)} +(?:(?:to|by) +|\+ ?)?{re.escape(typed)}", plain, re.IGNORECASE)
    return (sku, int(value)) if unsure or bare else None


def _which_quantity(quote: Quote, sku: str, number: int, rules: Rules, now: int, *, adds: bool) -> Answer:
    """Ask whether the number is the new quantity or an addition: a button for each, beside its result.

    `adds`: the message has a word that adds. If only one of the two is possible, or both are the same, that change is shown.
    """
    labels = lifecycle_messages.quantity_labels(rules.catalogue.products[sku].name, number)
    changes = (LineChange("set", sku, number), LineChange("add", sku, number))
    payloads = [ReviseQuote(changes=Changes((change,))) for change in changes]
    found = [_simulated(quote, payload, rules, now) for payload in payloads]
    possible = [each for each in found if isinstance(each, Simulation)]
    if len(possible) < len(found) or possible[0].pricing == possible[1].pricing:
        return _shown(quote, payloads[adds], "", rules, now)
    head = lifecycle_messages.quantity_or_addition()
    said, blocks = [head], [section(head)]
    for label, payload, each in zip(labels, payloads, possible, strict=True):
        result = lifecycle_messages.differences(quote.pricing, each.pricing, rules.policy).splitlines()[:RESULT_LINES]
        text = "\n".join((*result, preview(each.decision)))
        said.append(f"*{label}*\n{text}")
        accessory = button(APPLY, label, _value(quote, payload))
        blocks.append({**section(text), "block_id": f"thread.choice.{len(blocks)}", "accessory": accessory})
    return "\n".join(said), blocks


def asks_about(text: str, quote: Quote | None) -> verbs.StatusRequest | None:
    """Return the request to show the quote that a message names anywhere, or asks about in the thread of `quote`; else None."""
    named = _NUMBER.search(text)
    if named is not None:
        return verbs.StatusRequest(named[0].upper())
    return verbs.StatusRequest(quote.quote_id) if quote is not None and _ASKING.search(text) else None


def parse_applied(text: str) -> Applied | None:
    """Return the value of a button, or None if this build did not write it."""
    fields = read_value(text, {"q", "n", "c"})
    about = None if fields is None else named_version(fields["q"], fields["n"])
    if fields is None or about is None or not isinstance(fields["c"], dict):
        return None
    try:
        return Applied(*about, ReviseQuote.parse(fields["c"]))
    except (KeyError, TypeError, ValueError, AttributeError, InvalidOperation):
        return None


def _of_this_quote(plain: str, quote: Quote, catalogue: Catalogue) -> Extraction | None:
    """Return the extracted change of the thread's quote; None if there is none, or for another quote or customer."""
    found = extract(plain, catalogue)
    another = found.account is not None and found.account.casefold() != quote.account.casefold()
    if another or any(remark.code == "existing" for remark in found.remarks):
        return None
    needless = {"no_account", "no_lines", "term", "account"}  # a change keeps what it does not name
    found = replace(found, remarks=tuple(remark for remark in found.remarks if remark.code not in needless))
    said = (found.term_months, found.discount_percent, found.currency, found.inputs) != (None, None, None, NO_INPUTS)
    return found if found.lines or said or found.open_questions else None


def _changes(found: Extraction) -> Changes:
    lines = tuple(
        LineChange(
            "set",
            line.sku,
            line.quantity,
            line.discount_percent or None,
            line.attributes or None,
            line.agreed_price,
            line.price_reason,
            optional=True if line.optional else None,
        )
        for line in found.lines
    )
    inputs = found.inputs
    return Changes(
        lines,
        found.term_months,
        found.discount_percent,
        found.currency,
        region=inputs.region,
        with_tax=inputs.with_tax,
        terms=inputs.terms,
        segment=inputs.segment,
        billing_frequency=inputs.billing_frequency,
        commercial=inputs.commercial,
    )


def _shown(
    quote: Quote, payload: ReviseQuote, beside: str, rules: Rules, now: int, labels: tuple[str, str] | None = None
) -> Answer:
    """Return the simulated change, or why it cannot be made. `labels` are those of the two buttons: apply, and edit."""
    found = _simulated(quote, payload, rules, now)
    if isinstance(found, str):
        return found, None
    differences = _cut(lifecycle_messages.differences(quote.pricing, found.pricing, rules.policy))
    said = lifecycle_messages.change_proposed(quote, differences, preview(found.decision))
    text = f"{said}\n{beside}" if beside else said
    value = _value(quote, payload)
    if len(value) > VALUE_CHARACTERS_MAX:
        return f"{text}\n{lifecycle_messages.too_long_for_a_button(quote.quote_id)}", None
    apply, edit = labels or (_("Save as v{version}", version=quote.version + 1), _("Edit"))
    row = [button(APPLY, apply, value, style="primary"), button(REVISE, edit, button_value(quote))]
    return text, [section(text), {"type": "actions", "block_id": "thread.proposal", "elements": row}]


def _simulated(quote: Quote, payload: ReviseQuote, rules: Rules, now: int) -> Simulation | str:
    """Return the simulated change, or the reply that says why it cannot be made."""
    if not may_be_changed(quote.state):
        return lifecycle_messages.wrong_state(quote, "revise")
    request = payload.request or changed(request_of(quote.pricing), payload.changes or Changes())
    found = (
        request
        if isinstance(request, tuple)
        else simulate(request, rules.ruleset, rules.policy, now, quote.account, rules.segments)
    )
    if not isinstance(found, Simulation):
        return lifecycle_messages.not_revisable(quote, found)
    return found if difference(quote.pricing, found.pricing) else lifecycle_messages.nothing_to_change(quote)


def _value(quote: Quote, payload: ReviseQuote) -> str:
    """Return the value of a button that applies a change of the quote; `parse_applied` reads it."""
    return written({"q": quote.quote_id, "n": quote.version, "c": payload.canonical()})


def apply_blocks(said: str, quote: Quote, changes: Changes, rules: Rules, now: int) -> list[Json] | None:
    """Return the answer about a simulated change of a quote, with a button that makes it; None if it cannot be made."""
    payload = ReviseQuote(changes=changes)
    value = _value(quote, payload)
    if isinstance(_simulated(quote, payload, rules, now), str) or len(value) > VALUE_CHARACTERS_MAX:
        return None
    apply = button(APPLY, _("Apply to {quote}", quote=quote.quote_id), value, style="primary")
    return [section(said), {"type": "actions", "block_id": "quote.simulated", "elements": [apply]}]


def _cut(differences: str) -> str:
    """Return the whole lines that fit; the first one is the total."""
    lines = differences.splitlines()
    kept: list[str] = []
    room = SHOWN_CHARACTERS_MAX
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            return "\n".join((*kept, _("• and {n} more", n=grouped(len(lines) - len(kept)))))
        kept.append(line)
    return differences


def read(text: str, catalogue: Catalogue) -> Extraction | None:
    """Extract a request from a message that the grammar refused; None if the grammar's own answer is better.

    That is the case if the message is too long, yields no line, is about an existing quote, or is written as a command that was
    not fully understood.
    """
    if len(text) > grammar.MESSAGE_CHARACTERS_MAX:
        return None
    found = extract(on_one_line(text), catalogue)
    if not found.lines or any(remark.code == "existing" for remark in found.remarks) or _is_a_command(text):
        return None
    return found


def is_for_a_model(text: str, catalogue: Catalogue) -> bool:
    """Return whether a model might understand a message that the grammar refused better than fixed rules do.

    False for a message that fixed rules understand fully, that is too long or written as a command, that is about an existing
    quote, or that contains no number: without a number no line could be proposed, whatever a model returns.
    """
    if len(text) > grammar.MESSAGE_CHARACTERS_MAX or _is_a_command(text):
        return False
    plain = on_one_line(text)
    found = extract(plain, catalogue)
    codes = {remark.code for remark in found.remarks}
    return "existing" not in codes and not codes <= {"term"} and any(token.value is not None for token in tokens(plain))


def on_one_line(text: str) -> str:
    """Return a message in normal form on one line; a line break becomes a semicolon, because both separate clauses."""
    return grammar.normalised(text.replace("\n", " ; "))


def _is_a_command(text: str) -> bool:
    typed = verbs.typed_creation(text)
    return typed is not None and typed.casefold().startswith("for ") and ":" in typed


def asked_back(found: Extraction) -> tuple[str, list[dict[str, Any]] | None]:
    """Return the question, as text and as blocks with a button to a form that holds the extracted values."""
    said = extraction_messages.question(found)
    return said, problem_blocks(said, extraction_messages.written(found))
