"""Ownership and mode of the files that configure the bot: checked before anything in them is used."""

from __future__ import annotations

import os
import pwd
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

CHANGED_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
ROOT: Final = 0


def untrusted(path: Path) -> str | None:
    """Return why a settings file must not be used and what mends it, or None for one that may be used or does not exist.

    Another user must be able neither to write the file nor to put another one in its place. For a link, the link, the file
    and both folders count.
    """
    for each in dict.fromkeys((path, path.resolve())):
        try:
            itself = each.lstat()
        except OSError:  # no such file, or one that cannot be reached: reading it reports that
            return None
        folder = each.absolute().parent
        around = folder.stat()
        if not _ours(itself):
            return f"{_belongs(each, itself)}, so nothing in it is used. If its content is right: chown {_me()} {each}"
        if not stat.S_ISLNK(itself.st_mode) and itself.st_mode & CHANGED_BY_OTHERS:
            return f"{_open_to_others(each, itself)}, so nothing in it is used. If its content is right: chmod go-w {each}"
        if not _ours(around):
            return f"{each} cannot be trusted: {_belongs(folder, around)}. Nothing in it is used. Move it into a folder of your own"
        if around.st_mode & CHANGED_BY_OTHERS and not around.st_mode & stat.S_ISVTX:
            return (
                f"{each} cannot be trusted: {_open_to_others(folder, around)}. Nothing in it is used. "
                f"If its content is right: chmod go-w {folder}"
            )
    return None


def _ours(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), ROOT)


def _belongs(path: Path, found: os.stat_result) -> str:
    return f"{path} belongs to {_name(found.st_uid)} (mode {stat.S_IMODE(found.st_mode):o}), neither to you nor to root"


def _open_to_others(path: Path, found: os.stat_result) -> str:
    return f"{path} can be changed by other users of this machine (mode {stat.S_IMODE(found.st_mode):o})"


def _me() -> str:
    return _name(os.geteuid())


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run under a number without a name
        return str(uid)
