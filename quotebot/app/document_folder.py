"""Seller of an installation, and the folder of its own document templates, style sheet, clauses and choices.

`NAME.html` is a template, or a part when NAME begins with "_"; `style.css` is read after the shipped style sheet; `documents.toml`
holds the clauses of special terms by language, and the language and template of each region and customer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from adapters.pdf.renderer import LOGO_BYTES_MAX, TEMPLATE_BYTES_MAX, TEMPLATE_NAME, TEMPLATES_MAX, check_logo, template_names
from quotebot.domain.catalogue.reader import DocumentError, read_toml
from quotebot.domain.pricing.commercial_terms import LANGUAGES
from quotebot.domain.pricing.price_requests import TERM_NAME
from quotebot.settings import ConfigurationError
from quotebot.views.document import DocumentChoice, Seller, document_set, language_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from quotebot.domain.rules import Rules
    from quotebot.settings import Settings

RULES_FILE: Final = "documents.toml"
STYLE_FILE: Final = "style.css"
RULES_BYTES_MAX: Final = 256 << 10
TITLE_CHARACTERS_MAX: Final = 100
CLAUSE_CHARACTERS_MAX: Final = 4_000
_KEYS: Final = ("regions", "customers", "clauses")


@dataclass(frozen=True, slots=True)
class DocumentFolder:
    """Content of the folder; empty without one. Regions and customers are in lower case."""

    templates: Mapping[str, str] = field(default_factory=dict)
    style: str = ""
    clauses: Mapping[str, Mapping[str, tuple[str, str]]] = field(default_factory=dict)  # by special term and language
    regions: Mapping[str, DocumentChoice] = field(default_factory=dict)
    customers: Mapping[str, DocumentChoice] = field(default_factory=dict)


def load_seller(settings: Settings) -> Seller:
    """Return what documents show of the seller. Raises ConfigurationError for an unusable logo, locale, template or folder."""
    own = read_folder(settings.document_folder)
    known = template_names(own.templates)
    if settings.document_template not in known:
        reason = f"there is no template {settings.document_template!r}; there are {', '.join(known)}"
        raise ConfigurationError(f"The setting document_template cannot be used: {reason}. Nothing was started.")
    try:
        language_of(settings.document_locale)
    except ValueError as error:
        raise ConfigurationError(f"The setting document_locale cannot be used: {error}. Nothing was started.") from error
    return Seller(
        settings.seller_name,
        settings.seller_lines,
        accent=settings.seller_accent,
        footer=settings.seller_footer,
        terms=settings.seller_terms,
        logo=b"" if settings.seller_logo is None else _logo(settings.seller_logo),
        template=settings.document_template,
        locale=settings.document_locale,
        templates=own.templates,
        style=own.style,
        clauses=own.clauses,
        regions=own.regions,
        customers=own.customers,
    )


def with_documents(rules: Rules, settings: Settings) -> Rules:
    """Return the rules with the document set that approved versions keep. Raises ConfigurationError as `load_seller` does."""
    return replace(rules, documents=document_set(load_seller(settings)))


def read_folder(folder: Path | None) -> DocumentFolder:
    """Read the folder. Raises ConfigurationError with every problem found."""
    if folder is None:
        return DocumentFolder()
    try:
        if not folder.is_dir():
            raise ConfigurationError(_refused(folder, ["there is no such folder"]))
        problems: list[str] = []
        templates = dict(_templates(folder, problems))
        style = _text(folder / STYLE_FILE, TEMPLATE_BYTES_MAX, problems) if (folder / STYLE_FILE).exists() else ""
        rules = _rules(folder / RULES_FILE, problems)
    except OSError as error:
        raise ConfigurationError(_refused(folder, [f"it cannot be read ({error.strerror})"])) from error
    found = DocumentFolder(
        templates,
        style,
        _clauses(_table(rules, "clauses", problems), problems),
        _choices(rules, "regions", templates, problems),
        _choices(rules, "customers", templates, problems),
    )
    if problems:
        raise ConfigurationError(_refused(folder, problems))
    return found


def _templates(folder: Path, problems: list[str]) -> Iterator[tuple[str, str]]:
    paths = sorted(folder.glob("*.html"))
    if len(paths) > TEMPLATES_MAX:
        problems.append(f"it has {len(paths)} templates, at most {TEMPLATES_MAX} are read")
    for path in paths[:TEMPLATES_MAX]:
        if TEMPLATE_NAME.fullmatch(path.stem):
            yield path.stem, _text(path, TEMPLATE_BYTES_MAX, problems)
        else:
            problems.append(f"{path.name} is no name of a template; use lower-case letters, digits, - and _")


def _text(path: Path, most: int, problems: list[str]) -> str:
    if not path.is_file():  # rejects a pipe too: a read from it would never end
        problems.append(f"{path.name} is no file")
        return ""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        problems.append(f"{path.name} is over {most >> 10} KiB")
        return ""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        problems.append(f"{path.name} is not UTF-8")
        return ""


def _rules(path: Path, problems: list[str]) -> Mapping[str, Any]:
    """Return the tables of documents.toml; empty if there is none."""
    if not path.exists():
        return {}
    try:
        rules: Any = read_toml(_text(path, RULES_BYTES_MAX, problems))
    except DocumentError as error:
        problems.append(f"{RULES_FILE}: {error}")
        return {}
    problems.extend(f"{RULES_FILE}: {key} is unknown; it has {', '.join(_KEYS)}" for key in rules if key not in _KEYS)
    found: Mapping[str, Any] = rules
    return found


def _table(parent: Mapping[str, Any], key: str, problems: list[str]) -> Mapping[str, Any]:
    value = parent.get(key, {})
    if isinstance(value, dict):
        return value
    problems.append(f"{RULES_FILE}: {key} is no table")
    return {}


def _choices(rules: Mapping[str, Any], key: str, templates: Mapping[str, str], problems: list[str]) -> dict[str, DocumentChoice]:
    found = {}
    known = template_names(templates)
    for name, row in _table(rules, key, problems).items():
        values = row if isinstance(row, dict) else {}
        language, template = values.get("language"), values.get("template")
        if not values or set(values) - {"language", "template"}:
            problems.append(f"{RULES_FILE}: {key}.{name} has a language, a template, or both")
        if language not in (None, *LANGUAGES):
            problems.append(f"{RULES_FILE}: {key}.{name} has no language of {', '.join(LANGUAGES)}")
        elif template not in (None, *known):
            problems.append(f"{RULES_FILE}: {key}.{name} names a template that is not one of {', '.join(known)}")
        else:
            found[name.casefold()] = DocumentChoice(language, template)
    return found


def _clauses(table: Mapping[str, Any], problems: list[str]) -> dict[str, dict[str, tuple[str, str]]]:
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for term, languages in table.items():
        if not TERM_NAME.fullmatch(term) or not isinstance(languages, dict):
            problems.append(f"{RULES_FILE}: clauses.{term} is no special term with its languages")
            continue
        for language, clause in languages.items():
            title, text = (clause.get("title"), clause.get("text")) if isinstance(clause, dict) else (None, None)
            if language not in LANGUAGES:
                problems.append(f"{RULES_FILE}: clauses.{term}.{language} is in no language of {', '.join(LANGUAGES)}")
            elif not isinstance(title, str) or not isinstance(text, str) or not title.strip() or not text.strip():
                problems.append(f"{RULES_FILE}: clauses.{term}.{language} needs a title and a text")
            elif len(title) > TITLE_CHARACTERS_MAX or len(text) > CLAUSE_CHARACTERS_MAX:
                most = f"{TITLE_CHARACTERS_MAX} and {CLAUSE_CHARACTERS_MAX:,}"
                problems.append(f"{RULES_FILE}: clauses.{term}.{language} is longer than {most} characters")
            else:
                found.setdefault(term, {})[language] = (" ".join(title.split()), " ".join(text.split()))
    return found


def _refused(folder: Path, problems: list[str]) -> str:
    return (
        f"The document folder {folder} (QUOTEBOT_DOCUMENT_FOLDER) cannot be used: {'; '.join(problems)}. Nothing was started. "
        "`quotebot document lint` checks it."
    )


def _logo(path: Path) -> bytes:
    try:
        if not path.is_file():  # rejects a pipe too: a read from it would never end
            raise ConfigurationError(_refused_logo(path, "there is no such file"))
        with path.open("rb") as file:
            content = file.read(LOGO_BYTES_MAX + 1)
        check_logo(content)
    except OSError as error:
        raise ConfigurationError(_refused_logo(path, f"it cannot be read ({error.strerror})")) from error
    except ValueError as error:
        raise ConfigurationError(_refused_logo(path, str(error))) from error
    return content


def _refused_logo(path: Path, reason: str) -> str:
    return (
        f"The logo {path} (QUOTEBOT_SELLER_LOGO) cannot be used: {reason}. Nothing was started. Give a PNG file of at most "
        f"{LOGO_BYTES_MAX >> 10} KiB, or unset it: documents then carry the seller's name alone."
    )
