"""Execution of one command: claim, load, handle, save and complete in one transaction."""
