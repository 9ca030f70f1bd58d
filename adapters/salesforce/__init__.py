"""Salesforce REST client: quotes, lookups, login, mapping and errors."""
