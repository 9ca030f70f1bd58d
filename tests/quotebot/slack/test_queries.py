"""Tests of list, compare, explain and simulate: true, short, limited to the own workspace, and never recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from adapters.failures import AdapterError, Failure
from quotebot.commands.queries import ListRequest
from quotebot.domain.quotes.quote import plain_times
from quotebot.execution.executor import Executor
from quotebot.slack import queries
from quotebot.slack.queries import ANSWER_CHARACTERS_MAX, Reads, for_operators
from quotebot.slack.verbs import (
    ApprovalReportRequest,
    AuditRequest,
    ChangeRequest,
    CompareRequest,
    ExplainRequest,
    OpsRequest,
    ProductsRequest,
    RefRequest,
    ReportRequest,
    SimulateRequest,
    parse,
)
from quotebot.views import messages, operator_messages, report_messages
from tests.quotebot.access_parts import viewer
from tests.quotebot.deeds import Round
from tests.quotebot.parts import MATRIX, RULES, Bench, create_command, request_for

if TYPE_CHECKING:
    from quotebot.slack.verbs import Read

QUOTE = "Q-2026-0001"
READ = (
    ProductsRequest
    | ReportRequest
    | ApprovalReportRequest
    | RefRequest
    | ListRequest
    | CompareRequest
    | ExplainRequest
    | SimulateRequest
    | AuditRequest
    | OpsRequest
)


@pytest.fixture
def executor(bench: Bench) -> Executor:
    return Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)


@pytest.fixture
async def revised(bench: Bench, executor: Executor) -> Bench:
    """Make the second version of the golden quote."""
    await bench.ledger.reserve(request_for(create_command(), "1"))
    change = parse(f"revise {QUOTE}: remove support; discount 8%", "C0SALES", RULES.catalogue)
    assert isinstance(change, ChangeRequest)
    await executor.step()
    await bench.ledger.reserve(request_for(change.payload, "2", quote_id=QUOTE, version=None, source="slack_slash"))
    await executor.step()
    return bench


async def said(bench: Bench, text: str, *, user: str = "U0REP", team: str = "T0HOME") -> str:
    """Ask a query, check that nothing is recorded, and return the answer."""
    asked = parse(text, "C0SALES", RULES.catalogue)
    assert isinstance(asked, READ), asked
    return await answered(bench, asked, user=user, team=team)


async def answered(bench: Bench, asked: Read, *, user: str = "U0REP", team: str = "T0HOME") -> str:
    before = bench.counts()
    answer = await Reads(bench.ledger, RULES).answer(asked, viewer(user, team))
    assert bench.counts() == before
    assert len(answer) <= ANSWER_CHARACTERS_MAX
    return answer


async def test_two_versions_are_compared_old_to_new(revised: Bench) -> None:
    expected = (
        "*Q-2026-0001: v1 (draft) → v2 (draft)*\n"
        "• Total $17,340.00 → $13,248.00 (\u2212$4,092.00)\n"
        "• Removed 1 \u00d7 Premium Support: $5,100.00\n"
        "• Pro: $9,180.00 → $9,936.00\n"
        "• SSO: $3,060.00 → $3,312.00\n"
        "• Discount 15% → 8%\n"
        "• List price $20,400.00 → $14,400.00"
    )
    assert await said(revised, f"compare {QUOTE}") == expected
    assert await said(revised, f"compare {QUOTE} v1 v2") == expected
    assert "• No differences" in await said(revised, f"compare {QUOTE} v2 v2")
    assert await said(revised, f"compare {QUOTE} v1 v9") == "Q-2026-0001 has no v9. Its latest version is v2."


async def test_one_version_alone_has_nothing_to_compare(bench: Bench, executor: Executor) -> None:
    await bench.ledger.reserve(request_for(create_command(), "1"))
    await executor.step()
    assert "has only one version" in await said(bench, f"compare {QUOTE}")


async def test_a_price_is_explained_whole_or_by_line_of_any_version(revised: Bench) -> None:
    whole = await said(revised, f"explain {QUOTE}")
    assert whole.startswith("*Q-2026-0001 v2*\nCatalog ")
    assert whole.endswith("= $13,248.00 net")
    line = await said(revised, f"explain {QUOTE} v1 line 3")
    assert line.startswith(
        "*Q-2026-0001 v1*\n*Premium Support* 1 \u00d7 $500.00 \u00d7 12 months = $6,000.00, less 15% = *$5,100.00*"
    )
    assert line.splitlines()[2:4] == ["Price book: list, kind flat.", "base: 500 (flat price)"]
    assert await said(revised, f"explain {QUOTE} line 3") == "Q-2026-0001 has no line 3. Its last one is line 2."


async def test_a_simulation_says_the_price_who_would_approve_and_what_differs(revised: Bench) -> None:
    text = await said(revised, f"simulate {QUOTE}: discount 25%")
    assert text.startswith("*What if* · $10,800.00 · Needs approval: *VP Sales* · discount 25% (limit 20%)")
    assert "Compared with Q-2026-0001 v2:" in text
    assert "• Discount 8% → 25%" in text
    assert "Nobody can approve it: discount 45% is over the 40% maximum" in await said(revised, f"simulate {QUOTE}: discount 45%")
    assert "Needs no approval" in await said(revised, f"simulate {QUOTE}")
    assert "There is no line support to remove" in await said(revised, f"simulate {QUOTE}: remove support")


async def test_a_whole_request_is_simulated_without_a_quote(bench: Bench) -> None:
    text = await said(bench, "simulate: 10 pro; discount 5%")
    assert text.startswith("*What if* · $1,140.00 · Needs no approval")
    assert "*Pro* 10 \u00d7 $10.00 \u00d7 12 months = $1,200.00, less 5% = *$1,140.00*" in text


async def test_a_list_is_of_ones_own_quotes_unless_all_are_asked_for(revised: Bench) -> None:
    row = "• *Q-2026-0001* v2 · draft · $13,248.00 · Acme · <@U0REP>"
    assert await said(revised, "list") == row
    assert await said(revised, "list", user="U0OTHER") == "You have no quotes. `/quote list all` shows everyone's."
    assert await said(revised, "list all open acme", user="U0OTHER") == row
    assert await said(revised, "list <@U0REP>", user="U0OTHER") == row
    assert 'match "Beta"' in await said(revised, "list all sent Beta")
    assert "on page 2" in await said(revised, "list page 2")


@pytest.mark.parametrize("text", [f"compare {QUOTE}", f"explain {QUOTE}", f"simulate {QUOTE}", "list all"])
async def test_another_workspace_does_not_learn_that_a_quote_exists(revised: Bench, text: str) -> None:
    answer = await said(revised, text, team="T0OTHER")
    assert answer.startswith(("No quote Q-2026-0001", "No quotes"))


async def test_a_quote_that_is_not_there_is_said_to_be_unknown(bench: Bench) -> None:
    for verb in ("compare", "explain", "simulate"):
        assert "No quote Q-2026-0099" in await said(bench, f"{verb} Q-2026-0099")


def test_a_very_long_answer_keeps_whole_lines_and_the_last_one_which_holds_the_total() -> None:
    lines = [f"{number}. Product {'x' * 60}" for number in range(400)]
    answer = queries._cut("\n".join([*lines, "Total: $48,000.00"])).splitlines()
    assert len("\n".join(answer)) <= ANSWER_CHARACTERS_MAX
    assert answer[-1] == "Total: $48,000.00"
    assert answer[:-2] == lines[: len(answer) - 2]
    assert f"and {400 - len(answer[:-2])} more lines" in answer[-2]


async def test_a_ref_tells_its_own_author_what_became_of_the_command(bench: Bench, executor: Executor) -> None:
    reserved = await bench.ledger.reserve(request_for(create_command(), "1"))
    ref = reserved.operation.correlation_id
    assert await said(bench, f"status {ref}") == messages.OPERATION_PENDING
    await executor.step()
    assert (await said(bench, f"status {ref.upper()}")).startswith("Created Q-2026-0001 for Acme")
    for user, team in (("U0CFO", "T0HOME"), ("U0REP", "T0AWAY")):
        assert await said(bench, f"status {ref}", user=user, team=team) == messages.unknown_ref(ref)
    assert await said(bench, "status c-00000000") == messages.unknown_ref("c-00000000")


async def test_the_audit_says_who_did_what_to_a_quote_and_where_the_rest_is(revised: Bench) -> None:
    trail = await said(revised, f"audit {QUOTE}")
    assert plain_times(trail).splitlines() == [
        "*Q-2026-0001 v2*",
        "*21 Nov 2026*",
        "• 10:31 UTC · Created · <@U0REP>",
        "• 10:31 UTC · Revised to v2 · <@U0REP>",
    ]
    assert await said(revised, f"audit {QUOTE}", team="T0OTHER") == messages.unknown_quote(QUOTE)


async def test_products_are_found_by_a_part_of_their_names_with_list_prices(bench: Bench) -> None:
    everything = await said(bench, "products")
    assert "• *Pro* `pro`: $10.00 per seat and month, $8.00 from 50, $6.00 from 100" in everything.splitlines()
    found = await said(bench, "products premium")
    assert [line for line in found.splitlines() if line.startswith("•")] == ["• *Premium Support* `support`: $500.00 per month"]
    assert "cost" not in everything
    assert await said(bench, "products prro") == 'No product matches "prro". Did you mean `/quote products pro`?'


async def test_the_deal_desk_gets_reports_and_a_rep_does_not(revised: Bench) -> None:
    discounts = await said(revised, "report discounts", user="U0DEALDESK")
    assert discounts.splitlines() == [
        "*Discounts of the last 90 days*",
        "• <@U0REP>: 1 quote, $14,400.00 list, $13,248.00 net, 8.00% discount",
    ]
    by_product = await said(revised, "report pipeline by product", user="U0CFO")
    assert "• pro, draft: 1 quote, $9,936.00 net" in by_product.splitlines()
    assert (await said(revised, "report approvals", user="U0VP")).endswith("Nothing to report yet.")
    for report in ("report discounts", "report approvals"):
        assert "Nothing to report" in await said(revised, report, user="U0CFO", team="T0OTHER")  # quotes of another workspace
    for user in ("U0REP", "U0MANAGER"):
        assert await said(revised, "report discounts", user=user) == report_messages.NOT_FOR_YOU


@pytest.mark.usefixtures("german")
async def test_questions_are_answered_in_german(revised: Bench) -> None:
    products = await said(revised, "products")
    assert "• *Pro* `pro`: 10,00 $ pro seat und Monat, 8,00 $ ab 50, 6,00 $ ab 100" in products.splitlines()
    assert (await said(revised, "report discounts", user="U0DEALDESK")).splitlines() == [
        "*Rabatte der letzten 90 Tage*",
        "• <@U0REP>: 1 Angebot, 14.400,00\u00a0$ Liste, 13.248,00\u00a0$ netto, 8,00\u00a0% Rabatt",
    ]
    assert await said(revised, "list", user="U0OTHER") == "Keine eigenen Angebote. `/quote list all` zeigt die von allen."
    assert await said(revised, "list all sent nobody") == "Keine Angebote mit Stand „an Kunden gesendet“ zu „nobody“ gefunden."
    assert (await said(revised, f"simulate {QUOTE}: discount 10%")).startswith("*Was wäre, wenn* · ")
    assert await said(revised, f"compare {QUOTE} v1 v7") == f"{QUOTE} hat keine v7. Die neueste Version ist v2."


async def test_a_report_says_that_it_does_not_count_all_quotes(
    revised: Bench, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await revised.ledger.reserve(request_for(create_command("20"), "3"))
    await executor.step()
    assert "Only" not in await said(revised, "report discounts", user="U0DEALDESK")
    monkeypatch.setattr(queries, "REPORTED_MAX", 1)
    found = await said(revised, "report discounts", user="U0DEALDESK")
    assert found.splitlines()[1:] == [
        "\u2022 <@U0REP>: 1 quote, $14,400.00 list, $13,248.00 net, 8.00% discount",
        "Only the first 1 are counted. At a terminal: `quotebot report discounts` counts all.",
    ]


async def test_operators_are_told_what_waits_for_them_and_nobody_else_is(bench: Bench) -> None:
    round_ = Round(bench)
    for number in range(12):
        await round_.owe("crm.create", f"{number:02}")
        round_.performer.sends.append(AdapterError(Failure.VALIDATION, "no", f"Field <{number}> is wrong."))
    while await round_.step():
        pass
    await bench.ledger.pause("crm", "U0OPERATOR", "a <week> of repairs")
    assert await answered(bench, OpsRequest(), user="U0REP") == operator_messages.NOT_OPERATOR
    told, blocks = await for_operators(bench.ledger, viewer("U0OPERATOR"), ("U0OPERATOR",))
    assert blocks is None
    head, *letters, held, rest = told.splitlines()
    assert head == "*The newest 10 failed jobs*"
    assert len(letters) == 10
    assert letters[0].endswith("Salesforce write (validation): Field &lt;11&gt; is wrong (no).")
    assert plain_times(held).endswith(" UTC: a &lt;week&gt; of repairs (`quotebot resume crm`)")
    assert "`quotebot dead list`" in rest


async def test_an_answer_to_operators_that_is_cut_names_no_command_about_a_quote(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = Round(bench)
    for number in range(5):
        await round_.owe("crm.create", f"{number:02}")
        round_.performer.sends.append(AdapterError(Failure.VALIDATION, "no", "Field is wrong."))
    while await round_.step():
        pass
    monkeypatch.setattr("quotebot.slack.queries.ANSWER_CHARACTERS_MAX", 400)
    told, _blocks = await for_operators(bench.ledger, viewer("U0OPERATOR"), ("U0OPERATOR",))
    *_shown, more, rest = told.splitlines()
    assert (more[:6], more[-11:]) == ("… and ", " more lines")
    assert "`quotebot dead list`" in rest


async def test_where_nothing_waits_operators_are_told_that(bench: Bench) -> None:
    told, _blocks = await for_operators(bench.ledger, viewer("U0OPERATOR"), ("U0OPERATOR",))
    assert told.splitlines()[:1] == ["*All clear.* No failed jobs, nothing paused."]
