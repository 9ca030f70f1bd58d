from __future__ import annotations

import time
import unicodedata
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from quotebot.commands.payloads import CreateQuote
from quotebot.commands.queries import ListRequest
from quotebot.domain.pricing.engine import LineRequest, PriceRequest
from quotebot.slack.grammar import TEXT_CHARACTERS_MAX, GrammarProblem, Repair, creation
from quotebot.slack.verbs import HelpRequest, Meaning, StatusRequest, parse
from tests.quotebot.views.quote_examples import CATALOGUE

GOLDEN = CreateQuote(
    account="Acme",
    request=PriceRequest((LineRequest("pro", 150), LineRequest("sso", 150), LineRequest("support", 1)), 12, Decimal(15)),
    channel="C0SALES",
)


def read(text: str) -> Meaning:
    return parse(text, "C0SALES", CATALOGUE)


def created(text: str) -> CreateQuote:
    result = read(text)
    assert isinstance(result, CreateQuote), result
    return result


def problem(text: str) -> str:
    result = read(text)
    assert isinstance(result, GrammarProblem), result
    return result.message


@pytest.mark.parametrize("text", ["", "   ", "help", "HELP", "help me please", "\n\t", "\x00"])
def test_nothing_or_help_asks_for_help(text: str) -> None:
    assert read(text) == HelpRequest()


@pytest.mark.parametrize("text", ["status Q-2026-0042", "show q-2026-0042", "  STATUS   Q-2026-0042 "])
def test_status_and_show_ask_for_one_quote(text: str) -> None:
    assert read(text) == StatusRequest("Q-2026-0042")


@pytest.mark.parametrize("text", ["show 42", "status Q-2026-0042 now", "status Q-2026-42"])
def test_status_without_a_quote_number_says_what_one_looks_like(text: str) -> None:
    assert f"`/quote {text.split(maxsplit=1)[0]} Q-2026-0042`" in problem(text)


@pytest.mark.parametrize("text", ["Q-2026-0042", "q-2026-0042 please"])
def test_a_bare_number_shows_the_quote(text: str) -> None:
    assert read(text) == StatusRequest("Q-2026-0042")


@pytest.mark.parametrize("text", ["show Acme Corp", "status Acme Corp"])
def test_words_after_show_search_by_customer(text: str) -> None:
    assert read(text) == ListRequest(mine=False, account="Acme Corp")


@pytest.mark.parametrize("text", ["hello", "Hi there", "hey, quotebot"])
def test_a_greeting_is_greeted(text: str) -> None:
    assert read(text) == HelpRequest(greets=True)


@pytest.mark.parametrize(
    "text",
    [
        "new for Acme: 150 pro, 150 sso, 1 support; term 12m; discount 15%",
        "START for Acme: 150 pro, 150 sso, 1 support; discount 15%",
        "create FOR  Acme :150 Pro Plan,150 single sign-on,1 premium support;discount 15 %;term 1y",
        "new for Acme: discount: 15.0%; term: 12 months; 150 pro; 150 sso; 1 support;",
        "new for Acme:\n150 pro,\n150 sso,\n1 support\n; Discount 15; TERM 12",
        "new for Acme: 150pro,, 150 sso, ,1 support; term=1 year; discount = 15%",
    ],
)
def test_every_way_of_writing_one_request_means_the_same_command(text: str) -> None:
    assert created(text) == GOLDEN
    assert created(text).canonical() == GOLDEN.canonical()


def test_without_term_and_discount_it_is_12_months_and_0_percent() -> None:
    command = created("new for Acme: 10 pro")
    assert (command.request.term_months, command.request.discount_percent) == (12, Decimal(0))


@pytest.mark.parametrize(
    ("items", "quantities"),
    [
        ("1,500 pro", [1500]),
        ("1,500 pro,2,000 sso", [1500, 2000]),
        ("10 pro,150 sso", [10, 150]),
        ("1,000,000 pro", [1_000_000]),
        ("1500 pro", [1500]),
    ],
)
def test_a_thousands_separator_is_not_an_item_separator(items: str, quantities: list[int]) -> None:
    assert [line.quantity for line in created(f"new for Acme: {items}").request.lines] == quantities


