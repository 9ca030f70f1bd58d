"""The org's objects and fields, as data, and their form in `describe`.

An org set up for Quotebot: standard quotes are on, quotes need no opportunity, quote lines need no price book entry, and the
`Quotebot_*` custom fields exist. Lengths and scales are an org's choice; compare them with a real org's `describe`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `length` is in characters; `precision` counts all digits of a number and `scale` those after the point.

    A `polymorphic` reference may point to any object; a file's bytes are a `base64` field.
    """

    name: str
    type: str = "string"  # string textarea picklist id reference boolean int double currency percent date datetime base64
    length: int = 0
    precision: int = 0
    scale: int = 0
    createable: bool = True
    updateable: bool = True
    nillable: bool = True
    unique: bool = False
    external_id: bool = False
    picklist: tuple[str, ...] = ()
    reference_to: str | None = None
    cascade: bool = False  # a master-detail reference: the record is deleted with its parent
    default: object = None
    polymorphic: bool = False

    @property
    def custom(self) -> bool:
        """True if an admin added the field."""
        return self.name.endswith("__c")

    @property
    def relationship(self) -> str:
        """The name under which a query reaches the referenced object: Account for AccountId, Parent__r for Parent__c."""
        return f"{self.name.removesuffix('__c')}__r" if self.custom else self.name.removesuffix("Id")

    def describe(self) -> dict[str, object]:
        """Return the field as in `describe` (the properties that clients read)."""
        return {
            "name": self.name,
            "label": self.name.removesuffix("__c").replace("_", " "),
            "type": self.type,
            "length": self.length,
            "precision": self.precision,
            "scale": self.scale,
            "createable": self.createable,
            "updateable": self.updateable,
            "nillable": self.nillable,
            "defaultedOnCreate": self.default is not None or self.type == "boolean",
            "unique": self.unique,
            "externalId": self.external_id,
            "idLookup": self.external_id or self.name == "Id",
            "custom": self.custom,
            "calculated": False,
            "filterable": self.type not in ("textarea", "base64"),
            "sortable": self.type not in ("textarea", "base64"),
            "caseSensitive": False,
            "restrictedPicklist": self.type == "picklist",
            "picklistValues": [
                {"active": True, "defaultValue": value == self.default, "label": value, "value": value} for value in self.picklist
            ],
            "referenceTo": [self.reference_to] if self.reference_to else [],
            "relationshipName": self.relationship if self.reference_to else None,
        }


@dataclass(frozen=True, slots=True)
class SObject:
    """One object: its name, the prefix of its record ids, its fields by lower-case name, and the fields required to write it."""

    name: str
    prefix: str
    fields: Mapping[str, Field]
    required: tuple[Field, ...]  # at creation
    defaulted: tuple[Field, ...]
    unique: tuple[Field, ...]
    masters: tuple[Field, ...]  # references to the record it is deleted with
    references: frozenset[str]

    def field(self, name: str) -> Field | None:
        """Return the field of that name; case does not matter."""
        return self.fields.get(name.lower())

    def summary(self, version: str = "v65.0") -> dict[str, object]:
        """Return the object as in the list of all objects."""
        place = f"/services/data/{version}/sobjects/{self.name}"
        return {
            "name": self.name,
            "label": self.name,
            "keyPrefix": self.prefix,
            "custom": False,
            "createable": self.name not in _MADE_BY_THE_PLATFORM,
            "updateable": True,
            "deletable": self.name not in _NEVER_DELETED,
            "queryable": True,
            "urls": {"sobject": place, "describe": f"{place}/describe", "rowTemplate": f"{place}/{{ID}}"},
        }

    def describe(self) -> dict[str, object]:
        """Return the full description."""
        children = [
            {"childSObject": child.name, "field": link.name, "relationshipName": name, "cascadeDelete": link.cascade}
            for name, child, link in children_of(self)
        ]
        return {
            **self.summary(),
            "fields": [field.describe() for field in self.fields.values()],
            "childRelationships": children,
            "recordTypeInfos": [],
        }


_MADE_BY_THE_PLATFORM = frozenset({"ContentDocument"})
_NEVER_DELETED = frozenset({"ContentVersion", "User"})
_CURRENCIES = ("USD", "EUR", "GBP", "CHF", "JPY", "SEK", "NOK", "DKK", "CAD", "AUD", "INR", "BRL", "SGD", "KWD")
_SYSTEM = (
    Field("Id", "id", 18, createable=False, updateable=False, nillable=False),
    Field("IsDeleted", "boolean", createable=False, updateable=False, nillable=False),
    Field("CreatedDate", "datetime", createable=False, updateable=False, nillable=False),
    Field("LastModifiedDate", "datetime", createable=False, updateable=False, nillable=False),
    Field("SystemModstamp", "datetime", createable=False, updateable=False, nillable=False),
    Field("CurrencyIsoCode", "picklist", 3, picklist=_CURRENCIES, default="USD"),
)
_KEY = Field("Quotebot_Key__c", "string", 255, unique=True, external_id=True)


