"""Document of an approval policy: read from TOML, or from plain data; its canonical form; comparison and lint. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

from quotebot.domain import money
from quotebot.domain.approvals.calendars import calendar_document, read_calendar
from quotebot.domain.approvals.policy import (
    ANY_FAMILY,
    BLOCKED,
    HOUR_MS,
    NOBODY,
    ApprovalPolicy,
    Threshold,
    Timing,
)
from quotebot.domain.approvals.roles import PACKAGED, ROLE_ID, Roles
from quotebot.domain.catalogue.reader import DocumentError, read_toml
from quotebot.domain.language import LANGUAGES
from quotebot.domain.pricing.price_requests import TERM_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from decimal import Decimal

HOURS_MAX: Final = 24 * 365
ROLES_MAX: Final = 12
MARKUP: Final = "<>&*_~`|"  # characters that have a meaning in Slack's texts
ROLE_NAME: Final = re.compile(f"[^{MARKUP}]{{1,40}}")
TERM_WORDS: Final = re.compile(f"[^{MARKUP}]{{1,60}}")
RESERVED: Final = frozenset({NOBODY, BLOCKED, "or", "and"})  # words that stand where roles do
KEYS: Final = (
    "name",
    "version",
    "currency",
    "discount",
    "total",
    "margin",
    "term",
    "quantity",
    "segment",
    "payment",
    "price",
    "terms",
    "routing",
    "calendar",
    "roles",
)


class PolicyError(ValueError):
    """The policy text is invalid; the message names the place and the remedy."""


def parse_policy(toml_text: str) -> ApprovalPolicy:
    """Build a policy from TOML. Raises PolicyError naming the first invalid place."""
    try:
        data = read_toml(toml_text)
    except DocumentError as error:
        raise PolicyError(f"the policy is not valid TOML: {error}") from error
    return read_policy(data)


def read_policy(data: Mapping[str, Any]) -> ApprovalPolicy:
    """Build a policy from plain data (TOML, JSON, or YAML with all scalars as text). Raises PolicyError as `parse_policy` does."""
    currency = _text(data, "currency")
    try:
        money.exponent(currency)
    except ValueError as error:
        raise PolicyError(f"currency: {error}") from error
    discount, totals, margins = (_table(data, key) for key in ("discount", "total", "margin"))
    roles = read_roles(data.get("roles"))
    rungs = _ascending(discount, "discount", "percent", roles)
    blocked_over = _number(discount.get("blocked_over"), "discount.blocked_over")
    if rungs and blocked_over < rungs[-1].limit:
        raise PolicyError("discount.blocked_over: must not be below the last discount.over, or that row could never apply")
    quantities = _table(data, "quantity") if "quantity" in data else {}
    legal, other, groups, term_names = _terms(data.get("terms", {}), roles)
    segments = _table(data, "segment") if "segment" in data else {}
    unknown = [key for key in data if key not in KEYS]
    if unknown:
        raise PolicyError(f"{unknown[0]}: unknown; known are {', '.join(KEYS)}")
    return ApprovalPolicy(
        name=_text(data, "name"),
        version=_text(data, "version"),
        currency=currency,
        discount_blocked_over=blocked_over,
        discount_over=rungs,
        total_over=_ascending(totals, "total", "amount", roles),
        margin_under={family: _floor(row, f"margin.{family}", roles) for family, row in margins.items()},
        legal_terms=legal,
        other_terms=other,
        term_groups=groups,
        term_names=term_names,
        months_over=_ascending(_table(data, "term"), "term", "months", roles) if "term" in data else (),
        quantity_over={sku: _threshold(row, f"quantity.{sku}", "over", roles) for sku, row in quantities.items()},
        segment_roles={name.casefold(): _segment_role(role, f"segment.{name}", roles) for name, role in segments.items()},
        payment_over=_ascending(_table(data, "payment"), "payment", "days", roles) if "payment" in data else (),
        under_price_floor=_under_price_floor(_table(data, "price"), roles) if "price" in data else roles.top,
        roles=roles,
        **_routing(data.get("routing", {}), data.get("calendar")),
    )


def policy_document(policy: ApprovalPolicy) -> dict[str, Any]:
    """Return the canonical document: JSON-ready, in a fixed order, numbers as text. `read_policy` reads it back.

    Optional tables that say nothing are left out.
    """
    document: dict[str, Any] = {
        "name": policy.name,
        "version": policy.version,
        "currency": policy.currency,
        "discount": {
            "blocked_over": money.trimmed(policy.discount_blocked_over),
            "over": [_row("percent", rule) for rule in policy.discount_over],
        },
        "total": {"over": [_row("amount", rule) for rule in policy.total_over]},
        "margin": {family: _row("under", rule) for family, rule in sorted(policy.margin_under.items())},
    }
    if policy.months_over:
        document["term"] = {"over": [_row("months", rule) for rule in policy.months_over]}
    if policy.quantity_over:
        document["quantity"] = {sku: _row("over", rule) for sku, rule in sorted(policy.quantity_over.items())}
    if policy.segment_roles:
        document["segment"] = dict(sorted(policy.segment_roles.items()))
    if policy.payment_over:
        document["payment"] = {"over": [_row("days", rule) for rule in policy.payment_over]}
    if policy.under_price_floor != policy.roles.top:
        document["price"] = {"under_floor": policy.under_price_floor}
    document["terms"] = {"legal": sorted(policy.legal_terms), "other": sorted(policy.other_terms)}
    if policy.term_groups:
        document["terms"]["groups"] = dict(sorted(policy.term_groups.items()))
    if policy.term_names:
        document["terms"]["names"] = {
            language: dict(sorted(names.items())) for language, names in sorted(policy.term_names.items())
        }
    timing = (policy.timing.remind_ms, policy.timing.escalate_ms, policy.timing.expire_ms)
    hours = {name: milliseconds // HOUR_MS for name, milliseconds in zip(_TIMES, timing, strict=True)}
    document["routing"] = {"full_ladder": policy.full_ladder, "order": policy.order, **hours}
    if policy.timing.calendar is not None:
        document["calendar"] = calendar_document(policy.timing.calendar)
    if policy.roles != PACKAGED:
        document["roles"] = roles_document(policy.roles)
    return document


def roles_document(roles: Roles) -> dict[str, Any]:
    """Return the canonical form of roles: JSON-ready. `read_roles` reads it back."""
    document: dict[str, Any] = {"ladder": list(roles.ladder), "beside": list(roles.beside)}
    return document | ({"names": dict(sorted(roles.names.items()))} if roles.names else {})


def read_roles(table: Any) -> Roles:
    """Read the optional [roles] table; each part that it lacks is as in the policy that ships with the bot. Raises PolicyError."""
    table = {} if table is None else table
    if not isinstance(table, dict) or not set(table) <= {"ladder", "beside", "names"}:
        raise PolicyError("roles: may only have ladder, beside and names")
    ladder = _role_ids(table["ladder"], "roles.ladder") if "ladder" in table else PACKAGED.ladder
    beside = _role_ids(table["beside"], "roles.beside") if "beside" in table else PACKAGED.beside
    names = table.get("names", {})
    if not ladder:
        raise PolicyError("roles.ladder: must have a role, which approves what nobody else is named for")
    if len(set(ladder + beside)) < len(ladder + beside):
        raise PolicyError("roles: each role must be named once, on the ladder or beside it")
    if len(ladder + beside) > ROLES_MAX:
        raise PolicyError(f"roles: at most {ROLES_MAX} roles are possible")
    if not isinstance(names, dict) or not set(names) <= {*ladder, *beside}:
        raise PolicyError("roles.names: must be a table with a name for some of the roles")
    for role, name in names.items():
        if not isinstance(name, str) or not ROLE_NAME.fullmatch(name.strip()) or not name.isprintable():
            raise PolicyError(f"roles.names.{role}: must have 1 to 40 characters, none of {' '.join(MARKUP)}")
    return Roles(ladder, beside, {role: name.strip() for role, name in names.items()})


def _role_ids(names: Any, place: str) -> tuple[str, ...]:
    if not isinstance(names, list):
        raise PolicyError(f"{place}: must be a list of roles")
    for name in names:
        if not isinstance(name, str) or not ROLE_ID.fullmatch(name) or name in RESERVED:
            raise PolicyError(f"{place}: {name!r} is no name of a role: write lower-case letters, digits and _, such as team_lead")
    return tuple(names)


def _row(key: str, rule: Threshold) -> dict[str, Any]:
    found: dict[str, Any] = {key: money.trimmed(rule.limit)}
    if rule.more:
        found |= {"roles": [rule.role, *rule.more], "roles_needed": rule.roles_needed}
    else:
        found["role"] = rule.role
    if rule.people != "any":
        found["people"] = rule.people
    if rule.dual_control:
        found["dual_control"] = True
    return found


def lint_policy(
    policy: ApprovalPolicy, families: Iterable[str], skus: Iterable[str], holders: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Return every finding about a policy beside a catalogue and the holders of roles, one sentence each, in a fixed order."""
    return (*_unruled(policy, frozenset(families), frozenset(skus)), *_unheld(policy, holders))


