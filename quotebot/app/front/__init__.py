"""The acknowledging process and its messages to the workers. Nothing outside this folder knows that it exists."""
