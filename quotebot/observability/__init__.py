"""Logs, metrics, health, objectives, traces and alerts."""
