"""A Salesforce org that speaks the real REST protocol over TLS on the loopback address.

Modelled from documentation and from the behaviour of clients, never compared with a live org: the refusal of create-only fields in
an upsert that becomes an update; POST by external id as an upsert; codes for too many graphs, nodes, composite requests and
repeated reference ids; status 400 (not 401) for refused client credentials; the message for an expired assertion; rounding of
numbers to the field's scale; the refusal of numbers in text fields; ENTITY_IS_DELETED for changes of a deleted record; totals of a
quote with no price book; the rows that a write locks (its own, its masters and those that its references name); status 403 for
INSUFFICIENT_ACCESS_OR_READONLY; DUPLICATE_VALUE for a second link of a document to a record; batches of a query from 200 records.
The fault `429` answers HTTP 429, which a real org does not: its limit is a 403. Not modelled: sharing beyond single records, quote
sync, price books beyond their records, semi-joins, aggregates, bulk, SOAP (its login is refused as a new org refuses it).
"""

from quotebot.sandbox.salesforce.service import SalesforceService

__all__ = ["SalesforceService"]
