"""Clients of external services: Slack, Salesforce, the LLM and the PDF renderer. They translate; they never decide or retry."""
