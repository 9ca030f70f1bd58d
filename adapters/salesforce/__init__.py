"""Salesforce REST: quotes, lookups, login, mapping and errors."""
