"""Bugs to plant, grouped by theme: each a few lines that change production code in this process. faults/suites/mutants.py hunts them."""
