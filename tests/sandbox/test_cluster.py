"""Tests of the PostgreSQL server that belongs to one folder and one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from quotebot.sandbox.cluster import Cluster, ClusterError
from tests.postgres import folder_for_servers, require_server

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER_DIES = """
import sys
from pathlib import Path
from quotebot.sandbox.cluster import Cluster
cluster = Cluster(Path(sys.argv[1]), quick=True)
cluster.start()
print(cluster.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    require_server()
    made = Cluster(folder_for_servers(), quick=True)
    yield made
    made.remove()


def test_what_a_killed_server_had_committed_is_there_after_the_next_start(cluster: Cluster) -> None:
    cluster.start()
    with psycopg.connect(cluster.url()) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
        connection.execute("INSERT INTO notes VALUES ('kept')")
    processes = cluster.processes()
    assert len(processes) > 1
    cluster.kill()
    assert [process for process in processes if Path(f"/proc/{process}/cwd").exists()] == []
    assert cluster.pid is None
    cluster.start()
    with psycopg.connect(cluster.url()) as connection:
        assert connection.execute("SELECT text FROM notes").fetchall() == [("kept",)]
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
    another = int((cluster.data / "postmaster.pid").read_text().split()[0])
    os.kill(another, signal.SIGKILL)  # as somebody else would
    while Path(f"/proc/{another}/cwd").exists():
        time.sleep(0.01)
    cluster.start()
    cluster.stop()
    assert cluster.pid is None


def test_a_server_ends_with_the_process_that_started_it(cluster: Cluster, checkout: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER_DIES, str(cluster.folder)], cwd=checkout, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    deadline = time.monotonic() + 20
    while cluster.pid is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cluster.pid is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only a process of root starts the server as another user")
def test_a_folder_that_the_server_s_user_cannot_enter_is_refused_with_its_name(tmp_path: Path) -> None:
    require_server()
    tmp_path.chmod(0o700)
    with pytest.raises(ClusterError, match=f"who may not enter {tmp_path}. Use another folder"):
        Cluster(tmp_path / "cluster", quick=True).start()
