"""Configuration: environment first, then .env. Every missing or bad item is named at once, with where to get it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, AliasChoices, AnyHttpUrl, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from adapters.policies import OverridesError, RetryOverride, read_overrides

LEASE_SECONDS_MIN = 90  # longer than the longest call of the retry matrix

HINTS = {
    "SLACK_BOT_TOKEN": "the bot token (xoxb-...): your app's page at api.slack.com/apps, OAuth & Permissions",
    "SLACK_APP_TOKEN": "the app-level token (xapp-...) with connections:write: Basic Information, App-Level Tokens",
}


class ConfigurationError(Exception):
    """The configuration cannot be used. The message lists every problem; nothing was started or changed."""


def _retry_overrides(given: object) -> object:
    """Read the overrides of the retry matrix, one error for each bad item; what is no table at all is left to the field's type."""
    if not isinstance(given, dict):
        return given
    try:
        return read_overrides(given)
    except OverridesError as error:
        problems = [
            InitErrorDetails(
                type=PydanticCustomError("retry_override", "{reason}", {"reason": misfit.reason}), loc=misfit.place, input=None
            )
            for misfit in error.misfits
        ]
        raise ValidationError.from_exception_data("Settings", problems, hide_input=True) from error


def _known_zone(name: str) -> str:
    """Refuse a time zone that cannot be read here."""
    try:
        return "UTC" if name == "UTC" else ZoneInfo(name).key
    except (ValueError, OSError, LookupError) as error:  # no zone's name, a folder's, or unknown
        raise ValueError(
            f'no time zone "{name}" is known here; zones are named like Europe/Berlin, and on Debian come with the package tzdata'
        ) from error


