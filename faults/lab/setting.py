"""Settings of a laboratory's bot, and the folder of its files."""

from __future__ import annotations

import functools
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from adapters.salesforce.mapping import read_mapping
from quotebot.sandbox.slack.directory import APP_TOKEN, APPROVERS, BOT_TOKEN
from quotebot.settings import Settings

if TYPE_CHECKING:
    from typing import Any

    from adapters.salesforce.mapping import CrmMapping


@functools.cache
def lab_mapping() -> CrmMapping:
    """Return the mapping to the simulated Salesforce: the build's, with an opportunity whose fields follow the quote."""
    return read_mapping(Path(__file__).with_name("salesforce.toml").read_text("utf-8"))


def lab_settings(data_dir: Path, **overrides: Any) -> Settings:
    """Return the settings of a bot on an unserved World."""
    return Settings(
        _env_file=None,
        **{
            "data_dir": data_dir,
            "SLACK_API_URL": "http://127.0.0.1:1/api/",
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
            "SALESFORCE_INSTANCE_URL": "https://127.0.0.1:2",
            "SALESFORCE_CLIENT_ID": "3MVG9-sandbox-quotebot",
            "SALESFORCE_CLIENT_SECRET": "sandbox-secret",
            "approvers": APPROVERS,
            "backup_hours": 0,  # a day of the laboratory takes a second; backups have their own scenarios
            "commands_per_minute": 100_000,  # one person stands for many
            "ledger_durability": "local",  # of a database: its server has no standby
            **overrides,
        },
    )


def silence() -> None:
    """Switch off the bot's own log: a failed run is diagnosed by repeating it."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), logger_factory=structlog.ReturnLoggerFactory()
    )
    for name in ("slack_bolt", "slack_sdk", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def ram() -> Path | None:
    """Return a folder in memory for files that are made thousands of times, None if there is none."""
    memory = Path("/dev/shm")  # noqa: S108 -- a memory file system, not a guessable name in it
    return memory if memory.is_dir() and os.access(memory, os.W_OK) else None
