"""Commands: payload models and the registry of every kind."""
