"""The memory: operations, effects and everything that may happen to them. Knows no quotes, no Slack, no HTTP."""