def _unruled(policy: ApprovalPolicy, families: frozenset[str], skus: frozenset[str]) -> Iterator[str]:
    for family in sorted(families):
        if policy.floor(family) is None:
            yield f"{family} has no margin floor, so each quote with such a product needs {policy.roles.top}"
    for family in sorted(set(policy.margin_under) - families - {ANY_FAMILY}):
        yield f"margin.{family} applies to nothing: no product has this family"
    for sku in sorted(set(policy.quantity_over) - skus):
        yield f"quantity.{sku} applies to nothing: there is no such product"
    for language, names in sorted(policy.term_names.items()):
        for term in sorted(policy.known_terms - set(names)):
            yield f"{term} has no name in terms.names.{language}, so people read its id in words"
    if not policy.discount_over:
        yield f"no discount needs approval up to {money.format_percent(policy.discount_blocked_over)}"


def _unheld(policy: ApprovalPolicy, holders: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    rules = (*policy.discount_over, *policy.total_over, *policy.margin_under.values(), *policy.months_over, *policy.payment_over)
    named = {role for rule in (*rules, *policy.quantity_over.values()) for role in (rule.role, *rule.more)}
    named |= {policy.roles.for_terms} if policy.legal_terms else set()
    named |= set(policy.term_groups.values())
    named |= set(policy.segment_roles.values()) - {NOBODY, BLOCKED}
    named |= {policy.under_price_floor} - {BLOCKED, policy.roles.top}  # the default names nobody in particular
    for role in policy.roles.every:
        _same, *above = policy.roles.sufficient(role)
        if role in named and not holders.get(role):
            instead = next((each for each in above if holders.get(each)), None)
            yield f"{role} has no holder" + (
                f"; {instead} is asked instead" if instead else ", and nobody above it: nobody can approve"
            )
    if policy.roles != PACKAGED:
        yield from _unnamed(policy, named)
    for role in sorted(set(holders) - set(policy.roles.every)):
        yield f"approvers has people for {role}, a role that the policy does not know"


def _unnamed(policy: ApprovalPolicy, named: set[str]) -> Iterator[str]:
    """Yield the roles that approve nothing, except by the default of a rule or in place of a lower role."""
    ladder = policy.roles.ladder
    highest = max((ladder.index(role) for role in named if role in ladder), default=-1)
    passed = set(ladder[:highest]) if policy.full_ladder else set()
    for role in policy.roles.every:
        if role not in named | passed | {policy.roles.top}:
            yield f"no rule names {role}"


def _floor(row: Any, place: str, roles: Roles) -> Threshold:
    floor = _threshold(row, place, "under", roles)
    if floor.limit > money.HUNDRED:
        raise PolicyError(f"{place}.under: no margin is over 100 %, so nothing could ever meet this floor")
    return floor


def _segment_role(role: Any, place: str, roles: Roles) -> str:
    if role not in (*roles.every, NOBODY, BLOCKED):
        raise PolicyError(f"{place}: {role!r} must be one of {', '.join((*roles.every, NOBODY, BLOCKED))}")
    return str(role)


def _under_price_floor(table: dict[str, Any], roles: Roles) -> str:
    role = table.get("under_floor")
    if set(table) != {"under_floor"} or role not in (*roles.every, BLOCKED):
        raise PolicyError(f"price: must have under_floor, which is one of {', '.join((*roles.every, BLOCKED))}")
    return str(role)


def _terms(table: Any, roles: Roles) -> tuple[frozenset[str], frozenset[str], dict[str, str], dict[str, dict[str, str]]]:
    """Read the optional [terms] table: terms that also need legal, other permitted ones, those of other roles, and their names."""
    if not isinstance(table, dict) or not set(table) <= {"legal", "other", "groups", "names"}:
        raise PolicyError("terms: may only have legal, other, groups and names")
    legal, other = (_names(table.get(key, []), f"terms.{key}") for key in ("legal", "other"))
    if both := legal & other:
        raise PolicyError(f"terms.other: {min(both)} needs legal already; keep it in one list")
    groups = table.get("groups", {})
    if not isinstance(groups, dict):
        raise PolicyError("terms.groups: must be a table of terms with the role that each needs")
    if both := _names(list(groups), "terms.groups") & (legal | other):
        raise PolicyError(f"terms.groups: {min(both)} is in another list already; keep it in one")
    for term, role in groups.items():
        if role not in roles.every:
            raise PolicyError(f"terms.groups.{term}: {role!r} must be one of {', '.join(roles.every)}")
    names = _term_names(table.get("names", {}), legal | other | set(groups))
    return legal, other, {term: str(role) for term, role in groups.items()}, names


def _term_names(names: Any, known: frozenset[str]) -> dict[str, dict[str, str]]:
    """Read the optional names of terms, by language. A language without a name is left out."""
    if not isinstance(names, dict) or not set(names) <= set(LANGUAGES):
        raise PolicyError(f"terms.names: may only have tables for the languages {', '.join(LANGUAGES)}")
    for language, table in names.items():
        if not isinstance(table, dict):
            raise PolicyError(f"terms.names.{language}: must be a table with a name for each term")
        for term, name in table.items():
            if term not in known:
                raise PolicyError(f"terms.names.{language}.{term}: the policy lists no such term; remove its name")
            if not isinstance(name, str) or not TERM_WORDS.fullmatch(name.strip()) or not name.isprintable():
                raise PolicyError(f"terms.names.{language}.{term}: must have 1 to 60 characters, none of {' '.join(MARKUP)}")
    return {language: {term: name.strip() for term, name in table.items()} for language, table in names.items() if table}


def _names(names: Any, place: str) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) and TERM_NAME.fullmatch(name) for name in names):
        raise PolicyError(f"{place}: must be a list of the names of terms, such as liability_cap")
    return frozenset(names)


