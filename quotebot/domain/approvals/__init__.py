"""Approval logic: policy, authority, requests, slots and reuse."""
