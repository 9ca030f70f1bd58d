"""PostgreSQL engine of the ledger, for several processes on several machines. The only importer of psycopg."""
