from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from quotebot.domain.approvals.decisions import decided_words
from quotebot.domain.approvals.people import Delegation
from quotebot.domain.quotes.quote import ApprovalState, QuoteState, SlotState, plain_times
from quotebot.views import approval_messages, approver_card, lifecycle_messages
from quotebot.views.approver_card import Ask
from tests.quotebot.parts import RULES
from tests.quotebot.views.block_kit import message_problems
from tests.quotebot.views.quote_examples import MORNING, decided, example_approval, example_quote

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

HOUR = 3_600_000
HOSTILE = "<!channel> & <@U0CFO>\n✅ done\u202e"


def every_sentence(typed: str = "too deep") -> dict[str, str]:
    quote = example_quote(QuoteState.PENDING_APPROVAL, version=2)
    both = example_approval(required_roles=("vp_sales", "legal"))
    vp, legal = both.slots
    given = replace(vp, state=SlotState.APPROVED, decided_by="U0CFO", decided_role="cfo", on_behalf_of="U0VP", decided_at=MORNING)
    changes = decided(ApprovalState.CHANGES_REQUESTED, decision_reason=typed)
    refused = replace(vp, state=SlotState.REJECTED, decided_by="U0VP", decided_role="vp_sales", decided_at=MORNING)
    changes = replace(changes, slots=(refused, replace(legal, state=SlotState.CLOSED)))
    expired = replace(both, state=ApprovalState.EXPIRED, slots=(replace(vp, state=SlotState.EXPIRED), given))
    earlier = replace(decided(ApprovalState.APPROVED, earlier="A-2026-0042-v1-1", decided_by=None), slots=(given,))
    return {
        "progress": approval_messages.progress(quote, replace(both, slots=(given, legal)), ("U0LEGAL",)),
        "progress, nobody known": approval_messages.progress(quote, replace(both, slots=(given, legal)), ()),
        "changes requested": approval_messages.changes_requested(quote, changes),
        "reused": approval_messages.reused(quote, earlier),
        "reminder": approval_messages.reminder(quote, vp, ("U0VP",), MORNING + 2 * HOUR),
        "reminder, nobody known": approval_messages.reminder(quote, vp, (), MORNING + HOUR),
        "escalation": approval_messages.escalation(quote, vp, ("U0VP", "U0CFO"), MORNING + 4 * HOUR),
        "escalation, nobody known": approval_messages.escalation(quote, legal, (), MORNING + 4 * HOUR),
        "request expired": approval_messages.request_expired(quote, expired),
        "not due": approval_messages.not_due(quote),
        "nobody to remind": approval_messages.nobody_to_remind(quote),
        "reminded already": approval_messages.reminded_already(
            (replace(vp, reminded_at=MORNING), replace(legal, reminded_at=MORNING + 1)), both.roles
        ),
        "scheduled only": approval_messages.SCHEDULED_ONLY,
        "incident needed": approval_messages.INCIDENT_NEEDED,
        "delegated": approval_messages.delegated("U0CFO", MORNING, "UTC"),
        "delegated from later on": approval_messages.delegated("U0CFO", MORNING + HOUR, "UTC", since=MORNING),
        "standing": approval_messages.standing((Delegation("U0VP", "U0CFO", 0, MORNING, typed),), "U0VP", "UTC"),
        "standing in": approval_messages.standing((Delegation("U0VP", "U0CFO", 0, MORNING, typed),), "U0CFO", "UTC"),
        "standing, nobody": approval_messages.standing((), "U0CFO", "UTC"),
        "back in office": approval_messages.BACK_IN_OFFICE,
        **{code: approval_messages.delegation_refused(code, "U0CFO") for code in REFUSALS},
        **{f"end: {state}": decided_words(replace(decided(state), slots=())) for state in END_STATES},
    }


REFUSALS = ("not_yours", "no_authority", "to_oneself", "until_past", "ends_first", "lower_scope", "delegate_away")
END_STATES = tuple(state for state in ApprovalState if state is not ApprovalState.PENDING)


def test_every_sentence_reads_like_this(snapshot: SnapshotAssertion) -> None:
    assert every_sentence() == snapshot


@pytest.mark.parametrize("name", sorted(every_sentence()))
def test_nothing_a_person_typed_becomes_a_mention_or_passes_for_the_bots_own_words(name: str) -> None:
    text = every_sentence(typed=HOSTILE)[name]
    assert "<!channel>" not in text
    assert "\u202e" not in text
    assert "<@U0CFO>\n✅" not in text
    assert all(line.startswith((">", "`/quote delegate ")) for line in text.splitlines()[1:])


@pytest.mark.usefixtures("german")
def test_german_messages_about_an_approval_and_a_version_are_whole_sentences() -> None:
    quote = example_quote(QuoteState.PENDING_APPROVAL, version=2)
    vp = example_approval(required_roles=("vp_sales",)).slots[0]
    reminder = approval_messages.reminder(quote, vp, ("U0VP",), MORNING + 2 * HOUR)
    assert reminder.startswith("⏰ <@U0VP>: Acme (17.340,00\u00a0$) wartet seit 2 Stunden auf Ihre Entscheidung. ")
    again = approval_messages.reminded_already((replace(vp, reminded_at=MORNING),), example_approval().roles)
    assert plain_times(again) == (
        "Letzte Erinnerung (Bereichsleitung Vertrieb): 21. Nov. 2026, 10:31 UTC. "
        "Die nächste ist möglich ab: 21. Nov. 2026, 11:31 UTC."
    )
    away = approval_messages.delegated("U0CFO", MORNING + 26 * HOUR, "UTC", since=MORNING)
    assert plain_times(away) == (
        "<@U0CFO> gibt vom 21. Nov. 2026 bis einschließlich 22. Nov. 2026 in Ihrer Vertretung frei. "
        "`/quote delegate off` beendet das."
    )
    assert approval_messages.delegation_refused("delegate_away", None) == (
        "Dann ist auch diese Person abwesend. Bitte jemand anderen wählen."
    )
    assert lifecycle_messages.superseded(1, quote) == (
        "v1 von Q-2026-0042 ist durch v2 ersetzt (wartet auf Freigabe). Nichts wurde geändert."
    )
    assert lifecycle_messages.wrong_state(quote, "accept") == (
        "Q-2026-0042 v2 wartet auf Freigabe und kann daher nicht als gewonnen markiert werden. Zuerst entscheiden die Freigeber."
    )


@pytest.mark.usefixtures("german")
def test_a_german_message_asks_an_approver_with_the_figures_of_the_quote() -> None:
    quote = example_quote(QuoteState.PENDING_APPROVAL, approval=example_approval())
    card = approver_card.asking(quote, Ask(RULES.policy, None, None, ("U0VP",), (), ()))
    assert card.text == "<@U0REP> bittet um Freigabe: Acme · Q-2026-0042, 17.340,00\u00a0$"
    said = json.dumps(card.blocks, ensure_ascii=False)
    for text in (
        "*Grund der Anfrage*",
        "*Summe*",
        "15\u00a0% von 20.400,00\u00a0$",
        "12 Monate",
        "*Entscheiden bis*",
        "Marge",
        "Freigeben",
    ):
        assert text in said
    assert message_problems(card.text, card.blocks) == []
