"""Configuration: everything that may differ between two installations. All missing or bad items are reported at once, with a hint.

The sources and their order are those of settings_sources.py; the descriptions are printed by `quotebot init` and in
docs/configuration.md.
"""

from __future__ import annotations

import json
import os
import re
from decimal import Decimal
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, AliasChoices, AnyHttpUrl, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from adapters.policies import OverridesError, RetryOverride, read_overrides
from quotebot.settings_sources import SettingsFileError, SourcedSettings, key, layered, nearest, unknown_keys, variable

if TYPE_CHECKING:
    from collections.abc import Mapping

LEASE_SECONDS_MIN = 90  # longer than the longest call of the retry matrix

HINTS = {
    "SLACK_BOT_TOKEN": "the bot token (xoxb-...): your app's page at api.slack.com/apps, OAuth & Permissions",
    "SLACK_APP_TOKEN": "the app-level token (xapp-...) with connections:write: App-Level Tokens on the first page of your app",
}

SALESFORCE = (
    "SALESFORCE_INSTANCE_URL",
    "SALESFORCE_CLIENT_ID",
    "SALESFORCE_CLIENT_SECRET",
    "SALESFORCE_USERNAME",
    "SALESFORCE_PRIVATE_KEY",
    "SALESFORCE_CA_FILE",
)  # an installation needs the first two and one way to log in
MODEL = ("llm_base_url", "llm_model", "llm_api_key")  # the last is optional


class ConfigurationError(Exception):
    """Invalid configuration. The message lists every problem; nothing was started or changed."""


def _from_text(given: object) -> object:
    """Parse a list or a table from a source that gives only text."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is not JSON; write lists and tables as JSON") from error


def _retry_overrides(given: object) -> object:
    """Parse the overrides of the retry matrix, one error per bad item; a value that is no table is left to the field's type."""
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
    """Reject a time zone that is not known on this machine."""
    try:
        return "UTC" if name == "UTC" else ZoneInfo(name).key
    except (ValueError, OSError, LookupError) as error:  # not a zone's name, the name of a folder, or unknown
        raise ValueError(
            f'no time zone "{name}" is known here; zones are named like Europe/Berlin, and on Debian come with the package tzdata'
        ) from error


def _usable_mapping(path: Path) -> Path:
    """Reject a mapping that cannot be read or that names something unknown."""
    from adapters.salesforce.mapping import MappingFileError, read_mapping  # noqa: PLC0415 -- imported only if a mapping is set

    try:
        read_mapping(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"it cannot be read ({error.strerror})") from error
    except (MappingFileError, UnicodeDecodeError) as error:
        raise ValueError("; ".join(str(error).splitlines())) from error
    return path


def _safe_address(url: AnyHttpUrl) -> AnyHttpUrl:
    """Reject an address that would send secrets in clear text, or that contains a password."""
    problem = _address_problem(str(url))
    if problem:
        raise ValueError(problem)
    return url


def _safe_dsn(given: SecretStr) -> SecretStr:
    """Reject a Sentry address that would send reports in clear text. Its user part is Sentry's public key."""
    address = given.get_secret_value()
    problem = _address_problem(address, with_key=True)
    if problem and address.lower().startswith("http:"):  # an address that cannot be parsed is reported by doctor and stops nothing
        raise ValueError(problem)
    return given


def _address_problem(address: str, *, with_key: bool = False) -> str | None:
    """Return why secrets must not be sent to an address, or None."""
    try:
        parts = urlsplit(address)
        host, user = parts.hostname or "", parts.username or parts.password
    except ValueError:
        return "it is not an address"
    if user and not with_key:
        return "an address must not hold a user name or a password; they would be shown wherever the address is"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        return None
    return "it must be an https address; plain http is only for this machine itself (127.0.0.1, localhost)"


