"""The org's records: create, read, update, delete under the schema's rules, atomically on request."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING

from quotebot.sandbox.salesforce.refusals import Rules, SalesforceRefusalError, refusal
from quotebot.sandbox.salesforce.schema import SCHEMA, Field, SObject
from quotebot.sandbox.salesforce.values import LONG_LENGTH, SHORT_LENGTH, long_form, record_id, stored_form, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Record = dict[str, object]
_AUTO_NUMBERS = {"Quote": "QuoteNumber", "QuoteLineItem": "LineNumber"}
_LINK = "ContentDocumentLink"
_USERS = ("Integration", "Rep", "Manager", "Deal desk", "VP of sales", "CFO", "Legal", "Operator")
_EMAIL_DOMAIN = "quotebot-sandbox.example"  # the addresses that the local Slack has for the same people
FILE_TYPES: Mapping[str, str] = MappingProxyType({"pdf": "PDF", "txt": "TEXT", "png": "PNG", "csv": "CSV", "json": "JSON"})
RUNNING_USER = record_id("005", 1)  # the integration user under which the API writes
ORG_ID = record_id("00D", 1)


class MatchesError(Exception):
    """Several records of `sobject` share an external id."""

    def __init__(self, sobject: str, ids: tuple[str, ...]) -> None:
        super().__init__(sobject, ids)
        self.sobject = sobject
        self.ids = ids


class Org:
    """Records by object and id. Every change goes through `_put`, which keeps the indexes and the undo log of a transaction."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._tables: dict[str, dict[str, Record]] = {sobject.name: {} for sobject in SCHEMA.values()}
        self._unique: dict[tuple[str, str, str], str] = {}
        self._children: dict[str, dict[str, str]] = {}  # parent id -> child id -> child object, master-detail only
        self._graveyard: dict[str, Record] = {}  # deleted records in their last state
        self._numbers = {name: itertools.count(1) for name in self._tables}
        self._undo: list[tuple[str, str, Record | None]] | None = None
        self.rules = Rules()
        for name in _USERS:
            address = f"{name.lower().removesuffix(' of sales').replace(' ', '-')}@{_EMAIL_DOMAIN}"
            self._insert(SCHEMA["user"], {"Name": name, "Username": address, "Email": address, "IsActive": True})

    def today(self) -> dt.date:
        """Return the org's date, in UTC."""
        return dt.datetime.fromtimestamp(self._now(), dt.UTC).date()

    def sobject(self, name: str) -> SObject:
        """Return the object's schema. Raises NOT_FOUND."""
        found = SCHEMA.get(name.lower())
        if found is None:
            raise refusal("NOT_FOUND")
        return found

    def create(self, sobject: SObject, values: Mapping[str, object]) -> str:
        """Insert one record and return its id. Raises Salesforce's refusal."""
        if sobject.name == "ContentDocument":
            raise SalesforceRefusalError("INVALID_TYPE_FOR_OPERATION", f"entity type {sobject.name} does not support create", ())
        record = self._checked(sobject, values, creating=True)
        self.rules.check_rows(sobject.name, None, record, sobject.references)
        missing = [field.name for field in sobject.required if record.get(field.name) is None]
        if missing:
            raise SalesforceRefusalError(
                "REQUIRED_FIELD_MISSING", f"Required fields are missing: [{', '.join(missing)}]", tuple(missing)
            )
        for field in sobject.defaulted:
            if record.get(field.name) is None:
                record[field.name] = field.default
        if "ownerid" in sobject.fields and record.get("OwnerId") is None:
            record["OwnerId"] = RUNNING_USER
        self.rules.check_record(sobject.name, record)
        self._refuse_look_alikes(sobject, record, None)
        self._refuse_other_book(sobject, record)
        if sobject.name == "ContentVersion":
            return self._publish(sobject, record)
        return self._insert(sobject, record)

    def _insert(self, sobject: SObject, record: Record) -> str:
        number = next(self._numbers[sobject.name])
        new_id = record_id(sobject.prefix, number)
        if sobject.name in _AUTO_NUMBERS:
            record[_AUTO_NUMBERS[sobject.name]] = f"{number:08d}"
        now = self._timestamp()
        record.update(Id=new_id, IsDeleted=False, CreatedDate=now, LastModifiedDate=now, SystemModstamp=now)
        self._refuse_duplicates(sobject, record, new_id)
        self._put(sobject, new_id, record)
        return new_id

    def update(self, sobject: SObject, record_id_: str, values: Mapping[str, object]) -> None:
        """Change one record. Raises NOT_FOUND, ENTITY_IS_DELETED or the refusal of a value."""
        current = self._alive(sobject, record_id_)
        changes = self._checked(sobject, values, creating=False)
        self.rules.check_rows(sobject.name, record_id_, {**_masters(sobject, current), **changes}, sobject.references)
        emptied = [name for name, value in changes.items() if value is None and not sobject.fields[name.lower()].nillable]
        if emptied:
            raise SalesforceRefusalError(
                "REQUIRED_FIELD_MISSING", f"Required fields are missing: [{', '.join(emptied)}]", tuple(emptied)
            )
        now = self._timestamp()
        record = {**current, **changes, "LastModifiedDate": now, "SystemModstamp": now}
        self.rules.check_record(sobject.name, record)
        self._refuse_look_alikes(sobject, record, record_id_)
        self._refuse_duplicates(sobject, record, record_id_)
        self._put(sobject, record_id_, record)
        if sobject.name == "ContentVersion" and record["IsLatest"]:  # the document's title follows its latest version
            document, document_id = SCHEMA["contentdocument"], str(record["ContentDocumentId"])
            shown = {**self._tables[document.name][document_id], **_document_of(record, record_id_)}
            self._put(document, document_id, shown)

    def delete(self, sobject: SObject, record_id_: str) -> None:
        """Delete one record and its detail records."""
        current = self._alive(sobject, record_id_)
        if sobject.name in ("ContentVersion", "User"):
            raise SalesforceRefusalError("INVALID_TYPE_FOR_OPERATION", f"entity type {sobject.name} does not support delete", ())
        self.rules.check_rows(sobject.name, record_id_, _masters(sobject, current), sobject.references)
        for child_id, child_name in tuple(self._children.get(record_id_, {}).items()):
            self._put(SCHEMA[child_name.lower()], child_id, None)
        self._put(sobject, record_id_, None)

    def named_by(self, raw_id: str) -> str:
        """Return the name of the object an id belongs to. Raises MALFORMED_ID."""
        for sobject in SCHEMA.values():
            if raw_id.startswith(sobject.prefix):
                return sobject.name
        raise SalesforceRefusalError("MALFORMED_ID", f"malformed id {raw_id}", ())

    def resolve(self, sobject: SObject, raw_id: str) -> str:
        """Return the long form of an id taken from a URL. Raises MALFORMED_ID or NOT_FOUND."""
        found = long_form(raw_id)
        if found is not None and found.startswith(sobject.prefix):
            return found
        if len(raw_id) in (SHORT_LENGTH, LONG_LENGTH):
            raise SalesforceRefusalError("MALFORMED_ID", f"malformed id {raw_id}")
        raise refusal("NOT_FOUND")

    def find(self, sobject: SObject, field_name: str, value: str) -> str | None:
        """Return the id of the record with `value` in an external-id field; case does not matter.

        Raises NOT_FOUND for another field, MatchesError if several records have the value.
        """
        field = sobject.field(field_name)
        if field is None or not field.external_id:
            raise SalesforceRefusalError(
                "NOT_FOUND", f"Provided external ID field does not exist or is not accessible: {field_name}", status=404
            )
        if field.unique:
            return self._unique.get((sobject.name, field.name, value.lower()))
        table = self._tables[sobject.name]
        found = [key for key, record in table.items() if str(record.get(field.name) or "").lower() == value.lower()]
        if len(found) > 1:
            raise MatchesError(sobject.name, tuple(found))
        return found[0] if found else None

    def read(self, sobject: SObject, record_id_: str) -> Record:
        """Return every field of one record, computed ones included. Raises NOT_FOUND."""
        record = self._tables[sobject.name].get(record_id_)
        if record is None:
            raise refusal("NOT_FOUND")
        return self._view(sobject, record)

    def file(self, sobject: SObject, record_id_: str) -> bytes:
        """Return the bytes of a version of a file. Raises NOT_FOUND."""
        content = self._tables[sobject.name].get(record_id_, {}).get("VersionData")
        if not isinstance(content, bytes):
            raise refusal("NOT_FOUND")
        return content

    def all(self, sobject: SObject, *, deleted: bool = False) -> Iterator[Record]:
        """Yield every record in order of creation, then, with `deleted`, those in the recycle bin."""
        for record in self._tables[sobject.name].values():
            yield self._view(sobject, record)
        if deleted:
            yield from self.deleted(sobject)

    def deleted(self, sobject: SObject) -> Iterator[Record]:
        """Yield the records in the recycle bin, in order of deletion."""
        for record_id_, record in self._graveyard.items():
            if record_id_.startswith(sobject.prefix):
                yield self._view(sobject, record)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Undo every change of the block if it raises. Not nestable."""
        undo: list[tuple[str, str, Record | None]] = []
        self._undo = undo
        try:
            yield
        except BaseException:
            self._undo = None
            for name, changed_id, before in reversed(undo):
                self._put(SCHEMA[name.lower()], changed_id, before)
                self._graveyard.pop(changed_id, None)
            raise
        finally:
            self._undo = None

    def _alive(self, sobject: SObject, record_id_: str) -> Record:
        record = self._tables[sobject.name].get(record_id_)
        if record is not None:
            return record
        if record_id_ in self._graveyard:
            raise SalesforceRefusalError("ENTITY_IS_DELETED", "entity is deleted", (), status=404)
        raise refusal("NOT_FOUND")

    def _checked(self, sobject: SObject, values: Mapping[str, object], *, creating: bool) -> Record:
        record: Record = {}
        for name, value in values.items():
            if name == "attributes":
                continue
            field = sobject.field(name)
            if field is None:
                raise SalesforceRefusalError("INVALID_FIELD", f"No such column '{name}' on sobject of type {sobject.name}")
            if not (field.createable if creating else field.updateable):
                raise SalesforceRefusalError(
                    "INVALID_FIELD_FOR_INSERT_UPDATE",
                    f"Unable to create/update fields: {field.name}. Please check the security settings of this field and verify "
                    "that it is read/write for your profile or permission set.",
                    (field.name,),
                )
            record[field.name] = stored_form(field, value)
            self._refuse_dangling(field, record[field.name])
        return record

    def _publish(self, sobject: SObject, version: Record) -> str:
        """Insert a version of a file, with the fields derived from its bytes, its new or existing document and the requested link.

        The first version of a file creates its ContentDocument; a ContentDocumentLink shows the document on a record.
        """
        content, path = version["VersionData"], PurePath(str(version["PathOnClient"]))
        if not isinstance(content, bytes):
            raise TypeError("a file is bytes")
        extension = path.suffix.removeprefix(".").lower()
        version.update(
            Title=version.get("Title") or path.stem,
            FileExtension=extension or None,
            FileType=FILE_TYPES.get(extension, "UNKNOWN"),
            ContentSize=len(content),
            Checksum=hashlib.md5(content, usedforsecurity=False).hexdigest(),
        )
        document_id, document = version.get("ContentDocumentId"), SCHEMA["contentdocument"]
        earlier = [] if document_id is None else [row for row in self.all(sobject) if row["ContentDocumentId"] == document_id]
        version.update(VersionNumber=str(len(earlier) + 1), IsLatest=True)
        for row in earlier:
            self._put(sobject, str(row["Id"]), {**self._tables[sobject.name][str(row["Id"])], "IsLatest": False})
        version_id = self._insert(sobject, version)
        fields = _document_of(version, version_id)
        if document_id is None:
            document_id = self._insert(document, fields)
            self._put(sobject, version_id, {**version, "ContentDocumentId": document_id})
        else:
            self._put(document, str(document_id), {**self._tables[document.name][str(document_id)], **fields})
        place = version.get("FirstPublishLocationId")
        if place is not None:
            share = {"LinkedEntityId": place, "ShareType": "V", "Visibility": "AllUsers"}
            self._insert(SCHEMA[_LINK.lower()], {"ContentDocumentId": document_id, **share})
        return version_id

    def _timestamp(self) -> str:
        return written(dt.datetime.fromtimestamp(self._now(), dt.UTC))

    def _refuse_look_alikes(self, sobject: SObject, record: Record, own_id: str | None) -> None:
        """Apply a duplicate rule, which is independent of a key's uniqueness."""
        name = self.rules.duplicate_fields.get(sobject.name)
        if name is None:
            return
        value = str(record.get(name)).lower()
        for other_id, other in self._tables[sobject.name].items():
            if other_id != own_id and str(other.get(name)).lower() == value:
                raise SalesforceRefusalError("DUPLICATES_DETECTED", "Use one of these records?", ())

    def _refuse_other_book(self, sobject: SObject, record: Record) -> None:
        """Refuse a quote line whose price belongs to another price book than the quote's."""
        if sobject.name != "QuoteLineItem" or record.get("PricebookEntryId") is None:
            return
        entry = self._tables["PricebookEntry"][str(record["PricebookEntryId"])]
        quote = self._tables["Quote"][str(record["QuoteId"])]
        if entry["Pricebook2Id"] != quote.get("Pricebook2Id"):
            raise SalesforceRefusalError(
                "FIELD_INTEGRITY_EXCEPTION",
                "field integrity exception: PricebookEntryId (pricebook entry is in a different pricebook than the Quote)",
                ("PricebookEntryId",),
            )

    def _refuse_dangling(self, field: Field, value: object) -> None:
        """Refuse a reference to no record; the target object of a polymorphic one is decided by the id."""
        if value is None or not (field.polymorphic or field.reference_to):
            return
        target = SCHEMA[(field.reference_to or "User").lower()]
        if field.polymorphic:
            target = next((sobject for sobject in SCHEMA.values() if str(value).startswith(sobject.prefix)), target)
        if not str(value).startswith(target.prefix):
            raise SalesforceRefusalError("MALFORMED_ID", f"{field.name}: id value of incorrect type: {value}", (field.name,))
        if value in self._tables[target.name]:
            return
        code, message = (
            ("ENTITY_IS_DELETED", "entity is deleted")
            if value in self._graveyard
            else ("INVALID_CROSS_REFERENCE_KEY", "invalid cross reference id")
        )
        raise SalesforceRefusalError(code, message, (field.name,))

    def _refuse_duplicates(self, sobject: SObject, record: Record, own_id: str) -> None:
        for key in _unique_keys(sobject, record):
            holder = self._unique.get(key)
            if holder is not None and holder != own_id:
                raise SalesforceRefusalError(
                    "DUPLICATE_VALUE",
                    f"duplicate value found: {key[1]} duplicates value on record with id: {holder}",
                    (),
                )

    def _put(self, sobject: SObject, changed_id: str, record: Record | None) -> None:
        table = self._tables[sobject.name]
        before = table.get(changed_id)
        if self._undo is not None:
            self._undo.append((sobject.name, changed_id, before))
        if before is not None:
            for key in _unique_keys(sobject, before):
                del self._unique[key]
            for parent in _parents(sobject, before):
                del self._children[parent][changed_id]
        if record is None:
            table.pop(changed_id, None)
            if before is not None:
                now = self._timestamp()
                self._graveyard[changed_id] = {**before, "IsDeleted": True, "LastModifiedDate": now, "SystemModstamp": now}
            return
        table[changed_id] = record
        self._graveyard.pop(changed_id, None)
        for key in _unique_keys(sobject, record):
            self._unique[key] = changed_id
        for parent in _parents(sobject, record):
            self._children.setdefault(parent, {})[changed_id] = sobject.name

    def _view(self, sobject: SObject, record: Record) -> Record:
        view = {field.name: record.get(field.name) for field in sobject.fields.values()}
        if sobject.name == "ContentVersion":
            view["VersionData"] = f"/services/data/v65.0/sobjects/{sobject.name}/{record['Id']}/VersionData"
        if sobject.name == "Contact":
            view["Name"] = " ".join(str(name) for name in (record.get("FirstName"), record["LastName"]) if name)
        if sobject.name == "Opportunity":
            stage = str(record.get("StageName"))
            view.update(IsClosed=stage.startswith("Closed"), IsWon=stage == "Closed Won")
        if sobject.name == "QuoteLineItem":
            view.update(_line_totals(record))
        if sobject.name == "Quote":
            children = self._children.get(str(record["Id"]), {})
            lines = [_line_totals(self._tables[name][child]) for child, name in children.items() if name == "QuoteLineItem"]
            view["LineItemCount"] = len(lines)
            total = sum((line["TotalPrice"] for line in lines), Decimal(0))
            view["Subtotal"] = sum((line["Subtotal"] for line in lines), Decimal(0))
            view["TotalPrice"] = total
            view["GrandTotal"] = total + _decimal(record.get("Tax")) + _decimal(record.get("ShippingHandling"))
        return view


