"""Check of the mapping against an org: every object and field exists, has a fitting type and is writable by our login.

Pure: takes the answers of `describe` and returns sentences for people. A mapping that passes does not cause dead letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from adapters.salesforce.graph import STATUS_AT_FIRST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.salesforce.mapping import ChoiceMapping, CrmMapping, MirrorMapping, OpportunityMapping

_TEXT: Final = frozenset({"string", "textarea", "picklist", "email", "url", "encryptedstring", "combobox"})
_NUMBER: Final = frozenset({"double", "currency", "int", "percent", "long"})
_MONEY: Final = frozenset({"double", "currency"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requirement on a field: its type is one of `types` and, for text, it holds at least `length` characters."""

    types: frozenset[str]
    called: str
    length: int = 0


_HELD: Final[Mapping[str, Wanted]] = MappingProxyType(
    {
        "key": Wanted(frozenset({"string"}), "Text(255)", 255),
        "content_hash": Wanted(_TEXT, "Text(64)", 64),
        "name": Wanted(_TEXT, "Text(255)", 255),
        "opportunity_name": Wanted(_TEXT, "Text(120)", 120),
        "account": Wanted(_TEXT, "Text(255)", 255),
        "version": Wanted(_NUMBER, "Number"),
        "currency": Wanted(_TEXT, "Text(3) or a picklist", 3),
        "total": Wanted(_MONEY, "Currency or Number"),
        "expires_on": Wanted(frozenset({"date"}), "Date"),
        "account_id": Wanted(frozenset({"reference"}), "Lookup"),
        "tax": Wanted(_MONEY, "Currency or Number"),
        "bill_to": Wanted(_TEXT, "Text(100)", 100),
        "bill_to_email": Wanted(_TEXT, "Email or Text(80)", 80),
        "bill_to_address": Wanted(_TEXT, "Text(250)", 250),
        "vat_id": Wanted(_TEXT, "Text(30)", 30),
        "po_number": Wanted(_TEXT, "Text(40)", 40),
        "start_date": Wanted(frozenset({"date"}), "Date"),
        "payment": Wanted(_TEXT, "Text(20)", 20),
        "sku": Wanted(_TEXT, "Text(80)", 80),
        "quantity": Wanted(_NUMBER, "Number"),
        "months": Wanted(_NUMBER, "Number"),
        "unit_price": Wanted(_MONEY, "Currency or Number"),
        "discount_percent": Wanted(frozenset({"percent", "double"}), "Percent"),
        "net_amount": Wanted(_MONEY, "Currency or Number"),
        "position": Wanted(_NUMBER, "Number"),
        "status": Wanted(_TEXT, "Picklist or Text", 1),
        "parent": Wanted(frozenset({"reference"}), "Lookup or Master-Detail"),
    }
)


@dataclass(frozen=True, slots=True)
class DescribedField:
    """The relevant facts of one field. `values` are the active ones of a restricted picklist, None for any other field."""

    name: str
    type: str
    length: int
    createable: bool
    updateable: bool
    unique: bool
    external_id: bool
    must_be_given: bool
    values: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Described:
    """One object: its fields by lower-case name, and whether our login may create records of it."""

    name: str
    createable: bool
    fields: Mapping[str, DescribedField]


@dataclass(frozen=True, slots=True)
class MappingFinding:
    """One difference between the org and the mapping: the place, the problem, its consequence and the fix."""

    place: str
    what: str
    why: str
    fix: str


