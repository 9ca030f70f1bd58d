"""Sources of settings, strongest first: command line, environment, .env, secrets folder, quotebot.toml.

The first source that has a setting gives it whole: tables of two sources are never mixed, so the value shown is the value written.
Files are read only if no other user can change them. `.env` and quotebot.toml of the current folder count only while the
environment names neither a settings file nor a secrets folder: an installation takes no settings from the operator's current
folder.
"""

from __future__ import annotations

import os
import pwd
import stat
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import AliasChoices, AnyHttpUrl
from pydantic_settings import BaseSettings, DotEnvSettingsSource, PydanticBaseSettingsSource, SecretsSettingsSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pydantic.fields import FieldInfo

FILE_NAME: Final = "quotebot.toml"
FILE_VARIABLE: Final = "QUOTEBOT_CONFIG"  # overrides the path of that file
SECRETS_VARIABLES: Final = ("QUOTEBOT_SECRETS_DIR", "CREDENTIALS_DIRECTORY")  # the second is set by systemd
PREFIX: Final = "QUOTEBOT_"
ENV_FILE: Final = ".env"
FILE_BYTES_MAX: Final = 1024 * 1024  # limit of a settings file
SLACK_ADDRESS: Final = "SLACK_API_URL"  # the tokens go there, so a file may name only Slack's hosts
SLACK_DOMAINS: Final = ("slack.com", "slack-gov.com")


class SettingsFileError(ValueError):
    """Unreadable or untrusted settings file or secrets folder; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One source and its display name."""

    name: str
    source: PydanticBaseSettingsSource
    explicit: bool = False  # given at the start itself, not in a file


@dataclass(frozen=True, slots=True)
class Ignored:
    """A settings file of the current folder that is not read."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourcedSettings:
    """Values of all sources: `values` by variable, and in `origins` the source of each."""

    values: dict[str, Any]
    origins: dict[str, str]


def variable(name: str, field: FieldInfo) -> str:
    """Return the environment variable of a field: its first alias, or its name with our prefix."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return str(alias.choices[0])
    return alias if isinstance(alias, str) else f"{PREFIX}{name.upper()}"


def key(name: str, field: FieldInfo) -> str:
    """Return the model's key of a field: its first alias, or its name."""
    return name if field.validation_alias is None else variable(name, field)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean ...?" for a name that is close to a known one, or an empty text."""
    close = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def implicit_files() -> bool:
    """Return true if `.env` and quotebot.toml of the current folder count: only while the environment names no other place."""
    return not any(os.environ.get(name) for name in (FILE_VARIABLE, *SECRETS_VARIABLES))


def ignored_files() -> list[Ignored]:
    """Return the settings files of the current folder that are not read, each with the reason."""
    if implicit_files():
        return []
    named = " and ".join(name for name in (FILE_VARIABLE, *SECRETS_VARIABLES) if os.environ.get(name))
    used = file_path()
    found = [
        path for path in (Path(ENV_FILE), Path(FILE_NAME)) if path.exists() and not (used and used.exists() and path.samefile(used))
    ]
    return [Ignored(str(path.absolute()), f"{named} says where the settings are") for path in found]


def file_path() -> Path | None:
    """Return the path of quotebot.toml: $QUOTEBOT_CONFIG, or the current folder; None if that folder does not count."""
    named = os.environ.get(FILE_VARIABLE)
    return Path(named) if named else Path(FILE_NAME) if implicit_files() else None


def env_file_path() -> Path | None:
    """Return the `.env` of the current folder, or None if that folder does not count or has none."""
    path = Path(ENV_FILE)
    return path if implicit_files() and path.exists() else None


def secrets_folder() -> Path | None:
    """Return the folder with one file for each secret, or None when none is named."""
    return next((Path(os.environ[name]) for name in SECRETS_VARIABLES if os.environ.get(name)), None)


def settings_files() -> list[Path]:
    """Return every file that settings are read from."""
    folder = secrets_folder()
    secrets = sorted(folder.iterdir()) if folder is not None and folder.is_dir() else []
    return [path for path in (env_file_path(), file_path(), *secrets) if path is not None and path.is_file()]


def trust(paths: Iterable[Path]) -> None:
    """Raise SettingsFileError naming each file that another user could have written."""
    found = [reason for reason in map(untrusted, paths) if reason]
    if found:
        raise SettingsFileError("\n- ".join(found))