@pytest.mark.parametrize(
    ("typed", "account"),
    [
        ("AT&amp;T", "AT&T"),
        ("Acme; Sons, Inc.", "Acme; Sons, Inc."),
        ("  Two   Words ", "Two Words"),
        (unicodedata.normalize("NFD", "Café"), unicodedata.normalize("NFC", "Café")),
        ("&lt;!channel&gt;", "<!channel>"),
        ("a\u202eb\x07c\ud800", "abc"),
        ("&amp;lt;", "&lt;"),
    ],
)
def test_the_account_is_what_the_person_typed_in_one_normal_form(typed: str, account: str) -> None:
    assert created(f"new for {typed}: 1 pro").account == account


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("statsu Q-2026-0042", "status"),
        ("crate for Acme: 1 pro", "create"),
        ("hlep", "help"),
    ],
)
def test_an_unknown_verb_is_answered_with_the_nearest_one_and_never_run(text: str, nearest: str) -> None:
    message = problem(text)
    assert f"Did you mean `/quote {nearest}`?" in message


@pytest.mark.parametrize("verb", ["zzz", "bogus", "remind", "opps"])
def test_a_verb_that_is_near_nothing_suggests_none(verb: str) -> None:
    assert problem(verb) == f'I don\'t know "{verb}". Try one of these:'


def test_text_over_the_limit_is_refused_whole_and_at_the_limit_is_read() -> None:
    base = "new for Acme: 1 pro; "
    assert isinstance(read(base.ljust(TEXT_CHARACTERS_MAX)), CreateQuote)
    message = problem(base.ljust(TEXT_CHARACTERS_MAX + 1))
    assert "2,048 characters max" in message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("10 pro; discount 15,5,%", '"15,5,%" isn\'t a discount.'),
        ("10 pro; discount 15,5%", '"15,5%" isn\'t a discount.'),
        ("10 pro; discount abc%", '"abc%" isn\'t a discount.'),
        ("10 pro; discount -5%", '"-5%" isn\'t a discount.'),
        ("10 pro; discount", '"" isn\'t a discount.'),
        ("10 pro; discount 101%", "A discount is 0 to 100"),
        ("10 pro; discount 12.345%", '"12.345%" isn\'t a discount.'),
        ("10 pro; discount 12.3456%", "at most 2 decimals"),
        ("10 pro -12,5%, 5 sso", '"12,5%" isn\'t a discount.'),
        ("10 pro @5,40 because volume deal", '"5,40" isn\'t a price. Write it like 5.40 or 1500'),
        ("10 pro @5,40 sso", '"@5,40 sso" isn\'t a price.'),
        ("10 pro, discount 12,5%", "Put a semicolon before it: `; discount 12,5%`."),
        ("0,500 pro", '"0,500 pro" needs a whole quantity'),
        ("10 pro; term soon", '"soon" isn\'t a term.'),
        ("10 pro; term 0m", "A term is 1 to 120 months, not 0."),
        ("10 pro; term 11y", "A term is 1 to 120 months, not 132."),
        ("10 pro; term 6m; term 12m", "You gave term twice."),
        ("-3 pro", '"-3 pro" needs a whole quantity'),
        ("1.5 pro", '"1.5 pro" needs a whole quantity'),
        ("1,50 pro", '"1,50 pro" needs a whole quantity'),
        ("0 pro", "The quantity of pro is 1 to 1,000,000, not 0."),
        ("1000001 pro", "not 1000001"),
        ("99999999999999999999 pro", "needs a whole quantity"),
        ("pro", "Write it first: `10 pro`."),
        ("10", '"10" names no product'),
        ("10 pro, term 12m", "Put a semicolon before it: `; term 12m`."),
        ("10 pro; discont 15%", "Parts look like `term 12m` and `discount 15%`."),
        ("10 prp", "Did you mean pro?"),
        ("10 zebra", "Known are pro, enterprise, sso, support, onboarding."),
        ("10 pro, 5 pro plan", "Combine them: 15 pro."),
        ("", "Name at least one product"),
        ("; term 6m", "Name at least one product"),
        ("10 <b>&", "&lt;b&gt;&amp;"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_write_instead(body: str, said: str) -> None:
    message = problem(f"new for Acme: {body}")
    assert said in message


def test_all_problems_are_told_at_once_and_the_message_ends_in_what_to_do() -> None:
    assert problem("new for Acme: -3 pro, 10 enterprize, 1.5 sso; term soon; discount 15,5,%").splitlines() == [
        "5 things to fix:",
        '• "-3 pro" needs a whole quantity, like 1500 or 1,500.',
        '• "1.5 sso" needs a whole quantity, like 1500 or 1,500.',
        '• "soon" isn\'t a term. Examples: `term 12m` or `term 1y`.',
        '• "15,5,%" isn\'t a discount. Examples: `discount 15%` or `discount 12.5%`.',
        '• "enterprize" isn\'t in the catalog. Did you mean enterprise?',
    ]


def test_a_request_without_a_colon_hides_no_other_problem() -> None:
    assert problem("new Acme 5 pro, 3 foo; term 99y; discount 200%").splitlines() == [
        "4 things to fix:",
        "• Start with the customer: `for Acme: 10 pro`.",
        '• "foo" isn\'t in the catalog. Known are pro, enterprise, sso, support, onboarding.',
        "• A term is 1 to 120 months, not 1188. Example: term 12m.",
        "• A discount is 0 to 100% with at most 2 decimals, not 200%. Example: discount 12.5%.",
    ]


REPAIRED = {
    "new for Acme: 150 prro; term 12m": ("new for Acme: 150 pro; term 12m", "Use Pro"),
    "new for Acme: 150 prro, 3 enterprize": ("new for Acme: 150 pro, 3 enterprise", "Use this"),
    "new for Acme: 150 prro; customer-note prro forever": ("new for Acme: 150 pro; customer-note prro forever", "Use Pro"),
    "new for Acme: 2 sso; note 10 prro; 10 prro @5 because prro is new": (
        "new for Acme: 2 sso; note 10 prro; 10 pro @5 because prro is new",
        "Use Pro",
    ),
    "new for Acme 150 pro; term 12m": ("new for Acme: 150 pro; term 12m", "Use this"),
    "new Acme: 150 pro": ("new for Acme: 150 pro", "Use this"),
    "new for Acme: 150 zebra": None,
    "new for Acme: 150 prro; discount 200%": None,
    "new for Acme:": None,
}


@pytest.mark.parametrize("text", REPAIRED)
def test_an_obvious_correction_is_offered_and_can_be_read(text: str) -> None:
    result, wanted = read(text), REPAIRED[text]
    assert isinstance(result, GrammarProblem)
    assert result.repair == (None if wanted is None else Repair(*wanted))
    if result.repair is not None:
        assert f"`/quote {result.repair.text}`" in result.message
        assert isinstance(read(result.repair.text), CreateQuote)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("new Acme: 10 pro", "Start with the customer: `for Acme: 10 pro`."),
        ("new for: 10 pro", "Name the customer"),
        ("new for  : 10 pro", "Name the customer"),
        ("new for Acme 10 pro", "Put a colon after the customer: `for Acme: 10 pro`."),
        (f"new for {'A' * 101}: 10 pro", "too long (100 characters max)"),
    ],
)
def test_a_request_without_a_clear_customer_is_refused(text: str, said: str) -> None:
    assert said in problem(text)


