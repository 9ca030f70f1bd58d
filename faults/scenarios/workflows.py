"""The scenarios whose every crash point is tried: each kind of command, each of its ends, and the operator commands on it.

`before` brings the world to the start of the measured part. A new command kind, effect class or write that no scenario passes fails
faults/suites/test_crash_points.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from adapters.policies import RetryOverride
from faults.lab.steps import (
    MANAGER,
    REP,
    ArmsFault,
    ChangesCrm,
    ChoosesAccount,
    Clicks,
    Configures,
    Dies,
    Fills,
    Leaves,
    MakesOpportunity,
    OpensHome,
    Operates,
    PutsClock,
    Rejects,
    Repeated,
    Settles,
    Shares,
    Starts,
    Step,
    Stops,
    Types,
    Waits,
    Writes,
)
from quotebot.sandbox.salesforce.values import record_id
from quotebot.views.forms import block_of

Steps = Callable[[], Sequence[Step]]
FILE_COMMANDS: Final = ("backup", "restore")
DAYS_20: Final = 20 * 86_400.0  # an untouched quote is stale then, and valid for ten days more
HOUR: Final = 3600.0
YEAR: Final = 365 * 86_400.0
DAYS_60: Final = 60 * 86_400.0
NEW: Final = "new for Acme: 150 pro, 150 sso, 1 support; term 12m; discount 15%"
SMALL: Final = "new for Bolt Ltd: 5 pro"
OPS, OPERATOR = "C0OPS", "U0OPERATOR"
VP: Final = "U0VP"  # has not been looked up before they decide
SHARED: Final = "C0PARTNER"
UNCLEAR: Final = "@quotebot 5 pro for Acme, they sign soon"  # fixed rules cannot read all of it
MODEL: Final = {
    "llm_base_url": "http://127.0.0.1:1/v1",
    "llm_api_key": SecretStr("sk-sandbox"),
    "llm_model": "sandbox-rules-1",
}
LOOKUPS: Final = {"crm_account_lookup": True, "crm_opportunity_lookup": True}
EDITED_CREATION: Final = (  # the command of Operates("give_up_command"), for another customer
    '{"v":5,"account":"Bolt Ltd","channel":"C0DEALS","requested_discount_percent":"0","lines":[{"quantity":5,"sku":"pro"}],'
    '"term_months":12}'
)
SLOW_RETRIES: Final = {"retry": {"default": RetryOverride(base_seconds=60, cap_seconds=3600, jitter="none")}}
READS: Final = {"crm_sync_minutes": 15, "crm_mirror": ("accounts", "opportunities")}
UNDER_A_DEAL: Final = {
    "terms": "150 pro, 150 sso, 1 support",
    "discount": "15",
    block_of("Acme"): f"{record_id('006', 1)} {record_id('001', 1)} USD",
}
LINK: Final = f"see https://127.0.0.1:2/{record_id('0Q0', 1)}"  # to the first record of the laboratory's Salesforce
MENU, REFRESH = "quote.more", "Refresh"
QUOTE: Final = "Q-2027-0001"  # the first one of the laboratory's year


@dataclass(frozen=True, slots=True)
class Story:
    """One scenario. `before` and `measured` return new steps each time."""

    name: str
    measured: Steps
    before: Steps = tuple
    at_rest: bool = True  # whether nothing waits at its end
    apart: bool = False  # whether its order of events needs a bot that is idle while people act: a process of its own

    @property
    def needs_file(self) -> bool:
        """True if a ledger is copied as a file in it: the backups of a database are made by its own tools."""
        return any(isinstance(step, Operates) and step.name in FILE_COMMANDS for step in (*self.before(), *self.measured()))


def created() -> list[Step]:
    """A new quote."""
    return [Starts(), Types(NEW), Settles()]


def _day() -> list[Step]:
    return [Starts(), Settles(), Stops()]


def submitted() -> list[Step]:
    """A quote that waits for approval."""
    return [*created(), Clicks("quote.submit", REP), Settles()]


def approved_at_once() -> list[Step]:
    """A quote that needed no approval."""
    return [Starts(), Types(SMALL), Settles(), Clicks("quote.submit", REP), Settles()]


def _dead_crm() -> list[Step]:
    return [
        *submitted(),
        ArmsFault("salesforce", "5xx", "composite/graph"),
        Clicks("approval.approve", MANAGER),
        Waits(7200),
        Settles(),
        ArmsFault(),
    ]


def _held_for_crm() -> list[Step]:
    """An approved quote whose only pending effect is the write to Salesforce, which is paused."""
    return [*submitted(), Stops(), Operates("pause"), Starts(), Clicks("approval.approve", MANAGER), Settles()]


def _pending_for_crm() -> list[Step]:
    """An approved quote whose only pending effect is the write to Salesforce."""
    return [*_held_for_crm(), Stops(), Operates("resume")]


def _announced() -> list[Step]:
    """A dead letter with its card in the operators' channel; the external service works again."""
    return [Configures({"ops_channel": OPS, "operators": (OPERATOR,)}), *_dead_crm(), Waits(10), Settles()]


