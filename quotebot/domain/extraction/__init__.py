"""Extraction of a quote request from free text."""