def read_file() -> dict[str, Any]:
    """Return the content of quotebot.toml; empty if there is none.

    Raises SettingsFileError if it is named and missing, or not TOML.
    """
    path = file_path()
    if path is None:
        return {}
    try:
        trust([path])
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise SettingsFileError(f"{path} is larger than {FILE_BYTES_MAX // 1024} KiB")
        return tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError as error:
        if os.environ.get(FILE_VARIABLE):
            raise SettingsFileError(f"{FILE_VARIABLE} names no file: {path}") from error
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsFileError(f"{path} is not TOML: {error}") from error
    except RecursionError as error:
        raise SettingsFileError(f"{path} is nested too deeply") from error
    except OSError as error:
        raise SettingsFileError(f"{path} cannot be read: {error.strerror}") from error


def unknown_keys(model: type[BaseSettings]) -> list[str]:
    """Return a sentence for each unknown key of quotebot.toml."""
    path, known = file_path() or FILE_NAME, model.model_fields
    return [
        f"{name}: {path} has it, and there is no such setting{nearest(name, known)}" for name in read_file() if name not in known
    ]


def unknown_variables(model: type[BaseSettings]) -> list[str]:
    """Return a sentence for each variable of the environment that has our prefix and is no setting: it has no effect."""
    known = {spelling for name, field in model.model_fields.items() for spelling in _spellings(name, field)}
    known |= {name.lower() for name in (FILE_VARIABLE, *SECRETS_VARIABLES)}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name.lower() not in known)
    return [f"{name}: there is no such setting{nearest(name.removeprefix(PREFIX), model.model_fields)}" for name in unknown]


class FileSource(PydanticBaseSettingsSource):
    """The source quotebot.toml: settings by lower-case name, with lists and tables in TOML syntax."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the file's value of one field."""
        return read_file().get(field_name), key(field_name, field), False

    def __call__(self) -> dict[str, Any]:
        """Return the file's values of the known settings."""
        found, fields = read_file(), self.settings_cls.model_fields
        return {key(name, field): found[name] for name, field in fields.items() if name in found}


class Layered(PydanticBaseSettingsSource):
    """The combination of all sources."""

    def __init__(self, model: type[BaseSettings], layers: Sequence[Layer]) -> None:
        super().__init__(model)
        self._layers = layers
        self._keys = {
            spelling: key(name, field) for name, field in model.model_fields.items() for spelling in _spellings(name, field)
        }

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return one field's value from the strongest source."""
        name = key(field_name, field)
        return self.read().values.get(name), name, False

    def read(self) -> SourcedSettings:
        """Read every source."""
        reading = SourcedSettings({}, {})
        for layer in self._layers:
            for spelling, value in layer.source().items():
                name = self._keys.get(spelling.lower(), spelling)
                if name not in reading.origins:
                    reading.values[name], reading.origins[name] = value, layer.name
                    if name == SLACK_ADDRESS and not layer.explicit:
                        _only_slack(str(value), layer.name)
        return reading

    def __call__(self) -> dict[str, Any]:
        """Return the values, each from the strongest source that has it."""
        return self.read().values


def layered(
    model: type[BaseSettings],
    given: PydanticBaseSettingsSource,
    environment: PydanticBaseSettingsSource,
    *,
    with_env_file: bool = True,
) -> Layered:
    """Return the sources of a model in their order.

    Raises SettingsFileError if the secrets folder is named and missing, or another user can change its content or `.env`.
    """
    folder = secrets_folder()
    if folder is not None and not folder.is_dir():
        raise SettingsFileError(f"the folder of secrets is missing: {folder} (named by {' or '.join(SECRETS_VARIABLES)})")
    env_file, path = env_file_path() if with_env_file else None, file_path()
    trust(each for each in settings_files() if with_env_file or each != Path(ENV_FILE))
    return Layered(
        model,
        [
            Layer("command line", given, explicit=True),
            Layer("environment", environment, explicit=True),
            *([] if env_file is None else [Layer(ENV_FILE, _read_env_file(model, env_file))]),
            *([] if folder is None else [Layer(f"secrets folder {folder}", SecretsSettingsSource(model, secrets_dir=folder))]),
            *([] if path is None else [Layer(str(path), FileSource(model))]),
        ],
    )


