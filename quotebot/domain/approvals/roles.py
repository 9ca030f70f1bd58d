"""Roles of an approval policy: their order, authority and names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quotebot.domain.language import N_, _, either

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROLE_ID: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
LADDER: Final = ("sales_manager", "deal_desk", "vp_sales", "cfo")  # of a policy that names none: commercial roles, lowest first
ORTHOGONAL: Final = ("legal",)  # of such a policy: groups beside the ladder, independent of the commercial roles
REPORTING: Final = "deal_desk"
LEGAL: Final = "legal"
_OR: Final = " or "
_AND: Final = " + "
_NAMES: Final = {
    "sales_manager": N_("Sales Manager"),
    "deal_desk": N_("Deal Desk"),
    "vp_sales": N_("VP Sales"),
    "cfo": N_("CFO"),
    "legal": N_("Legal"),
}


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles of a policy: the ladder, lowest first, the groups beside it, and their display names where the policy gives some.

    An approval keeps the roles that it was requested under.
    """

    ladder: tuple[str, ...] = LADDER
    beside: tuple[str, ...] = ORTHOGONAL
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def every(self) -> tuple[str, ...]:
        """All roles: the ladder, then the groups beside it."""
        return (*self.ladder, *self.beside)

    @property
    def top(self) -> str:
        """Highest role of the ladder."""
        return self.ladder[-1]

    @property
    def reporting(self) -> str:
        """Lowest role that reads reports and approves the prices of a segment that the policy does not name.

        It is deal_desk where the ladder has it, else the second lowest role, on a ladder of one role that one.
        """
        return REPORTING if REPORTING in self.ladder else self.ladder[:2][-1]

    @property
    def for_terms(self) -> str:
        """Role that approves a special term for which the policy names no other.

        It is legal where the policy knows it, else the first group beside the ladder, without groups the top of the ladder.
        """
        return LEGAL if LEGAL in self.every else (*self.beside, self.top)[0]

    def sufficient(self, required: str) -> tuple[str, ...]:
        """Return the roles with the authority of `required`, lowest first; only a group beside the ladder itself satisfies it."""
        if required in self.ladder:
            return self.ladder[self.ladder.index(required) :]
        return (required,) if required in self.beside else ()

    def lowest(self, wanted: Iterable[str], held: frozenset[str]) -> str | None:
        """Return the lowest of the `held` roles that suffices for any of `wanted`, or None."""
        found = {role for each in wanted for role in self.sufficient(each) if role in held}
        return next((role for role in self.every if role in found), None)

    def words(self, role: str) -> str:
        """Return a role as people say it: "VP Sales" for "vp_sales", "Deal Desk or Legal" for "deal_desk or legal"."""
        return _AND.join(either(list(map(self._name, part.split(_OR)))) for part in role.split(_AND))

    def _name(self, role: str) -> str:
        if role in self.names:
            return self.names[role]
        return _(_NAMES[role]) if role in _NAMES else role.replace("_", " ").title()


PACKAGED: Final = Roles()