def _computed(name: str, kind: str = "currency") -> Field:
    return Field(name, kind, precision=18, scale=2, createable=False, updateable=False)


def _money(name: str, *, scale: int = 2, nillable: bool = True) -> Field:
    return Field(name, "currency", precision=18, scale=scale, nillable=nillable)


def _reference(name: str, to: str, *, nillable: bool = True, updateable: bool = True, cascade: bool = False) -> Field:
    return Field(name, "reference", 18, reference_to=to, nillable=nillable, updateable=updateable, cascade=cascade)


_OWNER = Field("OwnerId", "reference", 18, reference_to="User")


def _sobject(name: str, prefix: str, *fields: Field) -> SObject:
    every = (*_SYSTEM, *fields)
    return SObject(
        name,
        prefix,
        MappingProxyType({field.name.lower(): field for field in every}),
        required=tuple(field for field in every if field.createable and not field.nillable),
        defaulted=tuple(field for field in every if field.default is not None),
        unique=tuple(field for field in every if field.unique),
        masters=tuple(field for field in every if field.cascade),
        references=frozenset(field.name for field in every if field.type == "reference" and field.name != "OwnerId"),
    )


_STAGES = (
    "Prospecting",
    "Qualification",
    "Needs Analysis",
    "Proposal/Price Quote",
    "Negotiation/Review",
    "Closed Won",
    "Closed Lost",
)
_ACCOUNT_TYPES = (
    *("Prospect", "Customer - Direct", "Customer - Channel", "Channel Partner / Reseller"),
    *("Installation Partner", "Technology Partner", "Other"),
)
_QUOTE_STATUS = ("Draft", "Needs Review", "In Review", "Approved", "Rejected", "Presented", "Accepted", "Denied")

