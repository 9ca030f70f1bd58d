"""Durable ledger of operations, effects and their state transitions. Contains no quote, Slack or HTTP logic."""
