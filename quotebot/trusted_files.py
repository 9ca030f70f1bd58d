"""Ownership and mode of the files that configure the bot: checked before anything in them is used."""

from __future__ import annotations

import os
import pwd
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHANGED_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
ROOT: Final = 0
LINKS_MAX: Final = 40  # Linux follows no more


def untrusted(path: Path) -> str | None:  # noqa: PLR0911 -- one return per reason
    """Return why a settings file must not be used and what mends it, or None for one that may be used or does not exist.

    Another user must be able neither to write the file nor to put another one in its place. Each link on the way to the file counts
    like the file, with its folder; every folder above must belong to this user or root, and others must not rename what is in it.
    """
    for each in _links_and_file(path):
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
        if (above := _replaceable(folder)) is not None:
            return f"{each} cannot be trusted: {above}. Nothing in it is used. Move it below folders of yours"
    return None


def _links_and_file(path: Path) -> Iterator[Path]:
    """Yield the path, and where each link leads, down to the file. A circle of links ends after as many as the system follows."""
    for _ in range(LINKS_MAX):
        yield path
        if not path.is_symlink():
            return
        path = path.parent.resolve() / path.readlink()


def _replaceable(folder: Path) -> str | None:
    """Return the folder above that lets another user replace this one, and why; None if none does."""
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


def _me() -> str:
    return _name(os.geteuid())


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may run under a number without a name
        return str(uid)
