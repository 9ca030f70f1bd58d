"""Seeded bugs by theme: each is a few lines that change production code in this process. faults/suites/mutants.py runs them."""
