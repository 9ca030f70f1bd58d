"""The acknowledging process and its messages to the workers."""
