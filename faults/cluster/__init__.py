"""Faults of a database server and of the network before it."""
