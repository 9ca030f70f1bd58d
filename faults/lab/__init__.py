"""The laboratory: the production bot in one process, on a clock that jumps, with a trap at every choke point."""
