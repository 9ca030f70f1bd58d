"""The invariants, one module per kind of evidence; faults/checks.py is their one door."""
