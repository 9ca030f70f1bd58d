"""Translations: every text that people read in Slack is marked, and each catalog has all of them.

A text is any literal of words in a module of VIEWED. It is marked by `_`, `ngettext` or `N_` of quotebot/domain/language.py.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po

from quotebot.app.installation import CATALOGS, speak
from quotebot.domain import language, money
from quotebot.domain.language import LANGUAGES, _, listed, ngettext
from quotebot.domain.quotes.quote import QuoteState, local_time, state_words
from quotebot.slack.delegation import EXAMPLE
from quotebot.views.help_messages import all_commands

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGE: Final = Path(language.__file__).parents[1]
TRANSLATED: Final = tuple(code for code in LANGUAGES if code != "en")
WORDS: Final = re.compile(r"[A-Za-z']{2,}[,.:;]? [A-Za-z{]|^[A-Z][a-z]{2,}")
FIELD: Final = re.compile(r"\{[a-z_]*\}")
CODE: Final = re.compile(r"`[^`]*`")
MARKS: Final = frozenset({"_", "N_", "ngettext"})
# Calls whose literals no user reads in Slack: log events, patterns, errors of the program itself, problems of a ruleset's file.
INTERNAL: Final = re.compile(
    r"re\.compile|log\.\w+|(Value|Type|Assertion|Lookup|Key|Runtime|NotImplemented)Error|fullmatch|sub|(row|table|entry)\.report"
)
VIEWED: Final = ("views", "slack", "handlers", "execution", "dispatch", "jobs", "domain")
# Modules whose texts stay as they are, and why.
UNTRANSLATED: Final = {
    "views/document": "documents have a language of their own",
    "views/document_texts": "documents have a language of their own",
    "domain/language": "it reads the catalogs",
    "domain/approvals/policy_document": "policies are read in the terminal",
    "domain/approvals/policy_sheet": "policies are read in the terminal",
    "domain/approvals/calendars": "policies are read in the terminal",
    "domain/approvals/reuse": "it tells whether something got worse; nobody reads what",
    "domain/catalogue/catalogue": "rulesets are read in the terminal",
    "domain/catalogue/reader": "rulesets are read in the terminal",
    "domain/catalogue/ruleset_sheets": "rulesets are read in the terminal",
    "domain/catalogue/rulesets": "rulesets are read in the terminal",
    "domain/catalogue/sheets": "rulesets are read in the terminal",
    "domain/extraction/inputs": "words that people type",
    "domain/extraction/vocabulary": "words that people type, and instructions of the language model",
    "domain/extraction/tokens": "words that people type",
    "domain/extraction/model_answers": "instructions of the language model",
    "jobs/repricing": "the check of stored prices is read in the terminal",
    "domain/pricing/taxes": "rulesets are read in the terminal",
    "domain/quotes/lifecycle": "errors of the program itself",
    "slack/connections": "its errors are read in the log",
    "jobs/rulesets": "rulesets are read in the terminal",
}
# Literals of words that no user reads in Slack, or that are the same in every language, by module.
NO_TEXTS: Final[dict[str, frozenset[str]]] = {
    "slack/grammar": frozenset({"Acme", "for {}: {}", "new {}"}),
    "slack/verbs": frozenset(
        {
            "cycle time",
            "too expensive",
            "they need SSO",
            "win loss",
            "/quote {}",
            "/quote simulate: 150 pro; discount 15%",
            "/quote simulate {}: 200 pro; term 24m",
            "/quote add-line {}: 10 sso",
            "/quote discount {}: 12%",
            "{}: add {} {}",
        }
    ),
    "domain/approvals/advice": frozenset({"Avoidance | None"}),
    "domain/approvals/policy": frozenset({"margin is under the floor"}),  # in texts of earlier builds, which were English
    "views/confirmations": frozenset({"`/quote {}`"}),
    "views/extraction_messages": frozenset({"for {}: {}{}{}{}{}", "; term {}m", "; discount {}%", "; currency {}"}),
    "views/help_messages": frozenset(field["text"].strip("`") for block in all_commands() for field in block["fields"][::2]),
    "slack/delegation": frozenset({EXAMPLE}),
    "slack/home_listeners": frozenset({"for Example Inc: 25 {}; term 12m; discount 5%", "simulate {}"}),
    "slack/queries": frozenset({"`quotebot resume {}`"}),
    "slack/receiver": frozenset({"Failed to run listener function (error: %s)"}),
    "slack/crm_menus": frozenset({"OpenOpportunity"}),
    "slack/form_input": frozenset({"Errors", "Filled", "Form"}),
    "views/builder": frozenset({"currency {}", "10 sso; terms net_60"}),
    "views/forms": frozenset({"Quotebot"}),
    "domain/pricing/commercial_terms": frozenset(
        {
            *("January", "February", "March", "April", "May", "June"),  # as people type them
            *("July", "August", "September", "October", "November", "December"),
            *("net {}", "on receipt"),  # as people type it
            "billing address",  # a dimension of the comparison with an approved version
        }
    ),
    "domain/pricing/engine": frozenset(
        {
            *("LineRequest", "PriceRequest", "PricedLine", "Pricing", "PricingProblem", "Step"),
            *("{}: {} is now {}", "it has no price any more: {}"),  # of `quotebot quote reprice`
        }
    ),
    "domain/pricing/formulas": frozenset(  # problems of a ruleset's file
        {
            "a formula has at most {} characters, not {}",
            "column {}: {} does not belong in a formula",
            "an operator or the end",
            "column {}: {} where {} is expected",
            "the end",
            "column {}: nested deeper than {}",
            "a number, a name or a parenthesis",
            "column {}: {} is no function; known are {}",
            "column {}: round takes a value and, written out, 0 to {} decimals: round(x, 2)",
        }
    ),
    "domain/pricing/price_books": frozenset({"is not in the catalogue", "is a bundle: its components have the prices"}),  # likewise
    "domain/pricing/priced": frozenset(
        {"Decimal", "Decimal | None", "tuple[tuple[str, str], ...]", "tuple[Step, ...]", "Rate | None", "PriceRequest | None"}
    ),
    "domain/pricing/term_clauses": frozenset(  # as people type it
        {
            *("bill to", "customer note", "terms {}", "segment {}", "billing {}", "valid until {}", " because {}"),
            *("on receipt", "due on receipt"),
        }
    ),
    "domain/schedule/schedules": frozenset({"day of the month"}),  # of an error of the program itself
    "views/waits": frozenset(
        {
            "quotebot {} {}",
            "quotebot dead resolve {} --delivered|--send-again --reason ...",
            "quotebot ops cancel {} --reason ...",
            "quotebot replay {}",
            "quotebot replay {} --status uncertain",
            "quotebot resume {}",
            "quotebot run",
            "quotebot why {}",
            "Row",
        }
    ),
    "views/dead_letter_card": frozenset({"`quotebot dead show {}`, `quotebot trace {}`"}),
    "views/operator_messages": frozenset(
        {
            "CRM status",
            "CRM amount",
            "CRM stage",
            "CRM PDF",
            "The card follows in the operators' channel.",
            "The card of dead letter {} follows in the operators' channel.",
        }
    ),
    "dispatch/slack_card": frozenset({"in doubt"}),
    "execution/membership": frozenset({"Value"}),
    "views/lifecycle_messages": frozenset(
        {
            "/quote revise {}: 200 pro, add 10 sso, remove support; term 24m; discount 12%",
            "request changes",
            "decide about",
            "change the discount of",
        }
    ),
    "views/approver_card": frozenset({"`/quote show {}`"}),
    "views/home": frozenset({"Quotebot"}),
    "views/ops_cards": frozenset({"Salesforce"}),
    "views/timeline": frozenset({"Quotebot"}),
    "views/card": frozenset({"in doubt"}),
    "views/pending_buttons": frozenset({"CRM status", "CRM amount", "CRM stage", "CRM PDF", "in doubt"}),
}


@functools.cache
def marked() -> dict[str, tuple[str, ...]]:
    """Return every marked text of the package: singular, or singular and plural, by the singular."""
    found: dict[str, tuple[str, ...]] = {}
    keywords = {"_": None, "N_": None, "ngettext": (1, 2)}
    for _file, _line, message, *_rest in extract_from_dir(PACKAGE, [("**.py", "python")], keywords=keywords):
        texts = (message,) if isinstance(message, str) else tuple(message)
        assert found.setdefault(texts[0], texts) == texts, f"with and without a plural: {texts[0]}"
    return found


def entries(code: str) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Return each entry of a language's catalogs: file name, English texts, translations."""
    found = []
    for file in sorted((CATALOGS / code).glob("*.po")):
        with file.open("rb") as stream:
            found += [
                (file.name, _tuple(entry.id), _tuple(entry.string))
                for entry in read_po(stream, locale=code)
                if entry.id and not entry.fuzzy
            ]
    return found