def _read_env_file(model: type[BaseSettings], path: Path) -> DotEnvSettingsSource:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise SettingsFileError(f"{path} is larger than {FILE_BYTES_MAX // 1024} KiB")
        return DotEnvSettingsSource(model, env_file=path)
    except UnicodeDecodeError as error:
        raise SettingsFileError(f"{path} is not UTF-8") from error
    except OSError as error:
        raise SettingsFileError(f"{path} cannot be read: {error.strerror}") from error


def _only_slack(address: str, origin: str) -> None:
    """Reject another host for Slack's Web API from a file: the tokens would be sent there.

    The address is parsed as the settings parse it: urllib and the setting's own type disagree about a backslash before the host's
    end.
    """
    try:
        host = (AnyHttpUrl(address).host or "").rstrip(".")
    except ValueError:
        host = ""
    if not any(host == domain or host.endswith(f".{domain}") for domain in SLACK_DOMAINS):
        raise SettingsFileError(
            f"{SLACK_ADDRESS}: {origin} names a host that is not Slack's, and the tokens would be sent there. A file may not do "
            f"that; if you mean it, say so at the start: --set slack_api_url=..., or the environment variable {SLACK_ADDRESS}"
        )


def _spellings(name: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    others = (
        [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [alias] if isinstance(alias, str) else []
    )
    return [spelling.lower() for spelling in (name, f"{PREFIX}{name}", *others)]


CHANGED_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
ROOT: Final = 0
LINKS_MAX: Final = 40  # Linux follows no more


def untrusted(path: Path) -> str | None:  # noqa: PLR0911 -- one return per reason
    """Return why a settings file must not be used and how to fix it; None for one that may be used or does not exist.

    Another user must be able neither to write the file nor to put another one in its place. Each link on the path counts like the
    file, together with its folder; every folder above must belong to this user or root, and others must not be able to rename its
    content.
    """
    for each in _links_and_file(path):
        try:
            itself = each.lstat()
        except OSError:  # no such file, or not reachable: the read reports that
            return None
        folder = each.absolute().parent
        around = folder.stat()
        if not _ours(itself):
            return (
                f"{_belongs(each, itself)}, so nothing in it is used. If its content is right: chown {_name(os.geteuid())} {each}"
            )
        if not stat.S_ISLNK(itself.st_mode) and itself.st_mode & CHANGED_BY_OTHERS:
            return f"{_open_to_others(each, itself)}, so nothing in it is used. If its content is right: chmod go-w {each}"
        if not _ours(around):
            return f"{each} cannot be trusted: {_belongs(folder, around)}. Nothing in it is used. Move it into a folder of your own"
        if around.st_mode & CHANGED_BY_OTHERS and not around.st_mode & stat.S_ISVTX:
            return (
                f"{each} cannot be trusted: {_open_to_others(folder, around)}. Nothing in it is used. "
                f"If its content is right: chmod go-w {folder}"
            )
        if (above := _replaceable(folder)) is not None:
            return f"{each} cannot be trusted: {above}. Nothing in it is used. Move it below folders of yours"
    return None


def _links_and_file(path: Path) -> Iterator[Path]:
    """Yield the path and the target of each link, down to the file. A cycle of links ends after the system's limit."""
    for _ in range(LINKS_MAX):
        yield path
        if not path.is_symlink():
            return
        path = path.parent.resolve() / path.readlink()


def _replaceable(folder: Path) -> str | None:
    """Return the folder above that lets another user replace this one, and the reason; None if there is none."""
    named = folder.absolute()
    for link in (named, *named.parents):
        if link.is_symlink() and not _ours(link.lstat()):
            return _belongs(link, link.lstat())
    for above in dict.fromkeys((*named.parents, *folder.resolve().parents)):
        found = above.stat()
        if not _ours(found):
            return _belongs(above, found)
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            return _open_to_others(above, found)
    return None


def _ours(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), ROOT)


def _belongs(path: Path, found: os.stat_result) -> str:
    return f"{path} belongs to {_name(found.st_uid)} (mode {stat.S_IMODE(found.st_mode):o}), neither to you nor to root"


def _open_to_others(path: Path, found: os.stat_result) -> str:
    return f"{path} can be changed by other users of this machine (mode {stat.S_IMODE(found.st_mode):o})"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run under a user id without a name
        return str(uid)