def is_loopback(host: str) -> bool:
    """Return true if the host of an address is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def safe_database(address: str) -> str:
    """Reject an address of a database that would send its rows in clear text, or that contains a password."""
    parts = urlsplit(address)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("it must begin with postgresql://; leave it out for a file in the data folder")
    login, _, hosts = parts.netloc.rpartition("@")
    asked = parse_qsl(parts.query)
    after = address.partition("://")[2].removeprefix(parts.netloc)
    if not address.isprintable() or re.search(r"[@#\s]", after):  # the library would look for the host after an @ there
        raise ValueError("write @, # and blanks as %40, %23 and %20, except for the @ before the host")
    if any(name in ("ssl", "requiressl") for name, _ in asked):  # the library would take sslmode=require for them
        raise ValueError("leave ssl and requiressl out: sslmode=verify-full says it")
    if ":" in login or any(name.endswith("password") for name, _ in asked):  # sslpassword is that of a key
        raise ValueError("an address must not hold a password; put it into QUOTEBOT_LEDGER_PASSWORD, or into the secrets folder")
    places = [re.sub(r":\d*$", "", each).strip("[]") for each in unquote(hosts).split(",")]
    places += [each for name, value in asked if name in ("host", "hostaddr") for each in value.split(",")]
    if not any(places):  # the library would take a host, and no TLS, out of the environment
        raise ValueError("it names no server: give a host, or the folder of a socket (?host=/var/run/postgresql)")
    outside = [place for place in places if place and not (place.startswith("/") or is_loopback(place))]
    if outside and dict(asked).get("sslmode") != "verify-full":
        raise ValueError(f"{outside[0]} is not this machine: sslmode=verify-full is needed, with sslrootcert=FILE, or system")
    return address


SafeUrl = Annotated[AnyHttpUrl, AfterValidator(_safe_address)]


CONTRAST_MIN: Final = 3.0  # WCAG 2.2, 1.4.3: large text
_COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}")


def contrast_on_white(colour: str) -> float:
    """Return the WCAG contrast ratio of "#rrggbb" on white: 21 for black, 1 for white."""
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def readable_colour(text: str) -> str:
    """Return the colour. Raises ValueError, with a readable message, if it is no colour or too light for headings on white."""
    if not _COLOUR.fullmatch(text):
        raise ValueError("a colour is written like #1f4e79")
    contrast = contrast_on_white(text)
    if contrast < CONTRAST_MIN:
        raise ValueError(f"too light to be read on white: contrast {contrast:.1f}, at least {CONTRAST_MIN:.0f} is needed")
    return text


def _linear(channel: float) -> float:
    """Return the linear light of one sRGB channel, both from 0 to 1."""
    return float(channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4)  # noqa: PLR2004 -- the standard


class Settings(BaseSettings):
    """Everything that may differ between two installations. Secrets never print."""

    model_config = SettingsConfigDict(
        env_prefix="QUOTEBOT_", env_file=(), extra="ignore", frozen=True, hide_input_in_errors=True, enable_decoding=False
    )

    data_dir: Path = Field(Path("var"), description="Folder of the ledger, the audit keys and the documents; for its owner alone")

    slack_bot_token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("SLACK_BOT_TOKEN", "QUOTEBOT_SLACK_BOT_TOKEN"),
        description="Bot token (xoxb-...): your app's page at api.slack.com/apps, OAuth & Permissions",
    )
    slack_app_token: SecretStr | None = Field(
        None,
        validation_alias=AliasChoices("SLACK_APP_TOKEN", "QUOTEBOT_SLACK_APP_TOKEN"),
        description="App-level token (xapp-...) with connections:write: App-Level Tokens on the first page of your app",
    )
    slack_api_url: SafeUrl = Field(
        AnyHttpUrl("https://slack.com/api/"),
        validation_alias=AliasChoices("SLACK_API_URL", "QUOTEBOT_SLACK_API_URL"),
        description="Where Slack's Web API is; a host that is not Slack's only for the sandbox or a proxy, and never out of a file",
    )
    slack_messages_at_once: Annotated[int, Field(ge=1, le=100_000)] = Field(
        15,
        validation_alias=AliasChoices("SLACK_MESSAGES_AT_ONCE", "QUOTEBOT_SLACK_MESSAGES_AT_ONCE"),
        description="How many messages may go into one channel without a wait; beyond them it is one a second, as Slack asks",
    )
    approvers: Annotated[dict[str, tuple[str, ...]], BeforeValidator(_from_text)] = Field(
        default_factory=dict, description='Who may approve: role to Slack user ids, {"vp_sales": ["U0VP"]}'
    )
    approval_buttons_in_channel: bool = Field(
        default=True,
        description="Whether the card in the channel has Approve, Request changes and Reject; approvers have them in their direct "
        "messages and on the Home tab in any case",
    )
    ops_channel: str | None = Field(None, description="Id of the channel where dead letters get a card; without it they get none")
    shared_channels: Annotated[tuple[str, ...], BeforeValidator(_from_text)] = Field(
        (),
        description="Ids of channels that may hold quotes although another organization reads them (Slack Connect), "
        '["C0PARTNER"]; elsewhere quotes go to direct messages',
    )
    operators: Annotated[tuple[str, ...], BeforeValidator(_from_text)] = Field(
        (), description='Slack user ids who may process dead letters and differences with Salesforce in Slack, ["U0OPS"]'
    )
    guest_reps: Annotated[tuple[str, ...], BeforeValidator(_from_text)] = Field(
        (),
        description="Slack user ids of guests who may make quotes and see their own; they never approve. Others are refused, "
        '["U0AGENCY"]',
    )
    enterprise_id: str | None = Field(
        None,
        description="Id of your Enterprise organization (E...): then members of its other workspaces then count like the bot's",
    )
    cli_users: Annotated[dict[str, str], BeforeValidator(_from_text)] = Field(
        default_factory=dict,
        description='Who a person at the terminal is in Slack: system user to Slack user id, {"ann": "U0ANN"}; decisions need it',
    )
    cli_operators: Annotated[tuple[str, ...], BeforeValidator(_from_text)] = Field(
        (), description='System users who may act in another person\'s name with `--as`, never to decide, ["ann"]'
    )

    salesforce_instance_url: str | None = Field(
        None,
        validation_alias="SALESFORCE_INSTANCE_URL",
        description="Your org's address, https://acme.my.salesforce.com: Setup, My Domain. Without it CRM writes wait, paused",
    )
    salesforce_client_id: str | None = Field(
        None, validation_alias="SALESFORCE_CLIENT_ID", description="Consumer key: Setup, App Manager, your connected app"
    )
    salesforce_client_secret: SecretStr | None = Field(
        None, validation_alias="SALESFORCE_CLIENT_SECRET", description="Consumer secret: beside the consumer key"
    )
    salesforce_username: str | None = Field(
        None,
        validation_alias="SALESFORCE_USERNAME",
        description="For a login by key instead of a secret: the integration user's name",
    )
    salesforce_private_key: SecretStr | None = Field(
        None,
        validation_alias="SALESFORCE_PRIVATE_KEY",
        description="PEM text of the RSA key whose certificate the connected app holds; as a file of the secrets folder",
    )
    salesforce_audience: str = Field(
        "https://login.salesforce.com",
        validation_alias="SALESFORCE_AUDIENCE",
        description="Whom a login by key is meant for; https://test.salesforce.com for a sandbox org",
    )
    salesforce_ca_file: str | None = Field(
        None,
        validation_alias="SALESFORCE_CA_FILE",
        description="PEM file of the authority that signs the org's certificate, if private",
    )
    crm_sync_minutes: Annotated[int, Field(ge=1, le=1440)] | None = Field(
        None, description="How often to read what people changed in Salesforce; without it that is noticed at the next write only"
    )
    crm_account_lookup: bool = Field(
        False,  # noqa: FBT003 -- the default of a field
        description="Whether the form for a new quote offers the names of accounts in Salesforce while somebody types",
    )
    crm_opportunity_lookup: bool = Field(
        False,  # noqa: FBT003 -- as above
        description="Whether that form then offers the account's open opportunities too, to put the quote's record under one",
    )
    crm_mirror: Annotated[tuple[Literal["accounts", "contacts", "opportunities", "prices"], ...], BeforeValidator(_from_text)] = (
        Field(
            (),
            description="What of Salesforce to read as often as crm_sync_minutes says, and to keep for when it does not answer: "
            '["accounts", "opportunities"], also "contacts" and "prices"',
        )
    )
    salesforce_mapping: Annotated[Path, AfterValidator(_usable_mapping)] | None = Field(
        None, description="TOML file with your org's own objects and fields; docs/salesforce.md has the one that is built in"
    )

    llm_base_url: SafeUrl | None = Field(
        None, description="A server that speaks OpenAI's chat completions, https://api.openai.com/v1; without it no model is asked"
    )
    llm_api_key: SecretStr | None = Field(None, description="Key of that server; one of your own may need none")
    llm_model: str | None = Field(None, description="Name of the model to ask there")
    llm_readings_per_day: Annotated[int, Field(ge=1, le=10_000)] = Field(
        50, description="How many messages of one person the model reads in a day (UTC); after that fixed rules read them"
    )
    llm_summaries_per_day: Annotated[int, Field(ge=0, le=10_000)] = Field(
        50, description="How many of one person's requests for approval the model sums up in a day (UTC); 0: none"
    )
    llm_keep_text: bool = Field(
        default=False,
        description="Whether the log of calls keeps what was sent and answered; without it only their hashes are kept",
    )

    seller_name: str = Field("Your company", description="Who sells: the head of every document")
    seller_lines: Annotated[tuple[str, ...], BeforeValidator(_from_text)] = Field(
        (), description='Lines below it, such as the address, ["1 High Street", "London"]'
    )
    seller_logo: Path | None = Field(
        None, description="PNG file of at most 512 KiB for the head of every document; without it, the name"
    )
    seller_accent: Annotated[str, AfterValidator(readable_colour)] = Field(
        "#1f4e79", description="Colour of headings and rules on documents, dark enough to be read on white"
    )
    seller_footer: Annotated[str, Field(max_length=300)] = Field(
        "", description="Line at the foot of every page: company register, tax number, bank"
    )
    seller_terms: Annotated[tuple[str, ...], Field(max_length=40), BeforeValidator(_from_text)] = Field(
        (), description='Terms printed on every document, in place of the two that come with it, ["Payment within 30 days."]'
    )
    document_locale: Annotated[str, Field(pattern=r"^[a-z]{2}_[A-Z]{2}$")] = Field(
        "en_US", description="Language and country of documents: texts (en or de), figures, dates, and Letter or A4 paper"
    )
    document_template: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")] = Field(
        "detailed", description="Template of documents: detailed, summary (without unit prices), or one of your own"
    )
    document_folder: Path | None = Field(
        None, description="Folder of your own document templates, style sheet and clauses (docs/documents.md)"
    )
    quote_valid_days: Annotated[int, Field(ge=1, le=365)] = Field(30, description="How many days an offer stands")
    rate_days_max: Annotated[int, Field(ge=1, le=3650)] | None = Field(
        None, description="Oldest exchange rate, in days, that may price a quote; without it any age, and doctor warns"
    )
    ruleset_review: bool = Field(
        default=False, description="A draft of prices or of an approval policy needs another system user to activate it"
    )
    reuse_tolerance: Annotated[Decimal, Field(ge=1, le=100, max_digits=5, decimal_places=2)] = Field(
        Decimal(95),
        description="Per cent of each line and of the total that a changed quote must keep for its earlier approval to hold",
    )
    stale_draft_days: Annotated[int, Field(ge=1, le=365)] = Field(
        14, description="After so many days the requester is reminded of a quote that was not submitted"
    )
    language: Literal["en", "de"] = Field("en", description="Language of the bot in Slack; documents have document_locale")
    time_zone: Annotated[str, AfterValidator(_known_zone)] = Field(
        "UTC", description="Where working mornings are, such as Europe/Berlin"
    )

    socket_connections: Annotated[int, Field(ge=1, le=4)] = Field(
        1, description="Connections to Slack at once; with two, one that breaks leaves no gap. Slack gives an app ten in all"
    )
    ack_budget_seconds: Annotated[float, Field(gt=0.05, le=2.5)] = Field(
        2.0, description="How long a command may take to be recorded before Slack is told to try again; Slack itself waits 3 s"
    )
    commands_per_minute: Annotated[int, Field(ge=5, le=100_000)] = Field(
        60, description="How many commands one person may give within a minute; beyond them nothing is recorded, and they are told"
    )
    settle_delay_seconds: Annotated[float, Field(ge=0.0, le=600.0)] = Field(
        30.0, description="How long after a lost answer the other side is asked whether the work was done"
    )
    lease_seconds: Annotated[int, Field(ge=LEASE_SECONDS_MIN, le=3600)] = Field(
        120,
        description="After so long without a sign of life, work is taken from a process that is gone. One value for every class: "
        "a running process renews its claims",
    )
    poison_claims: Annotated[int, Field(ge=3, le=20)] = Field(
        3, description="At how many crashes of the bot a command or an effect may be under way before it is given up as their cause"
    )
    breaker_failures: Annotated[int, Field(ge=3, le=100)] = Field(
        5, description="After how many calls in a row without a useful answer a class of effects is held (circuit breaker)"
    )
    breaker_effects: Annotated[int, Field(ge=1, le=20)] = Field(
        3, description="Of how many different effects these calls must be; at most breaker_failures"
    )
    breaker_seconds: Annotated[float, Field(ge=1, le=3600)] = Field(
        30.0, description="How long the class is then held, before one effect tries again"
    )
    drain_seconds: Annotated[float, Field(ge=0.0, le=60.0)] = Field(
        8.0, description="How long work under way may go on when the bot is asked to stop"
    )
    health_port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        None, description="Port on 127.0.0.1 for /healthz, /readyz and /metrics; without it nothing is served"
    )
    otlp_endpoint: SafeUrl | None = Field(
        None,
        validation_alias="OTEL_EXPORTER_OTLP_ENDPOINT",
        description="OpenTelemetry collector that gets traces by HTTP, http://127.0.0.1:4318; needs the extra otel",
    )
    otlp_headers: SecretStr | None = Field(
        None, validation_alias="OTEL_EXPORTER_OTLP_HEADERS", description="What that collector wants to see, api-key=...,team=..."
    )
    sentry_dsn: Annotated[SecretStr, AfterValidator(_safe_dsn)] | None = Field(
        None,
        validation_alias="SENTRY_DSN",
        description="Address of a Sentry project that gets errors and dead letters; needs the extra sentry",
    )
    ledger_url: Annotated[str, AfterValidator(safe_database)] | None = Field(
        None,
        description="Database of the ledger in place of the file in the data folder: postgresql://quotebot@db.example/quotebot"
        "?sslmode=verify-full&sslrootcert=system; needs the extra postgres",
    )
    ledger_password: SecretStr | None = Field(
        None, description="Password for that database; better as a file of the secrets folder"
    )
    replica_name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$")] = Field(
        "main", description="Name of this bot among several on one database, each with a name of its own"
    )
    ledger_durability: Literal["quorum", "local"] = Field(
        "quorum",
        description="What a commit in that database must survive: `quorum` the loss of the server, `local` only its crash",
    )
    backup_folder: Path | None = Field(
        None, description="Where backups go, better on another disk; without it a folder `backups` in the data folder"
    )
    backup_hours: Annotated[int, Field(ge=0, le=744)] = Field(
        24, description="Hours between two backups by the bot; 0: it makes none"
    )
    backup_keep: Annotated[int, Field(ge=1, le=1000)] = Field(7, description="How many backups are kept there")
    delivery_keep_hours: Annotated[int, Field(ge=2, le=8760)] = Field(
        168, description="Hours for which a delivery is recognised as a repeated one; every source stops repeating within two"
    )
    closed_keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        90, description="How many days the commands of a quote are kept after it has ended"
    )
    refused_keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        30, description="How many days a refused command is kept, and one that concerns no quote"
    )
    tombstone_keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        400,
        description="For how many more days a late repetition of a deleted command is answered; at least delivery_keep_hours",
    )
    model_keep_days: Annotated[int, Field(ge=2, le=3650)] = Field(
        90, description="How many days the log of calls to the model, what it read and what it said for approvers are kept"
    )
    reconcile_keep_days: Annotated[int, Field(ge=1, le=3650)] = Field(
        400, description="How many days a settled row of the reconcile queue is kept; an open one always is"
    )
    retry: Annotated[dict[str, RetryOverride], BeforeValidator(_retry_overrides), BeforeValidator(_from_text)] = Field(
        default_factory=dict,
        description='What differs from the retry matrix, by class: {"crm.create": {"retries": 8, "cap_seconds": 120}}. Items: '
        f"{', '.join(RetryOverride.model_fields)}",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # reads nothing; `.env` is read after its owner and mode were checked
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- library signature; see secrets_folder
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in their order of precedence; each setting comes whole from one of them."""
        wanted = not isinstance(dotenv_settings, DotEnvSettingsSource) or dotenv_settings.env_file is not None
        return (layered(settings_cls, init_settings, env_settings, with_env_file=wanted),)

    @model_validator(mode="after")
    def _groups_are_whole(self) -> Self:
        """Reject a partial configuration of Salesforce or of the model as a mistake, and settings that contradict each other.

        Without any of Salesforce's settings CRM writes wait, paused; without a server and a model's name no model is called.
        """
        problems = _salesforce_problems({name: getattr(self, name.lower()) for name in SALESFORCE})
        problems = problems or _model_problems({name: getattr(self, name) for name in MODEL})
        if self.breaker_effects > self.breaker_failures:
            problems = [*problems, "breaker_effects must not be above breaker_failures: so few calls are of fewer effects"]
        if self.tombstone_keep_days * 24 < self.delivery_keep_hours:
            problems = [*problems, "tombstone_keep_days must not be shorter than delivery_keep_hours"]
        if self.ledger_url is None and self.replica_name != "main":
            problems = [*problems, "replica_name is for a ledger in a database (ledger_url): a file has one bot"]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every configured secret; these must never be shown."""
        values = (getattr(self, name) for name in type(self).model_fields)
        return tuple(value.get_secret_value() for value in values if isinstance(value, SecretStr) and value.get_secret_value())

    @property
    def ledger_path(self) -> Path:
        """The path of the ledger."""
        return self.data_dir / "ledger.db"

    @property
    def response_url_hosts(self) -> frozenset[str]:
        """The hosts that a response_url may name: Slack's own, or the host of the configured API."""
        return frozenset({"hooks.slack.com", urlsplit(str(self.slack_api_url)).netloc})


