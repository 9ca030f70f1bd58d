"""Pure handlers: each takes a command and its inputs and returns a Decision or a Refusal."""
