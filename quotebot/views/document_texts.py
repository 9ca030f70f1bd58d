"""Texts of the customer's document in each of its languages.

The templates read the same texts as `texts`. A new language is one more `DocumentTexts`; a missing text is a type error.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class DocumentTexts:
    """Every fixed text of a document in one language. Names in braces are filled in by `str.format`."""

    title: str
    version: str
    page: str
    page_of: str
    bill_to: str
    contact: str
    vat_id: str
    issued: str
    valid_until: str
    start: str
    term: str
    billing: str
    payment: str
    po_number: str
    prepared_by: str
    item: str
    quantity: str
    list_amount: str
    discount: str
    discount_of: str
    unit_price: str
    unit_price_per_month: str
    amount: str
    amount_of_term: str
    no_items: str
    recurring: str
    prices_per_month: str
    one_time: str
    per_month: str
    per_year: str
    one_month: str
    months: str
    bundle: str
    block: str
    slab: str
    slabs: str
    agreed_price: str
    subtotal: str
    list_price: str
    total: str
    total_before_tax: str
    before_tax: str
    tax: str
    tax_estimated: str
    total_with_tax: str
    split_total: str
    year_totals: str
    year: str
    billing_schedule: str
    invoice: str
    invoices_each: str
    invoices_together: str
    options: str
    options_note: str
    note: str
    terms: str
    acceptance: str
    accepts: str
    accepts_plus_tax: str
    for_party: str
    name: str
    job_title: str
    signature: str
    date: str
    upfront: str
    monthly: str
    quarterly: str
    annual: str
    net_days: str
    on_receipt: str
    special_term: str
    standard_terms: tuple[str, ...]


ENGLISH: Final = DocumentTexts(
    title="Quote",
    version="Version",
    page="Page",
    page_of="of",
    bill_to="Bill to",
    contact="Contact",
    vat_id="VAT ID {number}",
    issued="Quote date",
    valid_until="Valid until",
    start="Start date",
    term="Term",
    billing="Billing",
    payment="Payment",
    po_number="PO number",
    prepared_by="Prepared by",
    item="Item",
    quantity="Quantity",
    list_amount="List",
    discount="Discount",
    discount_of="Discount ({percent})",
    unit_price="Unit price, {currency}",
    unit_price_per_month="{currency} per unit/month",
    amount="Amount, {currency}",
    amount_of_term="{term}, {currency}",
    no_items="No items.",
    recurring="Subscription, {term}",
    prices_per_month="unit prices per month",
    one_time="One-time charges",
    per_month="Per month",
    per_year="Per year",
    one_month="1 month",
    months="{count} months",
    bundle="Bundle of the items below",
    block="Price of the whole quantity",
    slab="{units} at {price}",
    slabs="Priced in {count} tiers",
    agreed_price="Agreed price {price}",
    subtotal="Subtotal",
    list_price="List price",
    total="Total",
    total_before_tax="Total before tax",
    before_tax="before tax",
    tax="Tax {percent}",
    tax_estimated="Tax {percent} (estimated)",
    total_with_tax="Total with tax",
    split_total="Breakdown",
    year_totals="Totals per year",
    year="Year {number}",
    billing_schedule="Billing schedule",
    invoice="Invoice {number}",
    invoices_each="Invoices {first}\u2013{last}, each",
    invoices_together="Invoices {first}\u2013{last}, together",
    options="Optional items",
    options_note="Not included in the total.",
    note="Note",
    terms="Terms",
    acceptance="Acceptance",
    accepts="By signing, both parties agree to this quote ({number}, version {version}) at {total} and to its terms.",
    accepts_plus_tax=(
        "By signing, both parties agree to this quote ({number}, version {version}) at {total} plus tax and to its terms."
    ),
    for_party="For {name}",
    name="Name",
    job_title="Title",
    signature="Signature",
    date="Date",
    upfront="Once, in advance",
    monthly="Monthly, in advance",
    quarterly="Quarterly, in advance",
    annual="Annually, in advance",
    net_days="Net {days} days",
    on_receipt="Due on receipt",
    special_term="Applies as agreed in writing, and goes before the terms above.",
    standard_terms=(
        "Prices exclude applicable taxes and are valid until the date shown.",
        "This quote becomes binding when both parties have signed it.",
    ),
)

GERMAN: Final = DocumentTexts(
    title="Angebot",
    version="Version",
    page="Seite",
    page_of="von",
    bill_to="Rechnungsempf\u00e4nger",
    contact="Ansprechpartner",
    vat_id="USt-IdNr. {number}",
    issued="Angebotsdatum",
    valid_until="G\u00fcltig bis",
    start="Beginn",
    term="Laufzeit",
    billing="Abrechnung",
    payment="Zahlungsziel",
    po_number="Bestellnummer",
    prepared_by="Erstellt von",
    item="Position",
    quantity="Menge",
    list_amount="Listenpreis",
    discount="Rabatt",
    discount_of="Rabatt ({percent})",
    unit_price="Einzelpreis, {currency}",
    unit_price_per_month="{currency} je Einheit/Monat",
    amount="Betrag, {currency}",
    amount_of_term="{term}, {currency}",
    no_items="Keine Positionen.",
    recurring="Abonnement, {term}",
    prices_per_month="Einzelpreise je Monat",
    one_time="Einmalige Leistungen",
    per_month="Pro Monat",
    per_year="Pro Jahr",
    one_month="1 Monat",
    months="{count} Monate",
    bundle="Paket aus den folgenden Positionen",
    block="Preis der gesamten Menge",
    slab="{units} zu {price}",
    slabs="Preis in {count} Staffeln",
    agreed_price="Vereinbarter Preis {price}",
    subtotal="Zwischensumme",
    list_price="Listenpreis",
    total="Gesamt",
    total_before_tax="Gesamt netto",
    before_tax="netto",
    tax="Steuer {percent}",
    tax_estimated="Steuer {percent} (gesch\u00e4tzt)",
    total_with_tax="Gesamt brutto",
    split_total="Aufteilung",
    year_totals="Summen je Jahr",
    year="Jahr {number}",
    billing_schedule="Rechnungsplan",
    invoice="Rechnung {number}",
    invoices_each="Rechnungen {first}\u2013{last}, je",
    invoices_together="Rechnungen {first}\u2013{last}, zusammen",
    options="Optionale Positionen",
    options_note="Nicht in der Summe enthalten.",
    note="Hinweis",
    terms="Bedingungen",
    acceptance="Annahme",
    accepts=(
        "Mit ihrer Unterschrift stimmen beide Parteien diesem Angebot ({number}, Version {version}) \u00fcber {total} "
        "und seinen Bedingungen zu."
    ),
    accepts_plus_tax=(
        "Mit ihrer Unterschrift stimmen beide Parteien diesem Angebot ({number}, Version {version}) \u00fcber {total} "
        "zuz\u00fcglich Steuern und seinen Bedingungen zu."
    ),
    for_party="F\u00fcr {name}",
    name="Name",
    job_title="Funktion",
    signature="Unterschrift",
    date="Datum",
    upfront="Einmalig, im Voraus",
    monthly="Monatlich, im Voraus",
    quarterly="Viertelj\u00e4hrlich, im Voraus",
    annual="J\u00e4hrlich, im Voraus",
    net_days="{days} Tage netto",
    on_receipt="Sofort bei Erhalt",
    special_term="Gilt wie schriftlich vereinbart und geht den obigen Bedingungen vor.",
    standard_terms=(
        "Alle Preise verstehen sich zuz\u00fcglich anfallender Steuern und gelten bis zum genannten Datum.",
        "Dieses Angebot wird verbindlich, wenn beide Parteien es unterschrieben haben.",
    ),
)

TEXTS: Final[Mapping[str, DocumentTexts]] = MappingProxyType({"en": ENGLISH, "de": GERMAN})  # by language
