"""The outside: Slack, Salesforce, the PDF renderer. They translate; they never decide, sleep or retry."""