def test_creation_without_text_misses_the_customer() -> None:
    result = creation("", "C0SALES", CATALOGUE)
    assert isinstance(result, GrammarProblem)
    assert "Start with the customer" in result.message


def test_hundreds_of_problems_make_one_short_message() -> None:
    message = problem("new for A: " + ",".join("1 x" for _ in range(500)))
    assert "more like these" in problem("new for A: " + ",".join("x" for _ in range(500)))
    assert len(message) < 4_000


FRAGMENTS = st.sampled_from(
    [
        "new",
        "for",
        "Acme",
        ":",
        ";",
        ",",
        " ",
        "term",
        "discount",
        "12m",
        "15%",
        "1,500",
        "pro",
        "-3",
        "&amp;",
        "<!channel>",
        "\ud800",
        "٣",
        "Q-1",
    ]
)


@given(
    st.one_of(st.text(max_size=300), st.lists(FRAGMENTS, max_size=60).map("".join), st.lists(FRAGMENTS, max_size=60).map(" ".join))
)
@example("new for A:" + "1," * 900 + "pro")
@example("new for A: 9" + "9" * 2000 + " pro; discount 9" + "9" * 20)
def test_no_text_raises_or_smuggles_a_mention_into_the_answer(text: str) -> None:
    result = read(text)
    if isinstance(result, GrammarProblem):
        assert "<" not in result.message
        assert result.message
    if isinstance(result, CreateQuote):
        assert CreateQuote.parse(result.canonical()) == result


@pytest.mark.parametrize("unit", ["1,", "1 x,", ";", "term ", "discount 1;", "9", ":", "&amp;", "for ", "1 prp,", "e\u0301"])
def test_the_longest_hostile_text_is_answered_at_once(unit: str) -> None:
    text = ("new for A: " + unit * TEXT_CHARACTERS_MAX)[:TEXT_CHARACTERS_MAX]
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 0.5
