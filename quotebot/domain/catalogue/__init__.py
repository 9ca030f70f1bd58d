"""Catalogue and rulesets: products, names, spreadsheets, differences and lint checks."""
