"""Pure decisions: a command and what it needs in, a Decision or a Refusal out."""