class Settings(BaseSettings):
    """Everything that may differ between two installations. Secrets never print."""

    model_config = SettingsConfigDict(
        env_prefix="QUOTEBOT_", env_file=".env", extra="ignore", frozen=True, hide_input_in_errors=True
    )

    data_dir: Path = Path("var")

    slack_bot_token: SecretStr | None = Field(None, validation_alias=AliasChoices("SLACK_BOT_TOKEN", "QUOTEBOT_SLACK_BOT_TOKEN"))
    slack_app_token: SecretStr | None = Field(None, validation_alias=AliasChoices("SLACK_APP_TOKEN", "QUOTEBOT_SLACK_APP_TOKEN"))
    slack_api_url: AnyHttpUrl = Field(
        AnyHttpUrl("https://slack.com/api/"), validation_alias=AliasChoices("SLACK_API_URL", "QUOTEBOT_SLACK_API_URL")
    )
    approvers: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # role -> Slack user ids, as JSON
    ops_channel: str | None = None  # id of the channel where dead letters get a card; without it they get none
    operators: tuple[str, ...] = ()  # Slack user ids, as JSON: who may retry and discard dead letters there
    cli_users: dict[str, str] = Field(default_factory=dict)  # system user -> Slack user id, as JSON: for whom `quotebot quote` acts

    salesforce_instance_url: str | None = Field(None, validation_alias="SALESFORCE_INSTANCE_URL")
    salesforce_client_id: str | None = Field(None, validation_alias="SALESFORCE_CLIENT_ID")
    salesforce_client_secret: SecretStr | None = Field(None, validation_alias="SALESFORCE_CLIENT_SECRET")
    salesforce_ca_file: str | None = Field(None, validation_alias="SALESFORCE_CA_FILE")

    seller_name: str = "Your company"
    seller_lines: tuple[str, ...] = ()
    quote_valid_days: Annotated[int, Field(ge=1, le=365)] = 30
    stale_draft_days: Annotated[int, Field(ge=1, le=365)] = 14  # after so long the requester is reminded of an unsubmitted quote
    time_zone: Annotated[str, AfterValidator(_known_zone)] = "UTC"  # where working mornings are, e.g. Europe/Berlin

    ack_budget_seconds: Annotated[float, Field(gt=0.05, le=2.5)] = 2.0
    settle_delay_seconds: Annotated[float, Field(ge=0.0, le=600.0)] = 30.0
    lease_seconds: Annotated[int, Field(ge=LEASE_SECONDS_MIN, le=3600)] = 120
    drain_seconds: Annotated[float, Field(ge=0.0, le=60.0)] = 8.0
    # class -> what differs from the retry matrix, as JSON: {"crm.create": {"retries": 8, "cap_seconds": 120}}
    retry: Annotated[dict[str, RetryOverride], BeforeValidator(_retry_overrides)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _salesforce_is_whole(self) -> Self:
        """Half a Salesforce configuration is a mistake, not a choice: without any of it CRM writes wait, paused."""
        given = {
            "SALESFORCE_INSTANCE_URL": self.salesforce_instance_url,
            "SALESFORCE_CLIENT_ID": self.salesforce_client_id,
            "SALESFORCE_CLIENT_SECRET": self.salesforce_client_secret,
        }
        missing = [name for name, value in given.items() if not value]
        if missing and len(missing) < len(given):
            raise ValueError(f"Salesforce is configured in part: {', '.join(missing)} missing")
        if self.salesforce_instance_url and urlsplit(self.salesforce_instance_url).scheme != "https":
            raise ValueError("SALESFORCE_INSTANCE_URL must be an https address, such as https://acme.my.salesforce.com")
        if self.salesforce_ca_file and not Path(self.salesforce_ca_file).is_file():
            raise ValueError(f"SALESFORCE_CA_FILE names no file: {self.salesforce_ca_file}")
        return self

    @property
    def ledger_path(self) -> Path:
        """Where the ledger lives."""
        return self.data_dir / "ledger.db"

    @property
    def response_url_hosts(self) -> frozenset[str]:
        """Hosts a response_url may name: Slack's own, or the host of the API this bot is pointed at."""
        return frozenset({"hooks.slack.com", urlsplit(str(self.slack_api_url)).netloc})


def load_settings() -> Settings:
    """Read the configuration. Raises ConfigurationError naming every bad item."""
    try:
        return Settings()
    except ValidationError as error:
        problems = [f"- {_variable(item['loc'])}: {item['msg']}" for item in error.errors(include_input=False)]
    except SettingsError as error:  # a list or a table that is not JSON; its own message names the field, its cause the value
        field = re.search(r'field "(\w+)"', str(error))
        problems = [f"- {_variable((field[1],) if field else ())}: it is not JSON; write lists and tables as JSON"]
    raise ConfigurationError("\n".join(("The configuration cannot be used:", *problems, "Nothing was started.")))


def _variable(place: tuple[int | str, ...]) -> str:
    """Return the environment variable of a field, with the place inside its value."""
    if not place:
        return "the configuration"
    name, *inside = (str(part) for part in place)
    return ".".join((name if name.isupper() else f"QUOTEBOT_{name.upper()}", *inside))


def slack_tokens(settings: Settings) -> tuple[str, str]:
    """Return the bot token and the app token. Raises ConfigurationError naming each that is missing or of the wrong kind."""
    found = {"SLACK_BOT_TOKEN": (settings.slack_bot_token, "xoxb-"), "SLACK_APP_TOKEN": (settings.slack_app_token, "xapp-")}
    problems = []
    for name, (token, prefix) in found.items():
        if token is None or not token.get_secret_value():
            problems.append(f"- {name} is missing: {HINTS[name]}")
        elif not token.get_secret_value().startswith(prefix):
            problems.append(f"- {name} is not a {prefix}... token: {HINTS[name]}")
    if problems:
        head = "Quotebot cannot connect to Slack:"
        raise ConfigurationError(
            "\n".join((head, *problems, "Nothing was started. To try it without an account: quotebot sandbox"))
        )
    assert settings.slack_bot_token is not None  # noqa: S101 -- checked above
    assert settings.slack_app_token is not None  # noqa: S101 -- checked above
    return settings.slack_bot_token.get_secret_value(), settings.slack_app_token.get_secret_value()
