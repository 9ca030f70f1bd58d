"""Processes of the suites: the rig, the fork server, kill plans and their programs."""
