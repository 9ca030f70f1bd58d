"""The invariants, one module per kind of evidence; faults/checks/checker.py is their one door."""
