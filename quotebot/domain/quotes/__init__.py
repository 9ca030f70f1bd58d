"""Quotes: their values, life cycle, versions and changes."""
