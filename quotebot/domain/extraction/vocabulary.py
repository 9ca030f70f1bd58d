"""Vocabulary of quote requests for the extractor, in English and, by its English words, in the installation's language.

A word in no table is reported as unclaimed.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Protocol

from quotebot.domain import language

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from quotebot.domain.extraction.tokens import Token

TERM_MONTHS_DEFAULT: Final = 12
TERM_MONTHS_LIMIT: Final = 1_000


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


UNITS: Final = _words("seat seats licence licences license licenses user users unit units copy copies")
TERM_MONTHS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("m", "mo", "mos", "mth", "mths", "month", "months"), 1),
    **dict.fromkeys(("quarter", "quarters"), 3),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), 12),
}
SHORT_TERMS: Final = _words("m y")
ARTICLE_TERMS: Final = _words("year month quarter")
CURRENCIES: Final[Mapping[str, str]] = {
    **{
        code.casefold(): code
        for code in [
            "USD",
            "EUR",
            "GBP",
            "CHF",
            "JPY",
            "AUD",
            "NZD",
            "SEK",
            "NOK",
            "DKK",
            "PLN",
            "CZK",
            "KWD",
            "INR",
            "CNY",
            "BRL",
            "SGD",
            "HKD",
        ]
    },
    **dict.fromkeys(("dollar", "dollars", "bucks"), "USD"),
    **dict.fromkeys(("euro", "euros"), "EUR"),
    **dict.fromkeys(("pound", "pounds", "sterling"), "GBP"),
    **dict.fromkeys(("franc", "francs"), "CHF"),
    "yen": "JPY",
}
SIGNS: Final[Mapping[str, str]] = {"$": "USD", "\u20ac": "EUR", "\u00a3": "GBP", "\u00a5": "JPY"}
AMBIGUOUS_CURRENCIES: Final = _words("$ \u00a5 dollar dollars bucks pound pounds franc francs")
MAGNITUDES: Final = _words("k m mio bn")
PERCENT: Final = _words("percent pct")
DISCOUNT: Final = _words("off discount discounts discounted rebate less")
DISCOUNT_LINKS: Final = _words("of a at is by")
# A percentage beside one of these, in any language, is no discount: "USt. 19 %", "Skonto: 2 %", "deposit 30%".
NO_DISCOUNT: Final = _words(
    "mwst ust mehrwertsteuer umsatzsteuer steuer steuern steuersatz satz vat tax taxes gst skonto anzahlung deposit"
)
PERCENT_LINKS: Final = _words("with at and for")  # beside a percentage that stands alone
OPTIONAL: Final = _words("optional optionally")
COUNT_LINKS: Final = _words("x of")
JOINS: Final = _words("and plus with also a an the & optional optionally")  # before a further product

# kind of a word with a known meaning; a word in several tables has the kind of the last
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(PERCENT, "percent"),
    **dict.fromkeys(DISCOUNT, "discount"),
    **dict.fromkeys(CURRENCIES, "currency"),
    **dict.fromkeys(TERM_MONTHS, "term_unit"),
    **dict.fromkeys(UNITS, "unit"),
}

ACCOUNT_SURE: Final = _words("for customer client account company")
ACCOUNT_LEADS: Final = ACCOUNT_SURE | _words("to quote offer give send")
ACCOUNT_VERBS: Final = _words("needs need wants want requires require asks asked has would is")
DASHES: Final = frozenset("-\u2013\u2014")  # "Acme - 10 pro"
NAME_LINKS: Final = _words("& of the de van von der du do da la")
NO_NAMES: Final = _words(
    "a an i we us you me my our your their his her them it this that these those the each every all everyone"
    " please can could need needs want wants quote quotes offer hi hello hey thanks thx customer client account company"
    " january february march april may june july august september october november december"
    " monday tuesday wednesday thursday friday saturday sunday q1 q2 q3 q4 today tomorrow now asap approval review"
    " term terms discount currency total note notes subject budget deal"
    " free upfront signature confirmation evaluation production testing use starters now"
)

FILLERS: Final = _words(
    "please can could you we i us they need needs want wants would like to a an the get give make create new quote quotes"
    " quotation offer proposal for with and at in of on plus add also include including them it their is are be our me my"
    " hi hello hey thanks thank thx customer client account company send draft prepare start term terms contract subscription"
    " from as this that let's lets has have do all total asks asking ask asked looking requires require i'd we'd i'm requested"
    " package plan plans x"
)

# These words may change the meaning of the numbers, so each is a doubt.
UNCLEAR: Final = _words(
    "not no none nothing never don't dont doesn't doesnt won't isn't can't without except excluding exclude remove minus cancel"
    " actually instead rather scratch sorry oops wait correction correct change or either maybe perhaps possibly about around"
    " approximately approx roughly circa ca up max maximum min minimum least most between under over below above fewer more"
    " than another additional extra each every both double half twice triple couple few several some many if unless versus vs"
    " compare replace swap upgrade downgrade renew renewal existing current currently was were previously last was used"
    " day days week weeks quantity qty hundreds thousands million billion hundred thousand dozen dozens k"
    " forget ignore disregard pretend override"
)

# Words of other languages, case folded, by the English word that is read instead. What could add, remove or compare is unclear.
_GERMAN: Final[Mapping[str, str]] = {
    german: english
    for english, words in {
        # of a request
        "month": "monat",
        "months": "monate monaten",
        "quarter": "quartal",
        "quarters": "quartale quartalen",
        "year": "jahr",
        "years": "jahre jahren",
        "percent": "prozent",
        "discount": "rabatt rabatte nachlass preisnachlass",
        "license": "lizenz",
        "licenses": "lizenzen",
        "seats": "platz plätze plätzen arbeitsplätze arbeitsplätzen",
        "users": "nutzer nutzern benutzer benutzern anwender anwendern",
        "units": "stück einheit einheiten",
        "pounds": "pfund",
        "francs": "franken",
        "for": "für fuer",
        "customer": "kunde kunden",
        "company": "firma unternehmen",
        "quote": "angebot angebots",
        "term": "laufzeit vertragslaufzeit",
        "contract": "vertrag",
        "subscription": "abo abonnement",
        # between them
        "and": "und sowie",
        "also": "auch außerdem",
        "with": "mit",
        "including": "inklusive inkl einschließlich",
        "of": "von vom",
        "at": "bei beim",
        "on": "auf am",
        "to": "zu zum zur",
        "in": "im",
        "from": "ab",
        "x": "mal",
        "a": "ein eine einen einem einer",
        "the": "der die das den dem des",
        "this": "dieser diese dieses diesen diesem",
        "all": "alle alles allem",
        "total": "gesamt insgesamt",
        "please": "bitte",
        "hello": "hallo guten",
        "thanks": "danke vielen",
        "i": "ich",
        "we": "wir",
        "us": "uns",
        "me": "mir mich",
        "our": "unser unsere unseren",
        "you": "du sie ihr euch ihnen",
        "it": "es",
        "is": "ist",
        "has": "hat",
        "have": "haben habe",
        "like": "gern gerne",
        "can": "kann können könnt könnte könnten",
        "needs": "braucht benötigt",
        "need": "brauche brauchen benötige benötigen",
        "wants": "möchte will hätte",
        "want": "möchten wollen hätten",
        "make": "mach mache machen macht",
        "create": "erstelle erstellen erstellt erzeuge",
        "send": "schick schicke schicken sende senden",
        "give": "gib geben",
        "new": "neu neue neues neuen",
        # unclear
        "not": "nicht",
        "no": "kein keine keinen keiner nein",
        "without": "ohne",
        "except": "außer ausgenommen",
        "remove": "entferne entfernen streiche streichen lösche löschen raus weg",
        "minus": "abzüglich abzgl senke senken reduziere reduzieren verringere verringern kürze kürzen",
        "cancel": "storniere stornieren storno",
        "instead": "statt stattdessen anstatt anstelle sondern",
        "rather": "lieber",
        "actually": "eigentlich doch",
        "correction": "korrektur",
        "change": "ändere ändern",
        "replace": "ersetze ersetzen",
        "swap": "tausche tauschen wechsle wechseln",
        "or": "oder",
        "maybe": "vielleicht eventuell evtl",
        "about": "etwa ungefähr rund zirka knapp fast",
        "up": "bis",
        "max": "maximal höchstens",
        "min": "mindestens minimal",
        "between": "zwischen",
        "over": "über",
        "under": "unter",
        "more": "mehr",
        "fewer": "weniger",
        "another": "noch nochmal weitere weiterer weiteren",
        "additional": "zusätzlich zusätzliche zusätzlichen zuzüglich zzgl extra dazu hinzu hinzufügen drauf"
        " ergänze ergänzen erhöhe erhöhen stocke aufstocken",
        "each": "je jeweils",
        "double": "doppelt doppelte doppelten verdopple verdoppeln",
        "half": "halb halbe halben halbes hälfte",
        "few": "paar",
        "several": "mehrere mehreren",
        "some": "einige einigen",
        "many": "viele",
        "if": "falls wenn",
        "than": "als",
        "renewal": "verlängerung verlängern verlängere",
        "existing": "bestehend bestehende bestehenden bestehendes",
        "current": "aktuell aktuelle aktuellen derzeit bisher bisherige bisherigen",
        "was": "war wurde",
        "were": "waren wurden",
        "days": "tage tagen",
        "week": "woche",
        "weeks": "wochen",
        "dozen": "dutzend",
        "hundred": "hundert",
        "thousand": "tausend tsd",
        "million": "million millionen",
        "ignore": "ignoriere ignorieren vergiss",
        # no customer's name
        "january": "januar",
        "february": "februar",
        "march": "märz",
        "may": "mai",
        "june": "juni",
        "july": "juli",
        "october": "oktober",
        "december": "dezember",
        "monday": "montag",
        "tuesday": "dienstag",
        "wednesday": "mittwoch",
        "thursday": "donnerstag",
        "friday": "freitag",
        "today": "heute",
        "tomorrow": "morgen",
        "now": "jetzt sofort",
        "approval": "freigabe",
    }.items()
    for german in words.casefold().split()
}
# "per", by language beside English: also a product's name, unless a word follows that no name is followed by.
_PER: Final[Mapping[str, str]] = {"de": "pro"}
_SINGULARS: Final = _words("nutzer benutzer anwender platz stück einheit")  # of units that are read as a plural
_AFTER_NAME: Final = (
    DISCOUNT
    | OPTIONAL
    | _words(
        "for and also with including plus of at on to in from x a an the please pro is has needs wants à or without except not no"
        " minus instead up as than over under total each term"
    )
)
_GERMAN_ONES: Final = ("ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun")
_GERMAN_TENS: Final = ("zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
_GERMAN_NUMBERS: Final[Mapping[str, int]] = {
    word.casefold(): value
    for word, value in (
        *((one, value) for value, one in enumerate(_GERMAN_ONES, start=1) if value > 1),
        *(("zehn", 10), ("elf", 11), ("zwölf", 12), ("dreizehn", 13), ("vierzehn", 14), ("fünfzehn", 15)),
        *(("sechzehn", 16), ("siebzehn", 17), ("achtzehn", 18), ("neunzehn", 19)),
        *((ten, value * 10) for value, ten in enumerate(_GERMAN_TENS, start=2)),
        *(
            (f"{one}und{ten}", value * 10 + unit)
            for value, ten in enumerate(_GERMAN_TENS, start=2)
            for unit, one in enumerate(_GERMAN_ONES, start=1)
        ),
    )
}
WORDS: Final[Mapping[str, Mapping[str, str]]] = {"de": _GERMAN}
NUMBERS: Final[Mapping[str, Mapping[str, int]]] = {"de": _GERMAN_NUMBERS}
DECIMALS: Final[Mapping[str, re.Pattern[str]]] = {"de": re.compile(r"[0-9]{1,3},[0-9]{1,2}")}  # too short a group for thousands


def english(word: str) -> str:
    """Return the English word for a case-folded word of the installation's language; every other word unchanged."""
    return WORDS.get(language.current(), {}).get(word, word)


