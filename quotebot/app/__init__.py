"""Composition root: the bot's processes, their clients, and the life of an installation."""