def load_settings(given: Mapping[str, str] | None = None, *, for_slack: bool = False) -> Settings:
    """Read the configuration. `given` are the command line's settings, by name, as text. `for_slack` requires both tokens.

    Raises ConfigurationError naming every bad item and, for Slack, every missing one.
    """
    chosen, problems = _chosen(given or {})
    try:
        problems += unknown_keys(Settings)
        settings = Settings(**chosen)
    except SettingsFileError as error:  # the content is unknown, so nothing is reported as missing
        raise ConfigurationError("\n".join(("The configuration cannot be used:", f"- {error}", "Nothing was started."))) from error
    except ValidationError as error:
        problems += _misfits(error, read_settings(given))
    else:
        if not problems:
            if for_slack:
                slack_tokens(settings)
            return settings
    if for_slack:
        problems += _token_problems(read_settings(given).values)
    lines = (f"- {problem}" for problem in problems)
    raise ConfigurationError("\n".join(("The configuration cannot be used:", *lines, "Nothing was started.")))


def read_settings(given: Mapping[str, str] | None = None) -> SourcedSettings:
    """Return the unchecked values of the sources, with the source of each. Raises SettingsFileError."""
    return layered(
        Settings,
        InitSettingsSource(Settings, init_kwargs=_chosen(given or {})[0]),
        EnvSettingsSource(Settings),
    ).read()


