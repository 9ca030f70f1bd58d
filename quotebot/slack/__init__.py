"""Slack surface: handles envelopes and answers with messages and cards."""
