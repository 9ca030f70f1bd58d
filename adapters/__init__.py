"""Clients of external services: Slack, Salesforce, LLM, PDF renderer. They translate; they never decide, sleep or retry."""
