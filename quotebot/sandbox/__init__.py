"""The local world: a Slack workspace, a Salesforce org and an LLM that speak the vendors' real protocols.

It imports nothing else of quotebot: the bot reaches it only over sockets, as it reaches the vendors.
"""
