"""Approvals: policy, authority, requests, slots and reuse."""