def _many_announced() -> list[Step]:
    """Card of a cause of which six letters died, and one is left; the others were discarded."""
    retries = {"retry": {"crm.create": RetryOverride(retries=0)}}
    deals = [(Types(f"new for Bolt {n}: 5 pro"), Settles(), Clicks("quote.submit", REP), Settles()) for n in range(6)]
    return [
        *(Configures(retries), Starts(), ArmsFault("salesforce", "5xx", "composite/graph")),
        *(step for deal in deals for step in deal),
        *(Waits(600), Settles(), ArmsFault(), Stops()),
        *(Configures({"ops_channel": OPS, "operators": (OPERATOR,), "retry": {}}), Starts(), Settles(), Stops()),
        *(Waits(60), Operates("discard_but_newest"), Starts(), Settles()),
    ]


def _for_a_deal() -> list[Step]:
    """A form for a new quote in which an account was chosen, and its opportunities are offered."""
    return [Configures(LOOKUPS), Starts(), MakesOpportunity("Acme"), Types("new"), Settles(), ChoosesAccount("Acme")]


def _under_a_deal() -> list[Step]:
    """An approved quote for a chosen opportunity, whose only pending effect is the write to Salesforce."""
    return [
        *(*_for_a_deal(), Fills(REP, UNDER_A_DEAL), Settles(), Clicks("quote.submit", REP), Settles()),
        *(Stops(), Operates("pause"), Starts(), Clicks("approval.approve", MANAGER), Settles()),
        *(Stops(), Operates("resume")),
    ]


def approved() -> list[Step]:
    """An approved quote with everything that follows from the approval."""
    return [*submitted(), Clicks("approval.approve", MANAGER), Settles()]


def _to_sent() -> list[Step]:
    return [Types(f"finalize {QUOTE}"), Settles(), Types(f"sent {QUOTE} to buyer@acme.example"), Settles()]


def _sent() -> list[Step]:
    return [*approved(), *_to_sent()]


def _killed() -> list[Step]:
    """An approved quote whose PDF, record and thread reply are pending when the bot is killed."""
    return [*submitted(), Clicks("approval.approve", MANAGER), Waits(0.16), Dies()]


def _lost() -> list[Step]:
    """A backup with a pending PDF, record and thread reply, all of which were delivered after it."""
    return [*_killed(), Operates("backup"), Starts(), Settles(), Stops()]


def _unanswered(hours: float) -> Steps:
    return lambda: [*submitted(), Stops(), Waits(hours * 3600)]


