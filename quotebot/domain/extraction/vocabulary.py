"""English vocabulary of quote requests for the extractor; a word in no table is reported as unclaimed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

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
