"""Texts, cards, forms and documents that people read. Pure: nothing is computed here."""
