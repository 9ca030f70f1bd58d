"""Fault injection: crash points, kill plans and the checks that follow. Production code never imports it."""