def _tuple(texts: str | Sequence[str] | None) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts or ())


@pytest.mark.parametrize("code", TRANSLATED)
def test_a_catalog_has_every_marked_text_and_no_other(code: str) -> None:
    there = {english[0]: english for _file, english, _texts in entries(code)}
    assert [text for text in marked() if text not in there] == []
    assert [text for text in there if text not in marked()] == []
    assert there == marked()


@pytest.mark.parametrize("code", TRANSLATED)
def test_a_text_is_translated_once(code: str) -> None:
    count = Counter(english[0] for _file, english, _texts in entries(code))
    assert [text for text, times in count.items() if times > 1] == []


@pytest.mark.parametrize("code", TRANSLATED)
def test_translations_keep_fields_commands_and_bold_text(code: str) -> None:
    wrong = [
        (file, source, text)
        for file, english, texts in entries(code)
        for source, text in zip_longest(english, texts, fillvalue="")
        if not text or _signs(source) != _signs(text)
    ]
    assert wrong == []


def _signs(text: str) -> tuple[Counter[str], Counter[str], int, int]:
    return Counter(FIELD.findall(text)), Counter(CODE.findall(text)), text.count("*"), text.count("\n")


def literals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every literal of words that is not marked, a docstring, or internal."""
    skipped = {id(child) for node in ast.walk(tree) if _is_internal(node) for child in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                skipped.add(id(first.value))
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            skipped |= {id(part) for part in node.values}
            yield from ((node.lineno, text) for text in _hidden(node))
            text = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if WORDS.search(text):
            yield node.lineno, text


def _hidden(node: ast.JoinedStr) -> Iterator[str]:
    """Yield the texts that are marked within an f-string, where the extraction does not find them."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in MARKS and isinstance(call.args[0], ast.Constant):
            yield str(call.args[0].value)


