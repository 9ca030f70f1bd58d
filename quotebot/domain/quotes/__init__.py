"""Quotes: values, life cycle, versions and changes."""