STORIES: Final = (
    Story("first start", lambda: [Starts(), Stops()]),
    Story("create", lambda: [Types(NEW), Settles()], lambda: [Starts()]),
    Story("create, stopped at once", lambda: [Types(NEW), Stops(), Starts(), Settles()], lambda: [Starts()], apart=True),
    Story("delivered again", lambda: [Repeated(2), Settles()], created, apart=True),
    Story("create in a shared channel", lambda: [Types(NEW, channel=SHARED), Settles()], lambda: [Starts()]),
    Story(
        "the channel becomes shared",
        lambda: [Clicks(MENU, REP, value=REFRESH), Settles()],
        lambda: [*created(), Shares(), Waits(120)],
    ),
    Story("create again", lambda: [Types(NEW), Settles()], created),
    Story(
        "create another",
        lambda: [Clicks("quote.create_another", REP, whispered=True), Settles()],
        lambda: [*created(), Types(NEW), Settles()],
    ),
    Story(
        "create by a form, refresh the card",
        lambda: [Fills(REP, UNDER_A_DEAL), Settles(), Clicks(MENU, REP, value=REFRESH), Settles()],
        _for_a_deal,
    ),
    Story("write under a chosen opportunity, then its amount", lambda: [Starts(), Settles()], _under_a_deal),
    Story("open the Home tab", lambda: [OpensHome(MANAGER), Settles()], submitted),
    Story(
        "propose, confirm",
        lambda: [
            Writes("@quotebot new for Acme: 5 pro"),
            Settles(),
            Clicks("quote.create_another", REP, whispered=True),
            Settles(),
        ],
        lambda: [Starts()],
    ),
    Story(
        "read by the model",
        lambda: [Writes(UNCLEAR), Settles(), Clicks("quote.create_another", REP, whispered=True), Settles()],
        lambda: [Configures(MODEL), Starts()],
    ),
    Story("refused command", lambda: [Clicks("approval.approve", REP), Settles()], submitted),
    Story(
        "answer an hour late",
        lambda: [Starts(), Settles()],
        lambda: [*submitted(), Clicks("approval.approve", REP), Stops(), Waits(HOUR)],
        apart=True,
    ),
    Story("submit", lambda: [Clicks("quote.submit", REP), Settles()], created),
    Story(
        "submit, summed up by the model", lambda: [Clicks("quote.submit", REP), Settles()], lambda: [Configures(MODEL), *created()]
    ),
    Story("submit, nobody needed", lambda: [Clicks("quote.submit", REP), Settles()], lambda: [Starts(), Types(SMALL), Settles()]),
    Story("approve", lambda: [Clicks("approval.approve", MANAGER), Settles()], submitted),
    Story(
        "approve in a direct message",
        lambda: [Clicks("approval.approve", MANAGER, channel="D0MANAGER"), Settles()],
        submitted,
    ),
    Story(
        "approve, but no PDF can be uploaded",
        lambda: [Clicks("approval.approve", MANAGER), Settles()],
        lambda: [
            *(Configures({"retry": {"slack.file": RetryOverride(retries=0)}}), *submitted()),
            ArmsFault("slack", "5xx", "files.getUploadURLExternal"),
        ],
    ),
    Story("reject", lambda: [Rejects(MANAGER, "too cheap"), Settles()], lambda: [*submitted(), Clicks("approval.reject", MANAGER)]),
    Story("revise", lambda: [Types(f"revise {QUOTE}: 200 pro, remove support; discount 8%"), Settles()], created),
    Story("revise what is sent", lambda: [Types(f"revise {QUOTE}: discount 8%"), Settles()], _sent),
    Story(
        "revise while its PDF is due",
        lambda: [Starts(), Types(f"revise {QUOTE}: discount 12%"), Settles()],
        # Approved while rendering is paused: a notice tells it, so it is the same whether the PDF or the new version is first.
        lambda: [
            *(*submitted(), Stops(), Operates("pause_rendering"), Starts(), Clicks("approval.approve", MANAGER), Settles()),
            *(Stops(), Operates("resume_rendering")),
        ],
    ),
    Story("clone", lambda: [Types(f"clone {QUOTE} for Bolt Ltd"), Settles()], created),
    Story("cancel what waits for approval", lambda: [Types(f"cancel {QUOTE}: not wanted"), Settles()], submitted),
    Story("finalize", lambda: [Types(f"finalize {QUOTE}"), Settles()], approved),
    Story(
        "mark sent",
        lambda: [Types(f"sent {QUOTE} to buyer@acme.example"), Settles()],
        lambda: [*approved(), Types(f"finalize {QUOTE}"), Settles()],
    ),
    Story("accept", lambda: [Types(f"accept {QUOTE}"), Settles()], _sent),
    Story("lose", lambda: [Types(f"lost {QUOTE}: too expensive"), Settles()], _sent),
    Story("from the terminal", lambda: [Operates("cancel_quote"), Starts(), Settles()], lambda: [*submitted(), Stops()]),
    Story("change the ruleset", lambda: [Operates("change_ruleset"), Starts(), Types(SMALL), Settles()], _day),
    Story("refused change", lambda: [Types(f"accept {QUOTE}"), Settles()], created),
    Story("remind", _day, _unanswered(2)),
    Story("remind on the card", lambda: [Clicks("approval.remind", REP), Settles()], submitted),
    Story(
        "the approver leaves",
        _day,
        # Slack reports it when they try to approve.
        lambda: [*submitted(), Leaves(MANAGER), Waits(120), Clicks("approval.approve", MANAGER), Settles(), Stops()],
    ),
    Story("escalate", _day, _unanswered(4)),
    Story(
        "request expired, asked again",
        # If the question about the clock was lost, it is asked again after a minute; nothing expires before the answer.
        lambda: [Starts(), Settles(), Waits(7200), Settles(), Clicks("quote.submit", REP), Settles()],
        _unanswered(73),
    ),
    Story(
        "request changes",
        lambda: [Rejects(MANAGER, "leave the support out"), Settles()],
        lambda: [*submitted(), Clicks("approval.request_changes", MANAGER)],
    ),
    Story(
        "resubmit as is",
        lambda: [Fills(REP, {"approver_note": "the support is what they buy"}), Settles()],
        lambda: [
            *(*submitted(), Clicks("approval.request_changes", MANAGER), Rejects(MANAGER, "leave the support out"), Settles()),
            Clicks("quote.resubmit", REP),
        ],
    ),
    Story("revise what waits for approval", lambda: [Types(f"revise {QUOTE}: discount 12%"), Settles()], submitted),
    Story(
        "submit what got no worse",
        lambda: [Types(f"submit {QUOTE}"), Settles()],
        lambda: [*approved(), Types(f"revise {QUOTE}: discount 12%; remove sso"), Settles()],
    ),
    Story(
        "out of office, the delegate approves",
        lambda: [Types("delegate <@U0DEALDESK>", MANAGER), Settles(), Clicks("approval.approve", "U0DEALDESK"), Settles()],
        submitted,
    ),
    Story("link to a record", lambda: [Writes(LINK), Settles()], approved_at_once),
    Story("ask for the digest", lambda: [Types("digest on", REP), Settles()], lambda: [Starts()]),
    Story(
        "the daily digest",
        _day,
        # The laboratory begins at 8:00 on a Friday.
        lambda: [*approved_at_once(), Types("digest on", REP), Settles(), Stops(), Waits(3700)],
    ),
    Story(
        "recovery",
        _day,
        _killed,
    ),
    Story(
        "outage",
        lambda: [Starts(), Waits(7200), Settles()],
        lambda: [*_pending_for_crm(), ArmsFault("salesforce", "5xx", "composite/graph")],
    ),
    Story(
        "throttled",
        lambda: [Types(NEW), Settles()],
        lambda: [Starts(), ArmsFault("slack", "429", "chat.postMessage", times=2, retry_after=3)],
    ),
    Story(
        "refused login",
        lambda: [Starts(), Waits(60), ArmsFault(), Stops(), Operates("resume"), Starts(), Settles()],
        lambda: [*_pending_for_crm(), ArmsFault("salesforce", "auth_expired", "oauth2/token")],
    ),
    Story(
        "refused login, a card for the operators",
        lambda: [Starts(), Waits(60), ArmsFault(), Stops(), Operates("resume"), Starts(), Settles()],
        lambda: [
            *(Configures({"ops_channel": OPS}), *_pending_for_crm()),
            ArmsFault("salesforce", "auth_expired", "oauth2/token"),
        ],
    ),
    Story(
        "retry all in Slack",
        lambda: [Clicks("letter.replay_all", OPERATOR, channel=OPS), Settles(), Waits(7200), Settles()],
        _many_announced,
    ),
    Story("replay", lambda: [Stops(), Operates("replay"), Starts(), Settles()], _dead_crm),
    Story("discard", lambda: [Stops(), Operates("discard"), Starts(), Settles()], _dead_crm),
    Story(
        "edit and resubmit",
        lambda: [Operates("resubmit"), Starts(), Settles()],
        lambda: [Starts(), Stops(), Operates("give_up_command")],
    ),
    Story("retry in Slack", lambda: [Clicks("letter.retry", OPERATOR, channel=OPS), Settles()], _announced),
    Story(
        "discard in Slack",
        lambda: [Fills(OPERATOR, {"reason": "entered by hand"}), Settles()],
        lambda: [*_announced(), Clicks("letter.discard", OPERATOR, channel=OPS)],
    ),
    Story(
        "edit and resubmit in Slack",
        lambda: [Fills(OPERATOR, {"payload": EDITED_CREATION, "reason": "wrong customer"}), Settles(), Waits(5), Settles()],
        lambda: [
            *(Configures({"ops_channel": OPS, "operators": (OPERATOR,)}), Starts(), Stops(), Operates("give_up_command")),
            *(Starts(), Waits(10), Settles(), Clicks("letter.edit", OPERATOR, channel=OPS)),
        ],
    ),
    Story("cancel on the card", lambda: [Clicks("owed.cancel", REP), Settles()], _held_for_crm),
    Story(
        "cancel a command on the card",
        lambda: [
            *(Clicks("approval.approve", VP), Types(f"cancel {QUOTE}: not wanted"), Waits(5)),
            *(Stops(), Starts(), Waits(5), Clicks("command.cancel", REP, stale=True), Settles()),
        ],
        lambda: [Configures(SLOW_RETRIES), *submitted(), ArmsFault("slack", "5xx", "users.info")],
    ),
    Story("send again", lambda: [Stops(), Operates("resolve_send_again"), Starts(), Settles()], _dead_crm),
    Story(
        "read what changed in Salesforce",
        _day,
        lambda: [Configures(READS), *_sent(), MakesOpportunity("Acme"), Stops(), Waits(3600)],
    ),
    Story(
        "settle a difference with Salesforce",
        lambda: [Stops(), Operates("reconcile"), Starts(), Settles()],
        lambda: [Configures({"operators": (REP,)}), *approved(), ChangesCrm({"Status": "In Review"}), *_to_sent()],
    ),
    Story("pause", lambda: [Operates("pause"), Starts(), Settles()], lambda: [*submitted(), Stops()]),
    Story("cancel", lambda: [Operates("cancel_waiting", alone=True), Starts(), Settles()], _pending_for_crm),
    Story(
        "purge",
        lambda: [Operates("prune"), Starts(), Settles()],
        lambda: [*created(), Types(NEW), Settles(), Types(SMALL), Settles(), Stops(), Waits(DAYS_60)],
    ),
    Story("back up", lambda: [Operates("backup")], _day),
    Story("put back", lambda: [Operates("restore"), Starts(), Settles()], _lost),
    Story("expire", _day, lambda: [*submitted(), Stops(), Waits(DAYS_60)]),
    Story(
        "expire several",
        _day,
        lambda: [*created(), Types(SMALL), Settles(), Clicks("quote.submit", REP), Settles(), Stops(), Waits(DAYS_60)],
    ),
    Story("stale draft", _day, lambda: [*created(), Stops(), Waits(DAYS_20)]),
    Story(
        "stale draft, the clock put back and forward",
        lambda: [
            *_day(),
            PutsClock(-YEAR),
            *_day(),
            PutsClock(YEAR - HOUR),
            *_day(),
            PutsClock(HOUR),
            *_day(),
        ],
        lambda: [*created(), Stops(), Waits(DAYS_20)],
    ),
)
