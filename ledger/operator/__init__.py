"""Operator functions: dead letters, replay, actions, explanations and backups."""
