"""Active rules: ruleset, policy and the settings used for decisions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from quotebot.domain.approvals import people
from quotebot.domain.approvals.people import Delegation, Kind, Person, StandIn
from quotebot.domain.approvals.reuse import TOLERANCE_PERCENT
from quotebot.domain.approvals.special_terms import unknown_terms
from quotebot.domain.catalogue.catalogue import fold
from quotebot.domain.language import _
from quotebot.domain.pricing.price_requests import PricingProblem, clipped
from quotebot.domain.schedule.schedules import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from decimal import Decimal

    from quotebot.domain.approvals.policy import ApprovalPolicy, Timing
    from quotebot.domain.catalogue.catalogue import Catalogue
    from quotebot.domain.catalogue.rulesets import Ruleset
    from quotebot.domain.pricing.price_requests import PriceRequest
    from quotebot.domain.quotes.quote import Approval

KEEP_CLOSED_MS: Final = 90 * DAY_MS  # retention of a quote's commands after the quote has ended
VALUE_CHARACTERS_MAX: Final = 100
KEEP_REFUSED_MS: Final = 30 * DAY_MS  # retention of a refused command, and of one that concerns no quote


@dataclass(frozen=True, slots=True)
class DocumentSet:
    """Stored form of all that documents are made from besides the quote, with the SHA-256 of that text.

    `templates` are the names of which a quote may choose one.
    """

    sha256: str
    content: str
    templates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AccountSegments:
    """Field of the CRM's accounts that says to which segments a customer belongs.

    `read_as` and `minutes` are the mirror's fingerprint and interval: a mirror read otherwise, or too long ago, says nothing.
    `by_value` is the segment of each value, by its folded text; empty: the value is the segment.
    """

    read_as: str
    minutes: int | None
    by_value: Mapping[str, str] = field(default_factory=dict)

    def of(self, value: str | bool | None) -> dict[str, str]:  # noqa: FBT001 -- as the CRM answers
        """Return the segments of an account by their folded names, each with the part of the field's value that names it.

        A field of several values separates them by semicolons; a checkbox has the values "true" and "false".
        """
        text = str(value).lower() if isinstance(value, bool) else value or ""
        found: dict[str, str] = {}
        for part in (" ".join(each.split()) for each in text.split(";")):
            segment = self.by_value.get(fold(part)) if self.by_value else part
            if segment:
                found.setdefault(fold(segment), clipped(part, VALUE_CHARACTERS_MAX))
        return found


@dataclass(frozen=True, slots=True)
class Rules:
    """Active ruleset and policy with the settings for decisions: role holders, validity of quotes and limits."""

    ruleset: Ruleset
    builtin_policy: ApprovalPolicy  # applies while the ruleset has none
    approvers: Mapping[str, tuple[str, ...]]  # role -> Slack user ids
    gone: frozenset[str] = frozenset()  # role holders who are no full members any more; `approvers` does not name them
    decide_in_channel: bool = True  # the card in the channel has the buttons of approvers
    valid_days: int = 30
    operators: tuple[str, ...] = ()  # Slack user ids of the people who may process dead letters and differences with Salesforce
    terminal_users: Mapping[str, str] = field(default_factory=dict)  # system user -> Slack user id
    guest_reps: tuple[str, ...] = ()  # Slack user ids of guests who may create quotes and see their own
    readings_per_day: int = 0  # model extractions per person and day; 0: no model
    summaries_per_day: int = 0  # model summaries of approval requests per person and day
    reuse_tolerance_percent: Decimal = TOLERANCE_PERCENT  # share of the approved value that a reused approval must keep
    time_zone: str = "UTC"  # IANA name, for people whose own zone Slack does not give
    zones: Mapping[str, str] = field(default_factory=dict)  # of people, by user id; read where they are needed
    account_segments: AccountSegments | None = None  # None: the CRM's accounts have no such field, or are not mirrored
    segments: Mapping[str, str] = field(default_factory=dict)  # of the customer at hand, by `AccountSegments.of`
    documents: DocumentSet | None = None  # an approved version keeps it for its document
    keep_closed_ms: int = KEEP_CLOSED_MS
    keep_refused_ms: int = KEEP_REFUSED_MS

    @property
    def catalogue(self) -> Catalogue:
        """Catalogue of the active ruleset."""
        return self.ruleset.catalogue

    @property
    def policy(self) -> ApprovalPolicy:
        """Approval policy of the active ruleset."""
        return self.ruleset.policy or self.builtin_policy

    def without(self, gone: frozenset[str]) -> Rules:
        """Return the rules without those role holders, who are no full members of the workspace any more."""
        if not gone:
            return self
        approvers = {role: tuple(user for user in users if user not in gone) for role, users in self.approvers.items()}
        return replace(self, approvers=approvers, gone=gone)

    def unknown_names(self, request: PriceRequest) -> tuple[PricingProblem, ...]:
        """Return one problem for each special term that the policy does not know, and one for an unknown document template."""
        terms, template = unknown_terms(request.terms, self.policy.known_terms), request.commercial.template
        if template is None or self.documents is None or template in self.documents.templates:
            return terms
        message = _('"{text}" is no template of a document', text=clipped(template))
        known = _("write one of {names}", names=", ".join(self.documents.templates))
        return (*terms, PricingProblem("template", message, known))

    @property
    def timing(self) -> Timing:
        """Deadlines of the policy, with the installation's time zone."""
        timing = self.policy.timing
        return timing if timing.calendar is None else replace(timing, calendar=replace(timing.calendar, zone=self.time_zone))

    @property
    def all_approvers(self) -> frozenset[str]:
        """Everyone with a role of approvers."""
        return frozenset().union(*self.approvers.values())

    @property
    def role_holders(self) -> frozenset[str]:
        """Everyone with a role in the settings; they see the quotes of every channel."""
        return self.all_approvers.union(self.operators)

    @property
    def report_readers(self) -> frozenset[str]:
        """Everyone who may read reports: operators, and the holders of the policy's desk role and of those above it."""
        roles = self.policy.roles
        return frozenset(self.operators).union(*(self.approvers.get(role, ()) for role in roles.sufficient(roles.reporting)))

    def roles_of(self, user: str) -> frozenset[str]:
        """Return every role the person holds now."""
        return people.roles_of(user, self.approvers)

    def zone_of(self, user: str) -> str:
        """Return the IANA time zone of one of the people in `zones`, else that of the installation."""
        return self.zones.get(user, self.time_zone)

    def person(self, user: str, team: str, delegations: Iterable[Delegation] = (), kind: str = "member") -> Person:
        """Return a person with their present roles and the absent people they substitute for; an unknown kind counts as a guest."""
        absent = [each.absent for each in delegations if each.delegate == user]
        stands_in_for = tuple(StandIn(each, self.roles_of(each)) for each in sorted(absent))
        known: Kind = next((each for each in people.KINDS if each == kind), "guest")
        return Person(user, team, self.roles_of(user), known, stands_in_for)

    def who_may_decide(
        self, approval: Approval, makers: tuple[str, ...], delegations: Iterable[Delegation] = ()
    ) -> tuple[str, ...]:
        """Return the people to ask now: the holders of each role asked, or of the next higher one, or their delegates.

        The quote's `makers` and the requester of the approval are not asked.
        """
        askers, away = (approval.requested_by, *makers), tuple(delegations)
        open_slots = [slot for slot in approval.slots if slot.is_open]
        asked = [user for slot in open_slots for user in people.asked_people(slot, self.approvers, away, askers, approval.roles)]
        return tuple(dict.fromkeys(asked))