def _is_internal(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in MARKS or INTERNAL.fullmatch(ast.unparse(node.func)) is not None
    return isinstance(node, ast.Assert)


def viewed() -> dict[str, Path]:
    """Return the files of the modules whose texts people read, by their names below the package."""
    files = (file for folder in VIEWED for file in sorted((PACKAGE / folder).rglob("*.py")))
    named = {file.relative_to(PACKAGE).with_suffix("").as_posix(): file for file in files}
    return {name: file for name, file in named.items() if name not in UNTRANSLATED}


@pytest.mark.parametrize("name", sorted(viewed()))
def test_every_text_of_a_module_is_marked(name: str) -> None:
    bare = [
        (line, text) for line, text in literals(ast.parse(viewed()[name].read_text("utf-8"))) if text not in NO_TEXTS.get(name, ())
    ]
    assert bare == []


@pytest.mark.parametrize("name", sorted(viewed()))
def test_no_marked_literal_is_inside_an_f_string(name: str) -> None:
    """Python's tokenizer before 3.12 hides it from the extraction."""
    strings = (node for node in ast.walk(ast.parse(viewed()[name].read_text("utf-8"))) if isinstance(node, ast.JoinedStr))
    calls = (node for string in strings for node in ast.walk(string) if isinstance(node, ast.Call))
    assert [call.lineno for call in calls if ast.unparse(call.func) in MARKS and isinstance(call.args[0], ast.Constant)] == []


def test_a_language_is_spoken_after_use() -> None:
    assert (state_words(QuoteState.SENT), listed(["A", "B", "C"])) == ("sent to customer", "A, B and C")
    speak("de")
    assert (state_words(QuoteState.SENT), listed(["A", "B", "C"])) == ("an Kunden gesendet", "A, B und C")
    assert local_time(1_795_000_000_000) == "<!date^1795000000^{date_short_pretty} um {time}|18. Nov. 2026, 11:06 UTC>"


def test_numbers_are_written_as_the_language_writes_them() -> None:
    price = Decimal("17340.50")
    assert (money.format_amount(price, "USD"), money.format_amount(-price, "CAD")) == ("$17,340.50", "\u2212CAD\u00a017,340.50")
    assert (money.format_percent(Decimal("12.50")), language.grouped(1500)) == ("12.5%", "1,500")
    speak("de")
    assert (money.format_amount(price, "EUR"), money.format_amount(-price, "CAD")) == (
        "17.340,50\u00a0€",
        "\u221217.340,50\u00a0CAD",
    )
    assert (money.format_percent(Decimal("12.50")), language.grouped(1500)) == ("12,5\u00a0%", "1.500")
    assert money.rounded_price(price, "EUR") == "17,340.50"


def test_a_value_with_braces_is_never_interpreted() -> None:
    assert _("{day} at {time}", day="{time}", time="{0.__class__}") == "{time} at {0.__class__}"


def test_a_text_without_a_translation_is_shown_in_english() -> None:
    speak("de")
    unknown = "not in any catalog"
    assert _(unknown) == unknown
    assert ngettext("{n} pear", "{n} pears", 2000) == "2.000 pears"
