"""Schedules: cron expressions and due slots."""