def read_described(answer: object) -> Described:
    """Read a describe answer. Raises ValueError when it is not one."""
    if not isinstance(answer, dict) or not isinstance(answer.get("fields"), list):
        raise ValueError("not a describe answer")  # noqa: TRY004 -- the value is external data, not an argument of a wrong type
    fields = [_field(entry) for entry in answer["fields"] if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
    return Described(
        str(answer.get("name", "")),
        answer.get("createable") is not False,
        MappingProxyType({field.name.lower(): field for field in fields}),
    )


def objects_of(mapping: CrmMapping) -> tuple[str, ...]:
    """Return the objects that the mapping names, each once, in the order of writing."""
    opportunity = tuple(part.sobject for part in (mapping.opportunity, mapping.choice) if part is not None)
    mirrored = [part.sobject for part in mapping.mirrors.values()]
    return tuple(dict.fromkeys((mapping.quote, mapping.line, mapping.document, mapping.lookup, *opportunity, *mirrored)))


def findings(mapping: CrmMapping, described: Mapping[str, Described | None]) -> tuple[MappingFinding, ...]:
    """Compare the mapping with the org. `described` has each of `objects_of`; None marks an object that does not exist."""
    found: list[MappingFinding] = []
    for name in objects_of(mapping):
        sobject = described[name]
        if sobject is None:
            fix = (
                "switch quotes on (Setup, Quote Settings), or let the integration user's permission set read it"
                if name in ("Quote", "QuoteLineItem")
                else "name another object in the mapping, or let the integration user's permission set read it"
            )
            what = "there is no such object, or our login may not see it"
            found.append(MappingFinding(name, what, "nothing of it can be written", fix))
            continue
        looker = _Looker(sobject)
        if name == mapping.quote:
            _quote(looker, mapping)
        if name == mapping.line:
            _lines(looker, mapping)
        if name == mapping.document:
            looker.makeable()
            looker.key(mapping.document_key)
            looker.there(mapping.document_parent)
        _theirs(looker, name, mapping)
        found += looker.found
    return tuple(dict.fromkeys(found))


def _theirs(looker: _Looker, name: str, mapping: CrmMapping) -> None:
    """Check objects we do not own: the lookup, the opportunity, the choice of opportunities and the mirrors."""
    if name == mapping.lookup:
        looker.there(mapping.lookup_name)
    if mapping.opportunity is not None and name == mapping.opportunity.sobject:
        _opportunity(looker, mapping.opportunity)
        if mapping.closed is not None:
            looker.there(mapping.closed)
    if mapping.choice is not None and name == mapping.choice.sobject:
        _choice(looker, mapping.choice)
    if name in {part.sobject for part in (mapping.opportunity, mapping.choice) if part is not None}:
        for following in mapping.following:
            looker.changed(following.field, "value")
            looker.holds(following.field, dict.fromkeys(following.words.values()))
    for part in mapping.mirrors.values():
        if name == part.sobject:
            _mirror(looker, part)


def _mirror(looker: _Looker, part: MirrorMapping) -> None:
    for path in (part.name, part.account, *part.facts.values()):
        if path is not None and "." not in path:  # a parent's field is checked with the parent
            looker.there(path)
    looker.offers(part.facts.get("segment", ""), part.segments)


def _quote(looker: _Looker, mapping: CrmMapping) -> None:
    looker.makeable()
    looker.key(mapping.quote_key)
    for field, held in mapping.quote_fields.items():
        looker.written(field, held)
    status = mapping.status
    looker.written(status.field, "status", later=status.owner != "immutable_after_bind")
    words = status.words.values() if status.owner != "immutable_after_bind" else (status.words[STATUS_AT_FIRST],)
    looker.holds(status.field, dict.fromkeys(words))
    link = dict.fromkeys(part.link for part in (mapping.opportunity, mapping.choice) if part is not None)
    for field in link:
        looker.written(field, "parent")
    always = () if mapping.opportunity is None else (mapping.opportunity.link,)
    looker.nothing_else_needed({mapping.quote_key, status.field, *mapping.quote_fields, *always})


def _lines(looker: _Looker, mapping: CrmMapping) -> None:
    looker.makeable()
    looker.key(mapping.line_key)
    looker.written(mapping.line_parent, "parent")
    for field, held in mapping.line_fields.items():
        looker.written(field, held)
    looker.nothing_else_needed({mapping.line_key, mapping.line_parent, *mapping.line_fields})


def _opportunity(looker: _Looker, wanted: OpportunityMapping) -> None:
    looker.makeable()
    looker.key(wanted.key)
    looker.written(wanted.amount, "total", later=True)
    for field, held in wanted.fields.items():
        looker.written(field, held)
    for field, word in wanted.given.items():
        if looker.there(field) is not None:
            looker.holds(field, {word: None})
    looker.nothing_else_needed({wanted.key, wanted.amount, *wanted.fields, *wanted.given})


def _choice(looker: _Looker, wanted: ChoiceMapping) -> None:
    for field in (wanted.name, wanted.account, wanted.closed, wanted.stage, wanted.closes, wanted.currency):
        if field is not None:
            looker.there(field)
    if wanted.amount is not None:
        looker.changed(wanted.amount, "total")


class _Looker:
    """Checker of one object; `found` collects its findings."""

    def __init__(self, sobject: Described) -> None:
        self._sobject = sobject
        self.found: list[MappingFinding] = []

    def makeable(self) -> None:
        """Check that our login may create records of the object."""
        if not self._sobject.createable:
            fix = f"give the integration user's permission set Create on {self._sobject.name}"
            self._say("", "our login may not make records of it", "nothing can be written", fix)

    def there(self, name: str) -> DescribedField | None:
        """Check that our login sees the field, and return it."""
        field = self._sobject.fields.get(name.lower())
        if field is None:
            self._say(
                name,
                "there is no such field, or our login may not see it",
                "every record that names it is refused (INVALID_FIELD)",
                "make it (Setup, Object Manager), and let the integration user's permission set read and edit it",
            )
        return field

    def key(self, name: str) -> None:
        """Check that the field is a unique external id, so that a repeated write creates no second record."""
        self.written(name, "key")
        field = self._sobject.fields.get(name.lower())
        if field is not None and not (field.unique and field.external_id):
            missing = " and ".join(word for word, has in (("External ID", field.external_id), ("Unique", field.unique)) if not has)
            why = "a repeated write could make a second record"
            self._say(name, f"it is not {missing}", why, f"edit the field and tick {missing} (case does not matter)")

    def written(self, name: str, held: str, *, later: bool = False) -> None:
        """Check that the field accepts our value: at creation and, with `later`, in updates too."""
        field = self.there(name)
        if field is None:
            return
        wanted = _HELD[held]
        if not field.createable or (later and not field.updateable):
            fix = "give the integration user's permission set edit access to it (field-level security)"
            self._say(name, "our login may not write it", "every record is refused (INVALID_FIELD_FOR_INSERT_UPDATE)", fix)
        if field.type not in wanted.types:
            why = f"it is to hold our {held.replace('_', ' ')}"
            self._say(name, f"it is a {field.type} field", why, f"make it {wanted.called}, or map another field")
        elif field.type in _TEXT and field.values is None and 0 < field.length < wanted.length:
            why = f"our {held.replace('_', ' ')} may be longer (STRING_TOO_LONG)"
            self._say(name, f"it takes {field.length} characters", why, f"make it {wanted.called}")

    def changed(self, name: str, held: str) -> None:
        """Check that our login may update the field of a record we did not create."""
        field = self.there(name)
        if field is not None and not field.updateable:
            fix = "give the integration user's permission set edit access to it (field-level security)"
            self._say(name, "our login may not write it", f"our {held} is refused (INVALID_FIELD_FOR_INSERT_UPDATE)", fix)

    def holds(self, name: str, words: Mapping[str, None]) -> None:
        """Check that a restricted picklist has the values we write."""
        field = self._sobject.fields.get(name.lower())
        missing = [] if field is None or field.values is None else [word for word in words if word not in field.values]
        if missing:
            why = "a record with it is refused (INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST)"
            self._say(name, f"it has no value {', '.join(map(repr, missing))}", why, "add the value, or map another word")

    def offers(self, name: str, words: Mapping[str, str]) -> None:
        """Check that a restricted picklist has the values that we read."""
        field = self._sobject.fields.get(name.lower())
        missing = [] if field is None or field.values is None else [word for word in words if word not in field.values]
        if missing:
            fix = "correct the value in the mapping, or add it to the field"
            self._say(name, f"it has no value {', '.join(map(repr, missing))}", "no account gets the segment of it", fix)

    def nothing_else_needed(self, given: set[str]) -> None:
        """Check that the mapping gives every field the org requires."""
        known = {name.lower() for name in given}
        for name, field in self._sobject.fields.items():
            if field.must_be_given and field.createable and name not in known:
                why = "every record without it is refused (REQUIRED_FIELD_MISSING)"
                self._say(field.name, "the org asks for it and the mapping does not give it", why, "map it, or make it optional")

    def _say(self, field: str, what: str, why: str, fix: str) -> None:
        place = f"{self._sobject.name}.{field}" if field else self._sobject.name
        self.found.append(MappingFinding(place, what, why, fix))


def _field(entry: Mapping[str, Any]) -> DescribedField:
    length = entry.get("length")
    picklist = entry.get("picklistValues")
    restricted = entry.get("restrictedPicklist") is True and isinstance(picklist, list)
    return DescribedField(
        name=entry["name"],
        type=str(entry.get("type", "")),
        length=length if isinstance(length, int) else 0,
        createable=entry.get("createable") is True,
        updateable=entry.get("updateable") is True,
        unique=entry.get("unique") is True,
        external_id=entry.get("externalId") is True,
        must_be_given=entry.get("nillable") is False and entry.get("defaultedOnCreate") is not True,
        values=frozenset(str(one["value"]) for one in picklist or () if isinstance(one, dict) and one.get("active") is not False)
        if restricted
        else None,
    )
