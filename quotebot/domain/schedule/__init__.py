"""Schedules: cron expressions and the slots that are due."""
