"""`quotebot document`: preview and check of the customer's document, with the templates and clauses of this installation.

A preview uses the files as they are now. An approved quote keeps the templates, clauses and branding of the time of its approval.
"""

from __future__ import annotations

import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from adapters.failures import AdapterError
from adapters.pdf.renderer import TEMPLATES, PdfRenderer, packaged_template
from quotebot.app.document_folder import load_seller
from quotebot.app.document_lint import lint as find_problems
from quotebot.app.document_lint import sample_quote
from quotebot.cli import exits, tables, terminal
from quotebot.execution.membership import known_person
from quotebot.settings import load_settings
from quotebot.store import quotes as store
from quotebot.views.document import file_name, quote_document, with_term_names

if TYPE_CHECKING:
    from ledger.database import Tx
    from quotebot.domain.quotes.quote import Quote

app = App(name="document", help="See and check the document that customers get.")

Json = Annotated[bool, Parameter(name="--json", negative="")]
PARTS = ("_head", "_opening", "_closing")


@app.command
async def preview(
    quote: str = "sample",
    *,
    template: str | None = None,
    language: Literal["en", "de"] | None = None,
    output: Path | None = None,
    open_it: Annotated[bool, Parameter(name="--open", negative="")] = False,
    json_output: Json = False,
) -> int:
    """Render the document of a quote into a file, approved or not. Nothing is stored in the ledger, and nothing is sent.

    Parameters
    ----------
    quote
        The quote, e.g. Q-2026-0042, in its newest version; without it a sample.
    template
        The template to use in place of the quote's.
    language
        The language to use in place of the quote's.
    output
        The file to write; without it one in the current folder, named after the quote.
    open_it
        Show it in the viewer of this machine.
    json_output
        Print JSON.
    """
    read = await _quote(quote)
    if isinstance(read, int):
        return read
    found, contact = read
    settings = load_settings()
    try:
        seller = with_term_names(load_seller(settings), (await terminal.active_rules()).policy.term_names)
        document = quote_document(_in(found, language), seller, found.requester_name, contact)
        document = document if template is None else replace(document, template=template)
    except ValueError as error:
        return exits.complain(f"{_sentence(error)} Nothing was written.", exits.USAGE)
    renderer = PdfRenderer()
    try:
        rendered = await renderer.render(document)
    except AdapterError as error:
        return exits.complain(str(error), exits.REFUSED)
    finally:
        await renderer.close()
    path = output or Path(file_name(found))
    try:
        path.write_bytes(rendered.content)
    except OSError as error:
        return exits.complain(f"{path} cannot be written ({error.strerror}).", exits.UNAVAILABLE)
    if json_output:
        tables.print_json({"file": str(path), "pages": rendered.pages, "sha256": rendered.sha256, "template": document.template})
    else:
        print(f"{path}: {rendered.pages} {'page' if rendered.pages == 1 else 'pages'}")
    if open_it:
        webbrowser.open(path.absolute().as_uri())
    return exits.OK


@app.command
async def lint(*, json_output: Json = False) -> int:
    """Render every template in every language with sample quotes, and name unknown fields and missing clauses.

    Exit status 3 if something is to be mended, 78 if the folder cannot be read.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    settings = load_settings()
    seller, policy = load_seller(settings), (await terminal.active_rules()).policy
    renderer = PdfRenderer()
    try:
        problems = await find_problems(settings, seller, policy.known_terms, renderer)
    finally:
        await renderer.close()
    if json_output:
        tables.print_json({"problems": list(problems)})
    else:
        print("\n".join(problems) or "Every template renders in every language, and the document folder has all clauses.")
    return exits.REFUSED if problems else exits.OK


@app.command
def template(name: str = "detailed", *, json_output: Json = False) -> int:
    """Print a shipped template or part, as a start for one of your own: detailed, summary, _head, _opening, _closing.

    Parameters
    ----------
    name
        Which.
    json_output
        Print JSON.
    """
    if name not in (*TEMPLATES, *PARTS):
        return exits.complain(f"There is no {name}; there are {', '.join((*TEMPLATES, *PARTS))}.", exits.USAGE)
    source = packaged_template(name)
    if json_output:
        tables.print_json({"name": name, "source": source})
    else:
        print(source, end="")
    return exits.OK


async def _quote(named: str) -> tuple[Quote, tuple[str, ...]] | int:
    """Return a quote and how its requester can be reached, or the exit status."""
    if named == "sample":
        return sample_quote(load_settings()), ()
    try:
        quote_id = terminal.checked_quote(named)
    except ValueError as error:
        return exits.complain(f"{error}.", exits.USAGE)
    async with terminal.existing_ledger() as ledger:
        found = await ledger.database.read(lambda tx: _with_contact(tx, str(quote_id)))
    return found or exits.complain(f"There is no quote {quote_id}.", exits.NOTHING_MATCHED)


def _with_contact(tx: Tx, quote_id: str) -> tuple[Quote, tuple[str, ...]] | None:
    """Return a quote with the contact that its approval pinned; before that, the one of the requester's profile."""
    quote = store.load(tx, quote_id)
    if quote is None:
        return None
    contact, who = store.contact_of(tx, quote_id, quote.version), known_person(tx, quote.team_id, quote.requester)
    profile = () if who is None else tuple(filter(None, (who.email, who.phone)))
    return quote, contact if store.document_set_of(tx, quote_id, quote.version) is not None else profile


def _sentence(error: ValueError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _in(quote: Quote, language: str | None) -> Quote:
    """Return the quote with a document in this language, or in its own."""
    request = quote.pricing.request
    if language is None or request is None:
        return quote
    agreed = replace(request.commercial, language=language)
    return replace(quote, pricing=replace(quote.pricing, request=replace(request, commercial=agreed)))
