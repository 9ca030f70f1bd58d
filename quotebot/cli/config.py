"""`quotebot config` and `quotebot init`: the configuration in force, and a first configuration."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from quotebot.cli import exits
from quotebot.cli.children import our_name
from quotebot.cli.tables import print_table
from quotebot.settings import ConfigurationError, load_settings
from quotebot.settings_reference import first_file, shown
from quotebot.settings_reference import reference as page
from quotebot.settings_sources import FILE_NAME, ignored_files

app = App(name="config", help="Show and check the settings")
Json = Annotated[bool, Parameter(name="--json", negative="")]

STEPS: Final = """\
Then connect it to Slack (docs/setup.md says the same with more words):
1. api.slack.com/apps, Create New App, From a manifest, your workspace; paste this file: {manifest}
2. Install to Workspace; copy the Bot User OAuth Token (xoxb-...).
3. Basic Information, App-Level Tokens: generate one with the scope connections:write; copy it (xapp-...).
4. Put both into a file .env in {folder} that only you can read (chmod 600 .env); one that others can change is refused:
   SLACK_BOT_TOKEN=xoxb-...
   SLACK_APP_TOKEN=xapp-...
5. Say in quotebot.toml who may approve: approvers = {{sales_manager = ["U012AB3CD"]}}. Slack shows a person's id in their
   profile: Copy member ID. doctor names the roles that nobody holds yet.
6. Settings are read where you stand (unless QUOTEBOT_CONFIG or QUOTEBOT_SECRETS_DIR is set), so from that folder: see whether
   everything is in order with {name} doctor, start it with {name} run
7. In Slack, where quotes are made: /invite @Quotebot, then /quote help
To try it without an account: {name} sandbox"""


@app.command
def show(
    *,
    set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="")] = (),
    json_output: Json = False,
) -> int:
    """Print every setting: its value, where it came from, its default. Secrets are not shown.

    Parameters
    ----------
    set_
        NAME=VALUE: show what would be in force with it; may be given several times.
    json_output
        Print JSON.
    """
    given = assignments(set_)
    found, ignored = shown(load_settings(given), given), ignored_files()
    if json_output:
        settings, left_out = [asdict(each) for each in found], [asdict(each) for each in ignored]
        print(json.dumps({"schema_version": 1, "settings": settings, "ignored": left_out}, indent=2))
        return exits.OK
    rows = [(each.name, _cell(each.value), each.origin, _cell(each.default)) for each in found]
    print_table(("SETTING", "VALUE", "FROM", "DEFAULT"), rows)
    for each in ignored:
        exits.complain(f"{each.path} is ignored: {each.reason}.")
    return exits.OK


@app.command
def reference(*, json_output: Json = False) -> int:
    """Print the page of all settings, docs/configuration.md.

    Parameters
    ----------
    json_output
        Print JSON.
    """
    if json_output:
        print(json.dumps({"schema_version": 1, "page": page()}, indent=2))
    else:
        print(page(), end="")
    return exits.OK


def init(folder: Path = Path(), *, json_output: Json = False) -> int:
    """Write a first quotebot.toml and print how to connect to Slack.

    An existing file is never changed.

    Parameters
    ----------
    folder
        Where to write it; made if need be.
    json_output
        Print JSON.
    """
    path = folder / FILE_NAME
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(first_file())
    except FileExistsError:
        return exits.complain(
            f"{path.absolute()} is there already and was not changed. Choose another folder, or edit it.", exits.CONFLICT
        )
    if json_output:
        print(json.dumps({"schema_version": 1, "path": str(path.absolute()), "manifest": str(_manifest())}, indent=2))
        return exits.OK
    print(f"{path.absolute()} was written; everything in it has its default.")
    print(STEPS.format(manifest=_manifest(), folder=folder.absolute(), name=our_name()))
    return exits.OK


def assignments(given: tuple[str, ...]) -> dict[str, str]:
    """Return the assignments of `--set NAME=VALUE`. Raises ConfigurationError for a text that is no assignment."""
    wrong = [text for text in given if "=" not in text]
    if wrong:
        raise ConfigurationError(f"--set takes NAME=VALUE, not {wrong[0]}. Nothing was done.")
    return dict(text.split("=", 1) for text in given)


def _manifest() -> Path:
    """Return the path of the app's manifest: beside the package in a checkout, inside it in an installation."""
    package = Path(__file__).parent.parent
    beside = package.parent / "manifest.yml"
    return beside if beside.is_file() else package / "data" / "manifest.yml"


def _cell(value: object) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)
