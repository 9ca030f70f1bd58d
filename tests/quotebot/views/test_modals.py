from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotebot.domain.quotes.quote import QuoteState
from quotebot.views.blocks import ButtonValue, parse_button_value
from quotebot.views.forms import approve_modal, changes_modal, parse_rejection, reject_modal
from tests.quotebot.views.block_kit import view_problems
from tests.quotebot.views.quote_examples import example_approval, example_quote

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

PENDING = example_quote(QuoteState.PENDING_APPROVAL, approval=example_approval())


def check_limits(view: dict[str, Any]) -> None:
    assert view_problems(view) == []


def test_the_reject_form_reads_like_this(snapshot: SnapshotAssertion) -> None:
    view = reject_modal(PENDING, example_approval())
    check_limits(view)
    assert view == snapshot


def test_the_form_that_asks_for_changes_reads_like_this(snapshot: SnapshotAssertion) -> None:
    view = changes_modal(PENDING, example_approval())
    check_limits(view)
    assert view == snapshot


def test_the_form_of_an_approval_under_dual_control_reads_like_this(snapshot: SnapshotAssertion) -> None:
    view = approve_modal(PENDING, example_approval())
    check_limits(view)
    assert view == snapshot


def test_the_reject_form_carries_the_version_the_person_saw() -> None:
    view = reject_modal(PENDING, example_approval())
    assert parse_button_value(view["private_metadata"]) == ButtonValue("Q-2026-0042", 1, "A-2026-0042-v1-1")


@given(st.text(alphabet=st.sampled_from("<>&*\n\u202eA"), max_size=3_000))
def test_no_account_name_breaks_the_form_or_mentions_anyone(account: str) -> None:
    view = reject_modal(example_quote(QuoteState.PENDING_APPROVAL, account=account), example_approval())
    check_limits(view)
    assert view["blocks"][0]["text"]["text"].count("<") == 1  # the requester's mention


def values(reason: object) -> dict[str, Any]:
    return {"reason": {"reason": {"type": "plain_text_input", "value": reason}}}


def test_the_reason_is_read_trimmed_and_without_control_characters() -> None:
    assert parse_rejection(values("  too\x07 deep \r\n\n offer 10 % ")) == "too deep\noffer 10 %"
    assert parse_rejection(values("x" * 500)) == "x" * 500


@pytest.mark.parametrize(
    "state",
    [
        values(None),
        values(""),
        values(" \n "),
        values(7),
        values("x" * 501),
        {},
        {"reason": {}},
        {"reason": None},
        None,
        [],
        "reason",
    ],
)
def test_a_form_without_a_usable_reason_gives_none(state: object) -> None:
    assert parse_rejection(state) is None
