"""Special terms of a contract: check against the policy, and their display text."""

from __future__ import annotations

import difflib

from quotebot.domain.language import _
from quotebot.domain.pricing.price_requests import PricingProblem, clipped


def unknown_terms(terms: tuple[str, ...], known_terms: frozenset[str]) -> tuple[PricingProblem, ...]:
    """Return one problem for each term unknown to the policy: a misspelt term must not reach a customer."""
    known = sorted(known_terms)
    return tuple(
        PricingProblem("terms", _('"{term}" is no special term of the policy', term=clipped(term)), _instead(term, known))
        for term in terms
        if term not in known
    )


def term_words(term: str) -> str:
    """Return the id of a term in words: "liability cap" for "liability_cap". A policy may have names for it."""
    return term.replace("_", " ")


def _instead(term: str, known: list[str]) -> str:
    near = difflib.get_close_matches(term, known, n=1, cutoff=0.6)
    if near:
        return _("did you mean {name}?", name=near[0])
    return _("known are {names}", names=", ".join(known)) if known else _("leave it out: it knows none")
