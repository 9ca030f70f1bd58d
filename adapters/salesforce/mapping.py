"""Mapping of our attributes to the org's objects and fields, read from salesforce.toml or an installation's copy of it."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

Owner = Literal["crm_wins", "local_wins", "merge", "immutable_after_bind"]
OWNERS: Final = ("crm_wins", "local_wins", "merge", "immutable_after_bind")
STATUSES: Final = ("approved", "sent", "accepted", "lost", "cancelled", "expired", "superseded")
# Attributes that not every quote has. Without a value their fields are left out.
OPTIONAL_ATTRIBUTES: Final = (
    *("account_id", "tax", "bill_to", "bill_to_email", "bill_to_address", "vat_id", "po_number", "start_date", "payment"),
)
QUOTE_ATTRIBUTES: Final = (
    *("content_hash", "name", "account", "version", "currency", "total", "expires_on"),
    *OPTIONAL_ATTRIBUTES,
)
OPPORTUNITY_ATTRIBUTES: Final = ("opportunity_name", "account", "currency", "expires_on", "account_id")
LINE_ATTRIBUTES: Final = ("sku", "name", "quantity", "months", "unit_price", "discount_percent", "net_amount", "position")
LOSS_REASONS: Final = ("price", "competitor", "timing", "no_decision", "other")
MIRROR_FACTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "accounts": ("segment",),
        "contacts": ("email",),
        "opportunities": ("closed", "stage", "closes", "currency", "amount"),
        "prices": ("sku", "book", "price", "currency", "active"),
    }
)
MIRRORS: Final = tuple(MIRROR_FACTS)
NEEDED: Final = ("content_hash", "name", "version")  # without them a repeated or stale write could not be detected
SCHEMA: Final = 1
# Names are inserted into URLs and queries, so only the characters that Salesforce allows in an API name are valid.
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")
_WORD_CHARACTERS_MAX: Final = 255


class MappingFileError(ValueError):
    """The mapping is invalid; the message names every error, one per line."""


@dataclass(frozen=True, slots=True)
class StatusMapping:
    """Field of a version's status, the owner of the field once the record exists, and the field's values by our status."""

    field: str
    owner: Owner
    words: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OpportunityMapping:
    """Opportunity that is created with a quote's first record: `link` is the quote's field that names it.

    `fields` and the constants of `given` are written once; Salesforce's users own them afterwards. `amount` follows the quote.
    """

    sobject: str
    key: str
    link: str
    amount: str
    fields: Mapping[str, str]
    given: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChoiceMapping:
    """Existing opportunities, one of which may be chosen for a quote: `link` is the quote's field that names it.

    `amount` follows the quote, or is None and never written. `currency` is None for an org that has only one.
    """

    sobject: str
    name: str
    account: str
    closed: str
    stage: str
    closes: str
    link: str
    amount: str | None
    currency: str | None

    @property
    def account_relationship(self) -> str:
        """Relationship name of the account in queries: Account for AccountId, Customer__r for Customer__c."""
        custom = self.account.endswith("__c")
        return f"{self.account.removesuffix('__c')}__r" if custom else self.account.removesuffix("Id")


@dataclass(frozen=True, slots=True)
class FollowingMapping:
    """Field of a quote's opportunity that follows the quote: its owner, and its values by our status or reason.

    `replaces` holds values of people that count as ours: they may be overwritten.
    """

    field: str
    owner: Owner
    words: Mapping[str, str]
    replaces: frozenset[str]


@dataclass(frozen=True, slots=True)
class MirrorMapping:
    """Object that is copied by the sync: paths of fields relative to the record. `facts` maps our name to the path.

    `segments` maps values of an account's segment field to segments of the price books; empty: a value is the segment.
    """

    sobject: str
    name: str
    account: str | None
    facts: Mapping[str, str]
    segments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CrmMapping:
    """The whole mapping. `quote_fields` and `line_fields` map the org's field to our attribute, in the order of writing."""

    quote: str
    quote_key: str
    quote_fields: Mapping[str, str]
    line: str
    line_key: str
    line_parent: str
    line_fields: Mapping[str, str]
    status: StatusMapping
    document: str
    document_key: str
    document_parent: str
    lookup: str
    lookup_name: str
    opportunity: OpportunityMapping | None = None
    choice: ChoiceMapping | None = None
    stage: FollowingMapping | None = None
    loss_reason: FollowingMapping | None = None
    amount_owner: Owner = "local_wins"
    mirrors: Mapping[str, MirrorMapping] = field(default_factory=dict)

    @property
    def following(self) -> tuple[FollowingMapping, ...]:
        """Fields of the opportunity that follow the quote's status, stage first."""
        return tuple(each for each in (self.stage, self.loss_reason) if each is not None)

    @property
    def closed(self) -> str | None:
        """Field that tells whether our own opportunity is closed: that of the choice among the same object, or the standard one."""
        if self.opportunity is None:
            return None
        if self.choice is not None and self.choice.sobject == self.opportunity.sobject:
            return self.choice.closed
        return "IsClosed" if self.opportunity.sobject == "Opportunity" else None

    def field_of(self, attribute: str) -> str:
        """Return the quote's field that holds one of NEEDED."""
        return next(field for field, held in self.quote_fields.items() if held == attribute)


