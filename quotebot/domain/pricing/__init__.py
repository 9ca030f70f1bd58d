"""Pricing: a request and a ruleset in, an immutable price with its trace out."""
