"""Three-commit lifecycle of a command in several implementations, run side by side and checked."""
