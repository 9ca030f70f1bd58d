"""Presentation of the settings: their values and sources, the first quotebot.toml, and the reference page."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pydantic import AnyUrl, SecretStr
from pydantic_core import to_jsonable_python

from quotebot.observability.logs import REDACTED
from quotebot.settings import Settings, read_settings
from quotebot.settings_sources import FILE_NAME, FILE_VARIABLE, SECRETS_VARIABLES, key, variable

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT: Final = "default"
# group -> prefixes of its settings; the last group takes all others
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Slack": ("slack_",),
    "Salesforce": ("salesforce_",),
    "A language model": ("llm_",),
    "People": ("approvers", "operators", "ops_channel", "shared_channels", "cli_users", "cli_operators"),
    "Quotes": ("seller_", "quote_", "stale_", "time_zone"),
    "The machine": ("",),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting in force. Values are JSON values; for a secret only its presence is shown."""

    name: str
    variable: str
    value: Any
    origin: str
    default: Any
    secret: bool
    about: str


def shown(settings: Settings, given: Mapping[str, str] | None = None) -> list[Setting]:
    """Return every setting, in the order of the groups. `given` are the settings of the command line, by name."""
    origins = read_settings(given).origins
    found = []
    for name in chain.from_iterable(groups().values()):
        field = Settings.model_fields[name]
        value = getattr(settings, name)
        default = field.get_default(call_default_factory=True)
        found.append(
            Setting(
                name=name,
                variable=variable(name, field),
                value=_plain(value),
                origin=origins.get(key(name, field), DEFAULT),
                default=_plain(default),
                secret=is_secret(name),
                about=field.description or "",
            )
        )
    return found


def groups() -> dict[str, list[str]]:
    """Return the names of the settings of each group, as declared."""
    found: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name in Settings.model_fields:
        found[next(group for group, starts in GROUPS.items() if name.startswith(starts))].append(name)
    return found


def is_secret(name: str) -> bool:
    """Return true if a setting is a secret: it is never shown and does not belong in quotebot.toml."""
    return "SecretStr" in str(Settings.model_fields[name].annotation)


def first_file() -> str:
    """Return a quotebot.toml without effect: every setting as a comment, with its description and its default."""
    lines = [
        "# Quotebot's settings. What is left out has the default shown here. Stronger than this file, in this order: the command",
        "# line (--set), the environment, a file .env, a folder of secrets. Secrets belong there, not here.",
        "# See what is in force and where it came from: quotebot config show",
    ]
    for group, names in groups().items():
        lines += ["", f"# --- {group} ---"]
        for name in names:
            field = Settings.model_fields[name]
            lines += ["", f"# {field.description}."]
            if is_secret(name):
                lines.append(f"# A secret: set {variable(name, field)} in the environment, in .env or in the folder of secrets.")
            else:
                default = _plain(field.get_default(call_default_factory=True))
                # JSON texts, numbers and lists are valid TOML, and no default holds a non-empty table.
                lines.append(f"# {name} = " + ('"..."' if default is None else json.dumps(default)))
    return "\n".join(lines) + "\n"


def reference() -> str:
    """Return docs/configuration.md."""
    secrets = " or ".join(f"`{name}`" for name in SECRETS_VARIABLES)
    lines = [
        "# Configuration",
        "",
        "This page is written by `quotebot config reference`. Strongest first, a setting is taken from",
        "",
        "1. the command line: `quotebot run --set time_zone=Europe/Berlin` (also `config show` and `doctor`),",
        "2. the environment,",
        "3. a file `.env` where the bot is started, with the same names,",
        f"4. a folder with one file for each secret, named like the variable: the folder in {secrets} (the second is systemd's),",
        f"5. `{FILE_NAME}` where the bot is started, or the file in `{FILE_VARIABLE}`. `quotebot init` writes a first one.",
        "",
        "Each setting comes whole from one of them; lists and tables are JSON everywhere but in the TOML file. Everything that is",
        "missing or wrong is named at once, and so is a key of the file that is no setting. A secret is not shown by any command.",
        "",
        f"Once `{FILE_VARIABLE}`, {secrets} is set, `.env` and `{FILE_NAME}` of the current folder are ignored: an installation",
        "takes no settings from wherever an operator stands. A file is refused, whole, if it belongs to another user than you and",
        "root, if group or others may write it, or if they may replace it in its folder; the message names the file, its mode and",
        "the command that mends it. Addresses are https (plain http only on this machine) and hold no password. A file cannot send",
        "the tokens to a host that is not Slack's: `slack_api_url` of another host comes from `--set` or the environment alone.",
        "`quotebot config show` prints what is in force, where it came from and which files are ignored;",
        "`quotebot doctor` tries it.",
    ]
    for group, names in groups().items():
        lines += ["", f"## {group}", "", "| in the file | in the environment | default | what |", "|---|---|---|---|"]
        for name in names:
            field = Settings.model_fields[name]
            default = _plain(field.get_default(call_default_factory=True))
            cell = "" if default is None else f"`{json.dumps(default)}`"
            in_file = "(a secret)" if is_secret(name) else f"`{name}`"
            lines.append(f"| {in_file} | `{variable(name, field)}` | {cell} | {field.description}{_bounds(name)} |")
    return "\n".join(lines) + "\n"


def _bounds(name: str) -> str:
    """Return the allowed range of a number as text."""
    signs = {"ge": "from", "gt": "above", "le": "to"}
    found = [
        f"{word} {getattr(rule, sign):g}"
        for rule in Settings.model_fields[name].metadata
        for sign, word in signs.items()
        if hasattr(rule, sign)
    ]
    return f" ({' '.join(found)})" if found else ""


def _plain(value: object) -> Any:
    """Return a value as JSON has it, and a secret as a mark."""
    if isinstance(value, SecretStr):
        return REDACTED if value.get_secret_value() else ""
    return str(value) if isinstance(value, AnyUrl) else to_jsonable_python(value, exclude_none=True)