def either(word: str) -> str:
    """Return the pattern of an English word and of the words of the installation's language that are read as it."""
    own = (each for each, meant in WORDS.get(language.current(), {}).items() if meant == word)
    return f"(?:{'|'.join((word, *own))})"


def means_per(word: str) -> bool:
    """Return whether a word can mean "per"."""
    return word in ("per", _PER.get(language.current()))


def is_per(word: str, following: str) -> bool:
    """Return whether a word means "per" before the following one: "pro Monat", but neither "pro für" nor "pro Lizenzen".

    An English time is no share of a quantity: "10 pro per month" are ten.
    """
    meant = english(following)
    if word == "per":
        return meant not in TERM_MONTHS and meant != "annum"
    plural = meant in UNITS and meant.endswith("s") and following not in _SINGULARS
    return word == _PER.get(language.current()) and not plural and meant not in _AFTER_NAME and number(following) is None


class _Part(Protocol):
    """Part of a message: its kind, such as "break" or "word", and its text in lower case."""

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str: ...


def is_no_discount(found: Sequence[_Part], first: int, last: int) -> bool:
    """Return whether the word nearest to a percentage, before or after it, calls it a tax or a payment."""
    for index, step in ((first - 1, -1), (last + 1, 1)):
        at = index
        while 0 <= at < len(found) and (found[at].kind == "break" or english(found[at].text) in PERCENT_LINKS):
            at += step
        if 0 <= at < len(found) and found[at].text in NO_DISCOUNT:
            return True
    return False


def value(token: Token) -> Decimal | None:
    """Return the value of a token, which may be a number of the installation's language."""
    return number(token.text) if token.value is None else token.value


def number(text: str) -> Decimal | None:
    """Return the value of a number that only the installation's language writes so: "zwei", "12,5"; None for every other text."""
    word, decimal = NUMBERS.get(language.current(), {}).get(text), DECIMALS.get(language.current())
    if word is not None:
        return Decimal(word)
    return Decimal(text.replace(",", ".")) if decimal is not None and decimal.fullmatch(text) else None
