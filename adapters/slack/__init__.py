"""Slack's Web API, its errors and the rules of Block Kit."""
