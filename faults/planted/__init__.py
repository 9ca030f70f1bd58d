"""Bugs to plant, grouped by theme: each a few lines that change production code in this process. faults/bugs.py hunts them."""
