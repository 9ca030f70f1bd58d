"""Tests of the folder of an installation's own templates, clauses and choices of documents, and of their check."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from quotebot.app.document_folder import load_seller, read_folder
from quotebot.app.document_lint import missing_clauses, sample_documents
from quotebot.app.installation import load_rules
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.price_requests import TERMS_MAX
from quotebot.domain.quotes.quote import QuoteState
from quotebot.sandbox.world import World
from quotebot.settings import ConfigurationError, Settings
from quotebot.views.document import DocumentChoice, Seller, quote_document
from tests.quotebot.domain.ruleset_parts import ask, priced
from tests.quotebot.views.quote_examples import quote_in

if TYPE_CHECKING:
    from pathlib import Path

RULES = """
[regions.DE]
language = "de"
[customers."Acme"]
template = "framework"
[clauses.liability_cap.en]
title = "Limitation of liability"
text = "Liability is limited to\\nthe fees of a year."
[clauses.liability_cap.de]
title = "Haftung"
text = "Die Haftung ist begrenzt."
"""


def a_folder(path: Path, rules: str = RULES) -> Path:
    (path / "framework.html").write_text("<p/>")
    (path / "_closing.html").write_text("<p/>")
    (path / "style.css").write_text("p { color: red }")
    (path / "documents.toml").write_text(rules)
    return path


def test_templates_style_clauses_and_choices_are_read(tmp_path: Path) -> None:
    found = read_folder(a_folder(tmp_path))
    assert found.templates == {"framework": "<p/>", "_closing": "<p/>"}
    assert found.style == "p { color: red }"
    assert found.clauses["liability_cap"]["en"] == ("Limitation of liability", "Liability is limited to the fees of a year.")
    assert (found.regions, found.customers) == ({"de": DocumentChoice("de", None)}, {"acme": DocumentChoice(None, "framework")})


def test_without_a_folder_there_is_nothing_of_its_own() -> None:
    assert read_folder(None).templates == {}


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("[clauses", "documents.toml: "),
        ("[other]", "other is unknown"),
        ("clauses = 1", "clauses is no table"),
        ("[regions.de]\nlanguage = 'fr'", "regions.de has no language of en, de"),
        ("[regions.de]\ntemplate = '_closing'", "names a template that is not one of detailed, framework, summary"),
        ("[regions.de]\nfont = 'x'", "regions.de has a language, a template, or both"),
        ("[clauses.cap.fr]\ntitle = 'a'\ntext = 'b'", "clauses.cap.fr is in no language"),
        ("[clauses.cap.en]\ntitle = 'a'", "clauses.cap.en needs a title and a text"),
        (f"[clauses.cap.en]\ntitle = 'a'\ntext = '{'x' * 4001}'", "longer than 100 and 4,000 characters"),
        ("[clauses]\n'Not A Term' = 1", "is no special term"),
    ],
)
def test_what_documents_toml_cannot_say_is_refused_with_its_place(tmp_path: Path, rules: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_folder(a_folder(tmp_path, rules))
    assert said in str(refused.value)
    assert "QUOTEBOT_DOCUMENT_FOLDER" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("Upper.html", b"", "no name of a template"),
        ("big.html", b"x" * ((64 << 10) + 1), "big.html is over 64 KiB"),
        ("latin.html", b"\xe4", "latin.html is not UTF-8"),
        ("style.css", b"x" * ((64 << 10) + 1), "style.css is over 64 KiB"),
    ],
)
def test_template_that_is_too_large_or_unreadable_is_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=said):
        read_folder(tmp_path)


def test_missing_folder_and_unknown_default_template_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such folder"):
        load_seller(Settings(_env_file=None, document_folder=tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="no template 'fancy'; there are detailed, summary"):
        load_seller(Settings(_env_file=None, document_template="fancy"))
    with pytest.raises(ConfigurationError, match="no document in the language of fr_FR"):
        load_seller(Settings(_env_file=None, document_locale="fr_FR"))


@pytest.mark.parametrize(
    ("account", "region", "agreed", "chosen"),
    [
        ("Beta", None, CommercialTerms(), ("en", "detailed")),
        ("Beta", "de", CommercialTerms(), ("de", "detailed")),
        ("ACME", "de", CommercialTerms(), ("de", "framework")),
        ("Acme", None, CommercialTerms(language="de", template="summary"), ("de", "summary")),
    ],
)
def test_quote_decides_before_its_customer_and_its_region(
    tmp_path: Path, account: str, region: str | None, agreed: CommercialTerms, chosen: tuple[str, str]
) -> None:
    seller = load_seller(Settings(_env_file=None, document_folder=a_folder(tmp_path)))
    pricing = priced(ask(("pro", 1), term=12, region=region, commercial=agreed, terms=("liability_cap",)))
    document = quote_document(replace(quote_in(QuoteState.APPROVED), account=account, pricing=pricing), seller, "rep")
    assert (document.language, document.template) == chosen
    assert document.clauses[0][0] == {"en": "Limitation of liability", "de": "Haftung"}[chosen[0]]


def test_quote_with_an_unknown_template_has_no_document() -> None:
    pricing = priced(ask(("pro", 1), term=12, commercial=CommercialTerms(template="gone")))
    with pytest.raises(ValueError, match="there is no template 'gone'"):
        quote_document(replace(quote_in(QuoteState.APPROVED), pricing=pricing), Seller("Seller", ()), "rep")


def test_every_special_term_without_a_clause_is_named_in_each_language_used(tmp_path: Path) -> None:
    seller = load_seller(Settings(_env_file=None, document_folder=a_folder(tmp_path)))
    found = list(missing_clauses(seller, ("exclusivity", "liability_cap")))
    assert [each.split(" (", 1)[0] for each in found] == [
        "special term exclusivity has no clause in language en",
        "special term exclusivity has no clause in language de",
    ]


def test_samples_show_everything_that_a_document_may_hold() -> None:
    documents = list(sample_documents(Settings(_env_file=None), Seller("Seller", ()), ("liability_cap",)))
    assert [(document.language, bool(document.options)) for document in documents] == [
        ("en", True),
        ("en", False),
        ("de", True),
        ("de", False),
    ]
    full = documents[0]
    optional = {"logo", "templates", "style", "footer", "tax_rows", "seller_lines", "payment"}
    assert not [name for name in type(full).__slots__ if name not in optional and not getattr(full, name)]
    assert {line.kind for line in full.lines} == {"", "bundle", "part"}


def test_a_sample_has_no_more_special_terms_than_a_quote_may_have() -> None:
    terms = [f"term_{number:02}" for number in range(TERMS_MAX + 5)]
    full = next(sample_documents(Settings(_env_file=None), Seller("Seller", ()), terms))
    assert len(full.clauses) == TERMS_MAX


def test_sandbox_shows_a_seller_with_address_logo_and_every_clause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in World(tmp_path).seller_environment().items():
        monkeypatch.setenv(name, value)
    settings = Settings(_env_file=None)
    seller, policy = load_seller(settings), load_rules(settings).policy
    assert (len(seller.lines), seller.footer != "", seller.logo[:4]) == (3, True, b"\x89PNG")
    assert list(missing_clauses(seller, policy.legal_terms | policy.other_terms)) == []