@cache
def default_mapping() -> CrmMapping:
    """Return the mapping that ships with this build."""
    return read_mapping(files("adapters.salesforce").joinpath("salesforce.toml").read_text("utf-8"))


def read_mapping(text: str) -> CrmMapping:
    """Parse a mapping file. Raises MappingFileError naming all its errors at once."""
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise MappingFileError(f"it is not TOML: {error}") from error
    except RecursionError as error:
        raise MappingFileError("it is not TOML: it is nested too deeply") from error
    return _Reader(content).read()


class _Reader:
    """Parser of one mapping file; `_wrong` collects its errors."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content
        self._wrong: list[str] = []

    def read(self) -> CrmMapping:
        if self._content.get("schema") != SCHEMA:
            raise MappingFileError(f"schema must be {SCHEMA}")
        known = {
            "schema",
            "quote",
            "line",
            "status",
            "document",
            "lookup",
            "opportunity",
            "opportunity_choice",
            "opportunity_fields",
            "mirror",
        }
        self._wrong += [f"{name}: there is no such part" for name in self._content if name not in known]
        mapping = CrmMapping(
            quote=self._name("quote", "object"),
            quote_key=self._name("quote", "key"),
            quote_fields=self._fields("quote", QUOTE_ATTRIBUTES, NEEDED),
            line=self._name("line", "object"),
            line_key=self._name("line", "key"),
            line_parent=self._name("line", "parent"),
            line_fields=self._fields("line", LINE_ATTRIBUTES, ("position",)),
            status=self._status(),
            document=self._name("document", "object"),
            document_key=self._name("document", "key"),
            document_parent=self._name("document", "parent"),
            lookup=self._name("lookup", "object"),
            lookup_name=self._name("lookup", "name"),
            opportunity=self._opportunity() if "opportunity" in self._content else None,
            choice=self._choice() if "opportunity_choice" in self._content else None,
            stage=self._following("stage", STATUSES),
            loss_reason=self._following("loss_reason", LOSS_REASONS),
            amount_owner=self._amount_owner(),
            mirrors=self._mirrors(),
        )
        opportunities = [part for part in (mapping.opportunity, mapping.choice) if part is not None]
        if mapping.following and not opportunities:
            self._wrong.append("opportunity_fields: there is neither [opportunity] nor [opportunity_choice]")
        for part, name in (("quote.fields", mapping.quote_key), ("quote.fields", mapping.status.field)):
            if name in mapping.quote_fields:
                self._wrong.append(f"{part}: {name} is written already, as the key or the status")
        if mapping.opportunity is not None and mapping.opportunity.link in mapping.quote_fields:
            self._wrong.append(f"quote.fields: {mapping.opportunity.link} is written already, as the opportunity")
        if mapping.choice is not None and mapping.choice.link in mapping.quote_fields:
            self._wrong.append(f"quote.fields: {mapping.choice.link} is written already, as the chosen opportunity")
        if mapping.line_key in mapping.line_fields or mapping.line_parent in mapping.line_fields:
            self._wrong.append("line.fields: the key and the parent are written already")
        if self._wrong:
            raise MappingFileError("\n".join(self._wrong))
        return mapping

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self._content.get(name)
        return part if isinstance(part, dict) else {}

    def _name(self, part: str, item: str) -> str:
        found = self._part(part).get(item)
        if isinstance(found, str) and _NAME.fullmatch(found):
            return found
        self._wrong.append(f"{part}.{item} must be an API name, such as Quotebot_Key__c")
        return ""

    def _fields(self, part: str, attributes: tuple[str, ...], needed: tuple[str, ...]) -> Mapping[str, str]:
        fields = self._part(part).get("fields")
        if not isinstance(fields, dict):
            self._wrong.append(f"{part}.fields is missing")
            return {}
        self._wrong += [f"{part}.fields: {name} is not an API name" for name in fields if not _NAME.fullmatch(name)]
        self._wrong += [
            f"{part}.fields.{name}: there is no {held!r}; there is {', '.join(attributes)}"
            for name, held in fields.items()
            if held not in attributes
        ]
        self._wrong += [f"{part}.fields: nothing holds {name}" for name in needed if name not in fields.values()]
        return MappingProxyType({str(name): str(held) for name, held in fields.items()})

    def _opportunity(self) -> OpportunityMapping:
        part = "opportunity"
        fields = self._fields(part, OPPORTUNITY_ATTRIBUTES, ())
        given = self._part(part).get("given", {})
        usable = isinstance(given, dict) and all(_NAME.fullmatch(name) and _is_word(word) for name, word in given.items())
        if not usable:
            self._wrong.append(f"{part}.given must hold API names, each with the text to write")
        found = OpportunityMapping(
            sobject=self._name(part, "object"),
            key=self._name(part, "key"),
            link=self._name(part, "link"),
            amount=self._name(part, "amount"),
            fields=fields,
            given=MappingProxyType(dict(given) if usable else {}),
        )
        written = [found.key, found.amount, *found.fields, *found.given]
        self._wrong += [f"{part}: {name} is written twice" for name in dict.fromkeys(written) if written.count(name) > 1]
        return found

    def _choice(self) -> ChoiceMapping:
        part = "opportunity_choice"
        may_lack = {name: self._name(part, name) if name in self._part(part) else None for name in ("amount", "currency")}
        return ChoiceMapping(
            sobject=self._name(part, "object"),
            name=self._name(part, "name"),
            account=self._name(part, "account"),
            closed=self._name(part, "closed"),
            stage=self._name(part, "stage"),
            closes=self._name(part, "closes"),
            link=self._name(part, "link"),
            amount=may_lack["amount"],
            currency=may_lack["currency"],
        )

    def _following(self, name: str, known: tuple[str, ...]) -> FollowingMapping | None:
        """Read one part of [opportunity_fields]; a word that is left out leaves the field as it is."""
        part = f"opportunity_fields.{name}"
        given = self._part("opportunity_fields").get(name)
        if given is None:
            return None
        content = given if isinstance(given, dict) else {}
        self._wrong += [f"{part}: there is no {item!r}" for item in content if item not in (*known, "field", "owner", "replaces")]
        words = {item: content[item] for item in known if item in content}
        replaces = content.get("replaces", [])
        if not isinstance(replaces, list):
            self._wrong.append(f"{part}.replaces must be a list of the field's values")
            replaces = []
        if not words or not all(map(_is_word, (*words.values(), *replaces))):
            self._wrong.append(f"{part} must hold values of the field, by {', '.join(known)}")
        if content.get("owner") not in OWNERS:
            self._wrong.append(f"{part}.owner must be one of {', '.join(OWNERS)}")
        field_name = content.get("field")
        if not isinstance(field_name, str) or not _NAME.fullmatch(field_name):
            self._wrong.append(f"{part}.field must be an API name, such as StageName")
        shown = MappingProxyType({name: str(word) for name, word in words.items()})
        return FollowingMapping(str(field_name), cast("Owner", content.get("owner")), shown, frozenset(map(str, replaces)))

    def _amount_owner(self) -> Owner:
        amount = self._part("opportunity_fields").get("amount", {"owner": "local_wins"})
        if not isinstance(amount, dict) or set(amount) != {"owner"} or amount["owner"] not in OWNERS:
            self._wrong.append(f"opportunity_fields.amount must hold owner, which is one of {', '.join(OWNERS)}")
            return "local_wins"
        return cast("Owner", amount["owner"])

    def _mirrors(self) -> Mapping[str, MirrorMapping]:
        parts = self._content.get("mirror", {})
        if not isinstance(parts, dict):
            self._wrong.append("mirror holds parts, such as [mirror.accounts]")
            return {}
        self._wrong += [
            f"mirror.{kind}: there is no such part; there is {', '.join(MIRRORS)}" for kind in parts if kind not in MIRRORS
        ]
        return MappingProxyType({kind: self._mirror(kind, part) for kind, part in parts.items() if kind in MIRRORS})

    def _mirror(self, kind: str, part: object) -> MirrorMapping:
        given = part if isinstance(part, dict) else {}
        facts = given.get("facts", {})
        known = MIRROR_FACTS[kind]
        usable = isinstance(facts, dict) and all(name in known and _is_path(path) for name, path in facts.items())
        if not usable:
            self._wrong.append(f"mirror.{kind}.facts must hold paths of fields by these names: {', '.join(known) or 'none'}")
        missing = [name for name in ("object", "name") if not _is_path(given.get(name))]
        self._wrong += [f"mirror.{kind}.{name} must be an API name, such as Name" for name in missing]
        account = given.get("account")
        if account is not None and not _is_path(account):
            self._wrong.append(f"mirror.{kind}.account must be an API name, such as AccountId")
        segments = given.get("segments", {})
        if not isinstance(segments, dict) or not all(map(_is_word, (*segments, *segments.values()))):
            self._wrong.append(f"mirror.{kind}.segments must hold a segment of the price books for each value of the field")
            segments = {}
        elif segments and "segment" not in facts:
            self._wrong.append(f'mirror.{kind}.segments: facts names no field for it, such as segment = "Type"')
        told = MappingProxyType(dict(facts) if usable else {})
        return MirrorMapping(str(given.get("object")), str(given.get("name")), account, told, MappingProxyType(dict(segments)))

    def _status(self) -> StatusMapping:
        part = self._part("status")
        owner = part.get("owner")
        if owner not in OWNERS:
            self._wrong.append(f"status.owner must be one of {', '.join(OWNERS)}")
        words = {name: part.get(name) for name in STATUSES}
        self._wrong += [f"status.{name} must be one of the field's values" for name, word in words.items() if not _is_word(word)]
        return StatusMapping(
            self._name("status", "field"), cast("Owner", owner), MappingProxyType({name: str(word) for name, word in words.items()})
        )


def _is_path(value: object) -> bool:
    return isinstance(value, str) and all(_NAME.fullmatch(name) for name in value.split("."))


def _is_word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _WORD_CHARACTERS_MAX
