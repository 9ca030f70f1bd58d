"""Pricing: converts a request and a ruleset to an immutable price with its trace."""
