"""Quotebot: sales quotes in Slack with exactly one business effect per command."""

__version__ = "0.1.0"
