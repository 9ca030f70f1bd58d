"""PostgreSQL engine of the ledger."""