_OBJECTS = (
    _sobject(
        "Account",
        "001",
        Field("Name", "string", 255, nillable=False),
        Field("AccountNumber", "string", 40),
        Field("Type", "picklist", 255, picklist=_ACCOUNT_TYPES),
        Field("BillingCountry", "string", 80),
        Field("Phone", "string", 40),
        Field("Website", "string", 255),
        Field("Description", "textarea", 32_000),
        Field("Erp_Number__c", "string", 40, external_id=True),  # not unique: two records may share it
        _OWNER,
        _KEY,
    ),
    _sobject(
        "Contact",
        "003",
        Field("FirstName", "string", 40),
        Field("LastName", "string", 80, nillable=False),
        Field("Name", "string", 121, createable=False, updateable=False),
        _reference("AccountId", "Account"),
        Field("Email", "string", 80),
        Field("Phone", "string", 40),
        _OWNER,
        _KEY,
    ),
    _sobject(
        "Opportunity",
        "006",
        Field("Name", "string", 120, nillable=False),
        _reference("AccountId", "Account"),
        Field("StageName", "picklist", 255, nillable=False, picklist=_STAGES),
        Field("CloseDate", "date", nillable=False),
        _money("Amount"),
        Field("IsClosed", "boolean", createable=False, updateable=False),
        Field("IsWon", "boolean", createable=False, updateable=False),
        _reference("Pricebook2Id", "Pricebook2"),
        _reference("SyncedQuoteId", "Quote"),
        Field("Description", "textarea", 32_000),
        _OWNER,
        _KEY,
    ),
    _sobject(
        "Product2",
        "01t",
        Field("Name", "string", 255, nillable=False),
        Field("ProductCode", "string", 255),
        Field("IsActive", "boolean", default=False),
        Field("Family", "string", 255),
        Field("Description", "textarea", 4_000),
        _KEY,
    ),
    _sobject(
        "Pricebook2",
        "01s",
        Field("Name", "string", 255, nillable=False),
        Field("IsActive", "boolean", default=False),
        Field("IsStandard", "boolean", default=False, createable=False, updateable=False),
        Field("Description", "textarea", 255),
    ),
    _sobject(
        "PricebookEntry",
        "01u",
        _reference("Pricebook2Id", "Pricebook2", nillable=False, updateable=False),
        _reference("Product2Id", "Product2", nillable=False, updateable=False),
        _money("UnitPrice", scale=4, nillable=False),
        Field("IsActive", "boolean", default=False),
        Field("UseStandardPrice", "boolean", default=False),
    ),
    _sobject(
        "Quote",
        "0Q0",
        Field("QuoteNumber", "string", 30, createable=False, updateable=False),
        Field("Name", "string", 255, nillable=False),
        _reference("OpportunityId", "Opportunity", updateable=False),
        _reference("Pricebook2Id", "Pricebook2"),
        Field("Status", "picklist", 40, picklist=_QUOTE_STATUS, default="Draft"),
        Field("ExpirationDate", "date"),
        Field("Description", "textarea", 32_000),
        _money("Tax"),
        _reference("QuoteAccountId", "Account"),
        Field("BillingName", "string", 255),
        Field("BillingStreet", "textarea", 255),
        Field("Email", "email", 80),
        _money("ShippingHandling"),
        _computed("Subtotal"),
        _computed("TotalPrice"),
        _computed("GrandTotal"),
        _computed("LineItemCount", "int"),
        _OWNER,
        _KEY,
        Field("Quotebot_Hash__c", "string", 128),
        Field("Quotebot_Version__c", "double", precision=10, scale=0),
        _money("Quotebot_Total__c", scale=4),
        Field("Quotebot_Account__c", "string", 255),
    ),
    _sobject(
        "QuoteLineItem",
        "0QL",
        Field("LineNumber", "string", 80, createable=False, updateable=False),
        _reference("QuoteId", "Quote", nillable=False, updateable=False, cascade=True),
        _reference("PricebookEntryId", "PricebookEntry", updateable=False),
        _reference("Product2Id", "Product2", updateable=False),
        Field("Quantity", "double", precision=12, scale=2, nillable=False),
        _money("UnitPrice", scale=4, nillable=False),
        Field("Discount", "percent", precision=5, scale=2),
        Field("Description", "string", 255),
        _computed("Subtotal"),
        _computed("TotalPrice"),
        _KEY,
        Field("Quotebot_Sku__c", "string", 80),
        Field("Quotebot_Name__c", "string", 255),
        Field("Quotebot_Net__c", "currency", precision=18, scale=4),
        Field("Quotebot_Months__c", "double", precision=4, scale=0),
        Field("Quotebot_Position__c", "double", precision=4, scale=0),
    ),
    _sobject(
        "User",
        "005",
        Field("Name", "string", 121, nillable=False),
        Field("Username", "string", 80, nillable=False, unique=True),
        Field("Email", "string", 128, nillable=False),
        Field("IsActive", "boolean", default=False),
    ),
    _sobject(
        "ContentDocument",
        "069",
        Field("Title", "string", 255, nillable=False),
        Field("Description", "textarea", 1_000),
        _reference("LatestPublishedVersionId", "ContentVersion", updateable=False),
        Field("FileExtension", "string", 40, createable=False, updateable=False),
        Field("FileType", "string", 20, createable=False, updateable=False),
        Field("ContentSize", "int", precision=10, createable=False, updateable=False),
        _OWNER,
    ),
    _sobject(
        "ContentVersion",
        "068",
        Field("Title", "string", 255),
        Field("PathOnClient", "string", 500, nillable=False, updateable=False),
        Field("VersionData", "base64", nillable=False, updateable=False),
        _reference("ContentDocumentId", "ContentDocument", updateable=False, cascade=True),
        Field("FirstPublishLocationId", "reference", 18, updateable=False, polymorphic=True),
        Field("ReasonForChange", "string", 1_000),
        Field("Description", "textarea", 1_000),
        Field("VersionNumber", "string", 20, createable=False, updateable=False),
        Field("IsLatest", "boolean", createable=False, updateable=False),
        Field("FileExtension", "string", 40, createable=False, updateable=False),
        Field("FileType", "string", 20, createable=False, updateable=False),
        Field("ContentSize", "int", precision=10, createable=False, updateable=False),
        Field("Checksum", "string", 50, createable=False, updateable=False),
        _OWNER,
        _KEY,
    ),
    _sobject(
        "ContentDocumentLink",
        "06A",
        _reference("ContentDocumentId", "ContentDocument", nillable=False, updateable=False, cascade=True),
        Field("LinkedEntityId", "reference", 18, nillable=False, updateable=False, polymorphic=True, cascade=True),
        Field("ShareType", "picklist", 40, picklist=("V", "C", "I"), default="V"),
        Field("Visibility", "picklist", 40, picklist=("AllUsers", "InternalUsers", "SharedUsers"), default="AllUsers"),
    ),
)

SCHEMA: Mapping[str, SObject] = MappingProxyType({sobject.name.lower(): sobject for sobject in _OBJECTS})


def children_of(parent: SObject) -> list[tuple[str, SObject, Field]]:
    """Return the references to an object: the relationship's name (QuoteLineItems), the object, its reference."""
    return [
        (f"{child.name[:-1]}ies" if child.name.endswith("y") else f"{child.name}s", child, link)
        for child in SCHEMA.values()
        for link in child.fields.values()
        if link.reference_to == parent.name and link.name == f"{parent.name}Id"
    ]