def _routing(table: Any, hours_of_work: Any) -> dict[str, Any]:
    """Read the optional tables [routing] (full_ladder, order, and the hours of the deadlines) and [calendar]."""
    known = {"full_ladder", "order", "remind_hours", "escalate_hours", "expire_hours"}
    if not isinstance(table, dict) or not set(table) <= known:
        raise PolicyError(f"routing: may only have {', '.join(sorted(known))}")
    full_ladder, order = table.get("full_ladder", False), table.get("order", "parallel")
    full_ladder = _flag(full_ladder, "routing.full_ladder")
    if order not in ("parallel", "sequential"):
        raise PolicyError(f"routing.order: {order!r} must be parallel or sequential")
    hours = {name: _hours(table, name, default // HOUR_MS) for name, default in _TIMES.items()}
    if not hours["remind_hours"] < hours["escalate_hours"] < hours["expire_hours"]:
        raise PolicyError("routing: remind_hours must be less than escalate_hours, and that less than expire_hours")
    try:
        calendar = None if hours_of_work is None else read_calendar(hours_of_work)
    except ValueError as error:
        raise PolicyError(f"calendar.{error}") from error
    remind_ms, escalate_ms, expire_ms = (hours[name] * HOUR_MS for name in _TIMES)
    timing = Timing(remind_ms, escalate_ms, expire_ms, calendar)
    return {"full_ladder": full_ladder, "order": order, "timing": timing}


_TIMES = {"remind_hours": Timing().remind_ms, "escalate_hours": Timing().escalate_ms, "expire_hours": Timing().expire_ms}


def _hours(table: dict[str, Any], name: str, default: int) -> int:
    value = table.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(HOURS_MAX)):
        value = int(value)  # YAML is read as text
    if type(value) is not int or not 1 <= value <= HOURS_MAX:
        raise PolicyError(f"routing.{name}: {value!r} must be a whole number of hours from 1 to {HOURS_MAX:,}")
    return value


def _ascending(table: dict[str, Any], place: str, key: str, roles: Roles) -> tuple[Threshold, ...]:
    rows = table.get("over")
    if not isinstance(rows, list):
        raise PolicyError(f"{place}.over: must be a list of {{ {key}, role }}")
    found = tuple(_threshold(row, f"{place}.over[{number}]", key, roles) for number, row in enumerate(rows, start=1))
    for number, (low, high) in enumerate(pairwise(found), start=2):
        if not low.limit < high.limit:
            raise PolicyError(f"{place}.over[{number}].{key}: must be larger than the row before it")
        if low.role in roles.sufficient(high.role)[1:]:
            raise PolicyError(f"{place}.over[{number}].role: a larger {key} must not need a lower role")
    return found


def _threshold(row: Any, place: str, key: str, roles: Roles) -> Threshold:
    """Read { <key>, role } or { <key>, roles, roles_needed }; both may have people and dual_control."""
    if not isinstance(row, dict) or key not in row or not set(row) <= {key, *_ROUTES} or ("role" in row) == ("roles" in row):
        raise PolicyError(f"{place}: must be {{ {key}, role }}; roles, roles_needed, people and dual_control are possible too")
    needed = row.get("roles", [row.get("role")])
    if not isinstance(needed, list) or not needed or len(set(map(str, needed))) != len(needed):
        raise PolicyError(f"{place}.roles: must be a list of different roles")
    for role in needed:
        if role not in roles.every:
            raise PolicyError(f"{place}.role: {role!r} must be one of {', '.join(roles.every)}")
    dual_control = _flag(row.get("dual_control", False), f"{place}.dual_control")
    return Threshold(
        limit=_number(row[key], f"{place}.{key}"),
        role=needed[0],
        more=tuple(needed[1:]),
        roles_needed=_any_or_all(row, "roles_needed", "all", place),
        people=_any_or_all(row, "people", "any", place),
        dual_control=dual_control,
    )


_ROUTES = frozenset({"role", "roles", "roles_needed", "people", "dual_control"})


def _any_or_all(row: dict[str, Any], key: str, default: Literal["any", "all"], place: str) -> Literal["any", "all"]:
    value = row.get(key, default)
    if value not in ("any", "all"):
        raise PolicyError(f'{place}.{key}: {value!r} must be "any" or "all"')
    return "any" if value == "any" else "all"


def _flag(value: Any, place: str) -> bool:
    if isinstance(value, str) and value in ("true", "false"):  # YAML is read as text
        return value == "true"
    if not isinstance(value, bool):
        raise PolicyError(f"{place}: {value!r} must be true or false")
    return value


def _number(value: Any, place: str) -> Decimal:
    try:
        number = money.exact(value)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{place}: {value!r} must be a number") from error
    if number < 0:
        raise PolicyError(f"{place}: {value!r} must not be negative")
    return number


def _table(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = data.get(key)
    if not isinstance(table, dict):
        raise PolicyError(f"{key}: a [{key}] table is needed")
    return table


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value.strip():
        raise PolicyError(f"{key}: {value!r} must be a non-empty text")
    return value
