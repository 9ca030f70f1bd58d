"""Tests of the wheel: it contains every file of its packages, and works without the checkout."""

from __future__ import annotations

import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.wheel import PACKAGES, build, sandbox, strangers_environment, try_doctor, try_init, try_sandbox

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_holds_every_file_of_its_packages_and_nothing_else(wheel: Path, checkout: Path) -> None:
    ours = {
        path.relative_to(checkout).as_posix()
        for package in PACKAGES
        for path in (checkout / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if ".dist-info/" not in name}
    assert packed == ours | {"quotebot/data/manifest.yml"}


def test_from_the_wheel_alone_init_doctor_and_sandbox_work_in_an_empty_folder(wheel: Path, checkout: Path, tmp_path: Path) -> None:
    """Its dependencies are those of this environment; `./run wheel` installs them too."""
    target, empty = tmp_path / "target", tmp_path / "empty"
    empty.mkdir()
    with zipfile.ZipFile(wheel) as file:
        file.extractall(target)
    command = [sys.executable, "-P", "-m", "quotebot"]
    environment = strangers_environment(empty, PYTHONPATH=str(target))
    assert try_init(command, empty, environment) == (checkout / "manifest.yml").read_text("utf-8")
    try_doctor(command, empty, environment)
    with sandbox(command, empty, environment) as address:
        try_sandbox(address)