def _line_totals(line: Record) -> dict[str, Decimal]:
    """Return the platform's own totals, which ignore Quotebot's months and rounding."""
    subtotal = _decimal(line["Quantity"]) * _decimal(line["UnitPrice"])
    total = subtotal * (100 - _decimal(line.get("Discount"))) / 100
    cent = Decimal("0.01")
    return {"Subtotal": subtotal.quantize(cent), "TotalPrice": total.quantize(cent)}


def _decimal(value: object) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(0)


def _unique_keys(sobject: SObject, record: Record) -> list[tuple[str, str, str]]:
    if sobject.name == _LINK:
        return [(_LINK, "LinkedEntityId", f"{record['ContentDocumentId']} {record['LinkedEntityId']}")]
    return [
        (sobject.name, field.name, str(record[field.name]).lower())
        for field in sobject.unique
        if record.get(field.name) is not None
    ]


def _parents(sobject: SObject, record: Record) -> list[str]:
    return [str(record[field.name]) for field in sobject.masters if record.get(field.name)]


def _document_of(version: Mapping[str, object], version_id: str) -> dict[str, object]:
    """Return the fields of the document whose latest version this is."""
    shared = ("Title", "Description", "FileExtension", "FileType", "ContentSize", "OwnerId")
    return {**{name: version.get(name) for name in shared}, "LatestPublishedVersionId": version_id}


def _masters(sobject: SObject, record: Record) -> Record:
    """Return the references to a record's masters: writing it locks them too."""
    return {field.name: record.get(field.name) for field in sobject.masters}