def _chosen(given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of the command line by the model's keys, and a sentence for each unknown one."""
    fields = Settings.model_fields
    secrets = [name for name in given if name in fields and "SecretStr" in str(fields[name].annotation)]
    known = {key(name, fields[name]): value for name, value in given.items() if name in fields and name not in secrets}
    problems = [f"{name}: there is no such setting{nearest(name, fields)}" for name in given if name not in fields]
    return known, [*problems, *(_not_there(name, variable(name, fields[name])) for name in secrets)]


def _not_there(name: str, in_environment: str) -> str:
    return (
        f"{name}: a secret is not taken from the command line, where everybody on this machine can read it (ps) and the shell "
        f"keeps it. Put it into the environment variable {in_environment}, or into a file {in_environment} in the folder of secrets"
    )


def _misfits(error: ValidationError, reading: SourcedSettings) -> list[str]:
    """Return a sentence for each bad item, with its source.

    Salesforce's problems are listed even if validation stopped before them.
    """
    problems = []
    for item in error.errors(include_input=False):
        origin = reading.origins.get(str(item["loc"][0])) if item["loc"] else None
        words = str(item["msg"]).removeprefix("Value error, ")
        problems.append(f"{_variable(item['loc'])}: {words}" + (f" (from {origin})" if origin else ""))
    if all(item["loc"] for item in error.errors(include_input=False)):
        given = {name: reading.values.get(name) for name in SALESFORCE}
        problems += [f"the configuration: {problem}" for problem in _salesforce_problems(given)]
    of_the_model = _model_problems({name: reading.values.get(name) for name in MODEL})
    return list(dict.fromkeys((*problems, *(f"the configuration: {problem}" for problem in of_the_model))))


def _salesforce_problems(given: Mapping[str, object]) -> list[str]:
    """Return the problems of Salesforce's settings taken together; `given` maps variables to values."""
    url, ca_file = given["SALESFORCE_INSTANCE_URL"], given["SALESFORCE_CA_FILE"]
    by_key = given["SALESFORCE_USERNAME"] or given["SALESFORCE_PRIVATE_KEY"]
    needed = ("SALESFORCE_INSTANCE_URL", "SALESFORCE_CLIENT_ID", *(SALESFORCE[3:5] if by_key else SALESFORCE[2:3]))
    missing = [name for name in needed if not given[name]]
    problems = []
    if missing and any(given[name] for name in SALESFORCE[:5]):
        problems.append(f"Salesforce is configured in part: {', '.join(missing)} missing")
    if by_key and given["SALESFORCE_CLIENT_SECRET"]:
        problems.append("Salesforce has two ways to log in: give SALESFORCE_CLIENT_SECRET or SALESFORCE_PRIVATE_KEY, not both")
    if url and urlsplit(str(url)).scheme != "https":
        problems.append("SALESFORCE_INSTANCE_URL must be an https address, such as https://acme.my.salesforce.com")
    elif url and _address_problem(str(url)):
        problems.append(f"SALESFORCE_INSTANCE_URL: {_address_problem(str(url))}")
    if ca_file and not (os.access(str(ca_file), os.R_OK) and Path(str(ca_file)).is_file()):
        problems.append(f"SALESFORCE_CA_FILE names no file that this user can read: {ca_file}")
    return problems


def _model_problems(given: Mapping[str, object]) -> list[str]:
    """Return the problems of the model's settings taken together; `given` maps names to values. The API key is optional."""
    missing = [f"QUOTEBOT_{name.upper()}" for name in MODEL[:2] if not given[name]]
    if not missing or not any(given.values()):
        return []
    return [f"the language model is configured in part: {', '.join(missing)} missing"]


def _variable(place: tuple[int | str, ...]) -> str:
    """Return the environment variable of a field, with the place inside its value."""
    if not place:
        return "the configuration"
    name, *inside = (str(part) for part in place)
    return ".".join((name if name.isupper() else f"QUOTEBOT_{name.upper()}", *inside))


def _token_problems(given: Mapping[str, object]) -> list[str]:
    """Return a sentence for each token that is missing or of the wrong kind; `given` maps variables to values."""
    problems = []
    for name, prefix in {"SLACK_BOT_TOKEN": "xoxb-", "SLACK_APP_TOKEN": "xapp-"}.items():
        token = given.get(name)
        text = token.get_secret_value() if isinstance(token, SecretStr) else str(token or "")
        if not text:
            problems.append(f"{name} is missing: {HINTS[name]}")
        elif not text.startswith(prefix):
            problems.append(f"{name} is not a {prefix}... token: {HINTS[name]}")
    return problems


def slack_tokens(settings: Settings) -> tuple[str, str]:
    """Return the bot token and the app token. Raises ConfigurationError naming each that is missing or of the wrong kind."""
    problems = _token_problems({name: getattr(settings, name.lower()) for name in HINTS})
    if problems:
        raise ConfigurationError(
            "\n".join(
                (
                    "Quotebot cannot connect to Slack:",
                    *(f"- {problem}" for problem in problems),
                    "Nothing was started. To try it without an account: quotebot sandbox",
                )
            )
        )
    assert settings.slack_bot_token is not None  # noqa: S101 -- checked above
    assert settings.slack_app_token is not None  # noqa: S101 -- checked above
    return settings.slack_bot_token.get_secret_value(), settings.slack_app_token.get_secret_value()
