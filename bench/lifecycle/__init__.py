"""The three-commit lifecycle of a command, written in several ways, run side by side and checked."""
