"""Delivery of effects: claim, call, settle."""
