"""A Salesforce org that speaks the real REST protocol over TLS on the loopback address.

Modelled from documentation and from what clients do, never compared with a live org:
the refusal of create-only fields in an upsert that becomes an update; POST by external id as an upsert; codes for more than 500
graph nodes, 25 composite requests and repeated reference ids; status 400 (not 401) for refused client credentials; rounding of
numbers to the field's scale; the refusal of numbers in text fields; ENTITY_IS_DELETED for changes of a deleted record; totals of
a quote with no price book; HTTP 429 for a spent request limit (a real org answers 403).
Not modelled: triggers, validation rules, sharing, approval locks, quote sync, price books beyond their records, query paging,
subqueries and relationship fields, bulk, SOAP.
"""

from quotebot.sandbox.salesforce.service import SalesforceService

__all__ = ["SalesforceService"]
