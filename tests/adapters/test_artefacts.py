"""Tests of the store of rendered files, on a real file system."""

from __future__ import annotations

import errno
import hashlib
from typing import TYPE_CHECKING

import pytest

from adapters.artefacts import Artefacts, Files
from adapters.failures import AdapterError, Failure

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b"%PDF-1.7 a quote"
STEPS = ("make_folder", "close_to_others", "sync_folder", "create", "write", "sync", "rename")


class FullDisk(Files):
    """File steps that refuse one kind of step and record all steps."""

    def __init__(self, refused: str | None = None) -> None:
        self.refused = refused
        self.steps: list[str] = []

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.refused:
            raise OSError(errno.ENOSPC, "No space left on device")

    def make_folder(self, path: Path) -> None:
        self._step("make_folder")
        super().make_folder(path)

    def close_to_others(self, folder: Path) -> None:
        self._step("close_to_others")
        super().close_to_others(folder)

    def sync_folder(self, folder: Path) -> None:
        self._step("sync_folder")
        super().sync_folder(folder)

    def create(self, folder: Path, suffix: str) -> tuple[int, Path]:
        self._step("create")
        return super().create(folder, suffix)

    def write(self, descriptor: int, content: bytes) -> None:
        super().write(descriptor, content[: len(content) // 2])
        self._step("write")
        super().write(descriptor, content[len(content) // 2 :])

    def sync(self, descriptor: int) -> None:
        self._step("sync")
        super().sync(descriptor)

    def rename(self, path: Path, to: Path) -> None:
        self._step("rename")
        super().rename(path, to)


def test_what_is_put_is_got_back_under_its_sha256(tmp_path: Path) -> None:
    store = Artefacts(tmp_path / "state" / "artefacts")

    sha256 = store.put(CONTENT)

    assert sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert store.get(sha256) == CONTENT
    assert [path.name for path in (tmp_path / "state" / "artefacts").iterdir()] == [f"{sha256}.pdf"]


def test_files_are_0600_in_a_0700_folder_even_one_that_was_wider(tmp_path: Path) -> None:
    folder = tmp_path / "artefacts"
    folder.mkdir(mode=0o755)

    sha256 = Artefacts(folder).put(CONTENT)

    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / f"{sha256}.pdf").stat().st_mode & 0o777 == 0o600


def test_content_stored_already_is_left_alone(tmp_path: Path) -> None:
    store = Artefacts(tmp_path)
    path = tmp_path / f"{store.put(CONTENT)}.pdf"
    before = path.stat()

    assert store.put(CONTENT) == path.stem

    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(AdapterError) as caught:
        Artefacts(tmp_path).get("0" * 64)

    assert (caught.value.failure, caught.value.code) == (Failure.NOT_FOUND, "artefact_missing")


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT + b" ", CONTENT.replace(b"a", b"b")])
def test_a_damaged_file_is_not_found_until_it_is_put_again(tmp_path: Path, damage: bytes) -> None:
    store = Artefacts(tmp_path)
    sha256 = store.put(CONTENT)
    (tmp_path / f"{sha256}.pdf").write_bytes(damage)

    with pytest.raises(AdapterError) as caught:
        store.get(sha256)
    assert (caught.value.failure, caught.value.code) == (Failure.NOT_FOUND, "artefact_damaged")

    assert store.put(CONTENT) == sha256
    assert store.get(sha256) == CONTENT


@pytest.mark.parametrize(
    "name", ["", "../" + "0" * 61, "0" * 63, "0" * 65, "A" * 64, "0" * 64 + "\n", "/etc/passwd", "0" * 60 + "/../"]
)
def test_only_a_sha256_names_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(AdapterError) as caught:
        Artefacts(tmp_path).get(name)

    assert (caught.value.failure, caught.value.code) == (Failure.VALIDATION, "invalid_sha256")


def test_a_disk_that_refuses_is_transient_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "artefacts").write_text("a file where the folder should be")

    with pytest.raises(AdapterError) as caught:
        Artefacts(tmp_path / "artefacts").put(CONTENT)

    assert (caught.value.failure, caught.value.code) == (Failure.TRANSIENT, "eexist")
    assert caught.value.possibly_applied is False
    assert "artefacts" not in str(caught.value)


def test_a_rename_that_fails_removes_the_half_written_file(tmp_path: Path) -> None:
    (tmp_path / f"{hashlib.sha256(CONTENT).hexdigest()}.pdf").mkdir()

    with pytest.raises(AdapterError) as caught:
        Artefacts(tmp_path).put(CONTENT)

    assert caught.value.failure is Failure.TRANSIENT
    assert list(tmp_path.glob(".*")) == []


def test_sweep_removes_half_written_files_and_nothing_else(tmp_path: Path) -> None:
    store = Artefacts(tmp_path / "artefacts")
    assert store.sweep() == 0
    sha256 = store.put(CONTENT)
    (tmp_path / "artefacts" / ".abc.tmp").write_bytes(CONTENT[:3])

    assert store.sweep() == 1

    assert store.get(sha256) == CONTENT
    assert store.sweep() == 0


@pytest.mark.parametrize("step", STEPS)
def test_refused_disk_step_leaves_no_partial_file_and_the_next_store_succeeds(tmp_path: Path, step: str) -> None:
    disk = FullDisk(step)
    store = Artefacts(tmp_path / "artefacts", disk)

    with pytest.raises(AdapterError) as caught:
        store.put(CONTENT)

    assert (caught.value.failure, caught.value.code) == (Failure.TRANSIENT, "enospc")
    assert disk.steps[-1] == step
    assert list(tmp_path.glob("artefacts/.*")) == []
    disk.refused = None
    assert store.get(store.put(CONTENT)) == CONTENT


def test_content_is_synced_before_the_rename_and_the_folder_after_it(tmp_path: Path) -> None:
    disk = FullDisk()

    Artefacts(tmp_path / "artefacts", disk).put(CONTENT)

    assert disk.steps == ["make_folder", "sync_folder", "close_to_others", "create", "write", "sync", "rename", "sync_folder"]


def test_file_stored_by_another_process_is_accepted_after_its_folders_are_synced(tmp_path: Path) -> None:
    Artefacts(tmp_path / "artefacts").put(CONTENT)  # the process may have died right before it synced the folders
    disk = FullDisk()
    store = Artefacts(tmp_path / "artefacts", disk)

    store.put(CONTENT)

    assert disk.steps == ["sync_folder", "close_to_others", "sync_folder"]
