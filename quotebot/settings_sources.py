"""Where settings come from, strongest first: command line, environment, .env, secrets folder, quotebot.toml.

The first source that has a setting gives it whole: tables of two sources are never mixed, so what is shown is what was written.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import AliasChoices
from pydantic_settings import BaseSettings, DotEnvSettingsSource, PydanticBaseSettingsSource, SecretsSettingsSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pydantic.fields import FieldInfo

FILE_NAME: Final = "quotebot.toml"
FILE_VARIABLE: Final = "QUOTEBOT_CONFIG"  # another place of that file
SECRETS_VARIABLES: Final = ("QUOTEBOT_SECRETS_DIR", "CREDENTIALS_DIRECTORY")  # the second is set by systemd
PREFIX: Final = "QUOTEBOT_"


class SettingsFileError(ValueError):
    """quotebot.toml, or the folder of secrets, cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One source and what people call it."""

    name: str
    source: PydanticBaseSettingsSource


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sources say: `values` by variable, and for each of these the source that gave it."""

    values: dict[str, Any]
    origins: dict[str, str]


def variable(name: str, field: FieldInfo) -> str:
    """Return the environment variable of a field: its first alias, or its name with our prefix."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return str(alias.choices[0])
    return alias if isinstance(alias, str) else f"{PREFIX}{name.upper()}"


def key(name: str, field: FieldInfo) -> str:
    """Return the key by which the model takes a field: its first alias, or its name."""
    return name if field.validation_alias is None else variable(name, field)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" for a name that is close to a known one, or an empty text."""
    close = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def file_path() -> Path:
    """Return where quotebot.toml is looked for: $QUOTEBOT_CONFIG, or where you stand."""
    return Path(os.environ.get(FILE_VARIABLE) or FILE_NAME)


def secrets_folder() -> Path | None:
    """Return the folder with one file for each secret, or None when none is named."""
    return next((Path(os.environ[name]) for name in SECRETS_VARIABLES if os.environ.get(name)), None)


def read_file() -> dict[str, Any]:
    """Return quotebot.toml; empty when there is none. Raises SettingsFileError when it is named and missing, or is not TOML."""
    path = file_path()
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        if os.environ.get(FILE_VARIABLE):
            raise SettingsFileError(f"{FILE_VARIABLE} names no file: {path}") from error
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise SettingsFileError(f"{path} cannot be read: {error.strerror}") from error


def unknown_keys(model: type[BaseSettings]) -> list[str]:
    """Return a sentence for each key of quotebot.toml that is no setting."""
    path, known = file_path(), model.model_fields
    return [
        f"{name}: {path} has it, and there is no such setting{nearest(name, known)}" for name in read_file() if name not in known
    ]


class FileSource(PydanticBaseSettingsSource):
    """quotebot.toml: a setting by its lower-case name, lists and tables as TOML has them."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return what the file says of one field."""
        return read_file().get(field_name), key(field_name, field), False

    def __call__(self) -> dict[str, Any]:
        """Return what the file says of the settings it has."""
        found, fields = read_file(), self.settings_cls.model_fields
        return {key(name, field): found[name] for name, field in fields.items() if name in found}


class Layered(PydanticBaseSettingsSource):
    """All sources as one."""

    def __init__(self, model: type[BaseSettings], layers: Sequence[Layer]) -> None:
        super().__init__(model)
        self._layers = layers
        self._keys = {
            spelling: key(name, field) for name, field in model.model_fields.items() for spelling in _spellings(name, field)
        }

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return what the strongest source says of one field."""
        name = key(field_name, field)
        return self.read().values.get(name), name, False

    def read(self) -> Reading:
        """Ask every source."""
        reading = Reading({}, {})
        for layer in self._layers:
            for spelling, value in layer.source().items():
                name = self._keys.get(spelling.lower(), spelling)
                if name not in reading.origins:
                    reading.values[name], reading.origins[name] = value, layer.name
        return reading

    def __call__(self) -> dict[str, Any]:
        """Return the values, each from the strongest source that has it."""
        return self.read().values


def layered(
    model: type[BaseSettings],
    given: PydanticBaseSettingsSource,
    environment: PydanticBaseSettingsSource,
    env_file: PydanticBaseSettingsSource,
) -> Layered:
    """Return the sources of a model in their order. Raises SettingsFileError when the folder of secrets is named and missing."""
    folder = secrets_folder()
    if folder is not None and not folder.is_dir():
        raise SettingsFileError(f"the folder of secrets is missing: {folder} (named by {' or '.join(SECRETS_VARIABLES)})")
    secrets = [] if folder is None else [Layer(f"secrets folder {folder}", SecretsSettingsSource(model, secrets_dir=folder))]
    silent = isinstance(env_file, DotEnvSettingsSource) and not env_file.env_vars  # to ask it all the same would take half the time
    return Layered(
        model,
        [
            Layer("command line", given),
            Layer("environment", environment),
            *([] if silent else [Layer(".env", env_file)]),
            *secrets,
            Layer(str(file_path()), FileSource(model)),
        ],
    )


def _spellings(name: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    others = (
        [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [alias] if isinstance(alias, str) else []
    )
    return [spelling.lower() for spelling in (name, f"{PREFIX}{name}", *others)]
