from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults.harness.rig import bot_process
from ledger.sqlite.locks import hold_instance_lock
from quotebot.sandbox.world import World
from tests.postgres import folder_for_servers, require_server
from tests.quotebot.cli.conftest import clean_environment
from tests.rig import eventually, read_ledger

if TYPE_CHECKING:
    from tests.quotebot.cli.conftest import Run

SECONDS = 90.0
TOKENS = {"SLACK_BOT_TOKEN": "xoxb-planted", "SLACK_APP_TOKEN": "xapp-planted"}


def test_run_without_tokens_names_both_and_where_to_get_them(quotebot: Run, tmp_path: Path) -> None:
    done = quotebot("run")
    assert (done.returncode, done.stdout) == (78, "")
    assert "SLACK_BOT_TOKEN is missing: the bot token (xoxb-...)" in done.stderr
    assert "SLACK_APP_TOKEN is missing: the app-level token (xapp-...)" in done.stderr
    assert "api.slack.com/apps" in done.stderr
    assert "Nothing was started" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "bot").exists()


def test_a_bot_on_a_file_takes_no_name_of_a_replica(quotebot: Run, tmp_path: Path) -> None:
    done = quotebot("run", "--replica-name", "east", environment=TOKENS)
    assert (done.returncode, done.stdout) == (78, "")
    assert "replica_name is for a ledger in a database (ledger_url): a file has one bot" in done.stderr
    assert not (tmp_path / "bot").exists()


@pytest.mark.parametrize("swapped", [True, False])
def test_a_token_of_the_wrong_kind_is_named_and_never_shown(quotebot: Run, swapped: bool) -> None:  # noqa: FBT001 -- the case
    bot, app = ("xapp-planted", "xoxb-planted") if swapped else ("xoxb-planted", "xoxp-planted")
    done = quotebot("run", environment={"SLACK_BOT_TOKEN": bot, "SLACK_APP_TOKEN": app})
    assert done.returncode == 78
    assert ("SLACK_BOT_TOKEN is not a xoxb-... token" in done.stderr) is swapped
    assert "SLACK_APP_TOKEN is not a xapp-... token" in done.stderr
    assert "planted" not in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unusable_configuration_names_every_variable(quotebot: Run) -> None:
    wrong = {"QUOTEBOT_QUOTE_VALID_DAYS": "0", "SLACK_API_URL": "nonsense", "QUOTEBOT_ACK_BUDGET_SECONDS": "9"}
    done = quotebot("run", environment={**TOKENS, **wrong})
    assert (done.returncode, done.stdout) == (78, "")
    assert all(f"- {name}:" in done.stderr for name in wrong)


@pytest.mark.parametrize("name", ["QUOTEBOT_APPROVERS", "QUOTEBOT_SELLER_LINES"])
def test_a_table_that_is_not_json_is_named_and_no_traceback(quotebot: Run, name: str) -> None:
    done = quotebot("run", environment={**TOKENS, name: "sales_manager=U0MANAGER"})
    assert (done.returncode, done.stdout) == (78, "")
    assert f"- {name}: it is not JSON" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_bot_on_one_ledger_stops_at_once(quotebot: Run, tmp_path: Path) -> None:
    lock = hold_instance_lock(tmp_path / "bot" / "ledger.db")
    assert lock is not None
    try:
        done = quotebot("run", environment=TOKENS)
    finally:
        lock.close()
    assert (done.returncode, done.stdout) == (75, "")
    assert "Another bot is running" in done.stderr
    assert not (tmp_path / "bot" / "ledger.db").exists()


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(quotebot: Run, tmp_path: Path) -> None:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "ledger.db").write_text("something else entirely, and longer than a header would be ......" * 20)
    before = (tmp_path / "bot" / "ledger.db").read_bytes()
    done = quotebot("dead", "list")
    assert (done.returncode, done.stdout) == (69, "")
    assert "Traceback" not in done.stderr
    assert (tmp_path / "bot" / "ledger.db").read_bytes() == before


def test_help_lists_the_commands(quotebot: Run) -> None:
    for arguments in ((), ("--help",)):
        done = quotebot(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert all(name in done.stdout for name in ("run", "sandbox", "dead", "replay", "resume", "policy"))


def test_an_unknown_command_is_a_usage_error_on_stderr(quotebot: Run) -> None:
    done = quotebot("rum")
    assert (done.returncode, done.stdout) == (64, "")
    assert "rum" in done.stderr


def test_the_sandbox_says_when_its_port_is_taken(quotebot: Run) -> None:
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = quotebot("sandbox", "--port", str(port), "--headless")
    assert (done.returncode, done.stdout) == (69, "")
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_sandbox_refuses_a_port_that_cannot_be(quotebot: Run) -> None:
    done = quotebot("sandbox", "--port", "70000", "--headless")
    assert (done.returncode, done.stdout) == (64, "")
    assert "Traceback" not in done.stderr


def test_the_sandbox_runs_several_bots_on_a_ledger_in_postgresql_only(quotebot: Run) -> None:
    done = quotebot("sandbox", "--replicas", "3", "--headless")
    assert (done.returncode, done.stdout) == (64, "")
    assert "Nothing was started. Add --postgres." in done.stderr
    assert quotebot("sandbox", "--postgres", "--replicas", "5", "--headless").returncode == 64


def test_the_sandbox_does_not_continue_a_world_that_is_gone(quotebot: Run, tmp_path: Path, dead: Path) -> None:
    done = quotebot("sandbox", "--data", str(tmp_path), "--headless")
    assert (done.returncode, done.stdout) == (64, "")
    assert "holds the ledger of an earlier sandbox" in done.stderr
    assert dead.exists()


def listened_at(pid: int) -> set[str]:
    """Return the addresses at which a process and its children listen, as Linux writes them: 0100007F:1F90."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pids = [str(pid), *children]
    held = set()
    for fd in [fd for each in pids for fd in Path(f"/proc/{each}/fd").iterdir()]:
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            held.add(str(fd.readlink()))
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held}


async def test_nothing_listens_without_a_health_port_and_then_on_loopback_only(tmp_path: Path, unused_tcp_port: int) -> None:
    async with World(tmp_path / "world").serve() as world:
        async with bot_process(world, tmp_path) as (bot, _):
            await bot.start()
            assert listened_at(bot.pid) == set()
        async with bot_process(world, tmp_path, QUOTEBOT_HEALTH_PORT=str(unused_tcp_port)) as (bot, _):
            await bot.start()
            assert listened_at(bot.pid) == {f"0100007F:{unused_tcp_port:04X}"}


async def test_a_removed_lock_file_lets_no_second_bot_in(tmp_path: Path, checkout: Path) -> None:
    async with World(tmp_path / "world").serve() as world, bot_process(world, tmp_path) as (bot, deal):
        await bot.start()
        (tmp_path / "bot" / "ledger.db.lock").unlink()
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "quotebot", "run"),
            cwd=tmp_path,
            env=clean_environment(tmp_path, PYTHONPATH=str(checkout), **world.environment()),
            stderr=asyncio.subprocess.PIPE,
        )
        _, words = await asyncio.wait_for(second.communicate(), SECONDS)
        assert second.returncode == 75
        assert b"Another bot is running" in words
        await deal.slash()
        await deal.settled()
    (row,) = read_ledger(tmp_path / "bot" / "ledger.db", "SELECT count(*) AS bots FROM epochs WHERE role = 'bot'")
    assert row["bots"] == 1


async def test_the_sandbox_starts_a_world_with_a_bot_in_it_and_ends_on_sigterm(tmp_path: Path, checkout: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "quotebot", "sandbox", "--port", "0", "--headless"),
        cwd=tmp_path,
        env=clean_environment(tmp_path, PYTHONPATH=str(checkout)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    log = await asyncio.wait_for(process.stdout.readuntil(b"Sandbox ready: "), SECONDS)
    assert log.endswith(b"Stop with Ctrl-C.\n\nSandbox ready: ")
    assert b"bot.started" in log
    assert (await asyncio.wait_for(process.stdout.readline(), SECONDS)).startswith(b"http://127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    rest, _ = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0
    assert b"bot.stopping" in rest
    assert b"Traceback" not in log + rest


async def test_sandbox_keeps_the_ledger_in_a_server_of_its_own(tmp_path: Path, checkout: Path) -> None:
    require_server()
    folder = folder_for_servers()  # in memory; the test's own folder is closed to the server's user
    folder.chmod(0o711)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "quotebot", "sandbox", "--port", "0", "--headless", "--postgres", "--json"),
        cwd=tmp_path,
        env=clean_environment(tmp_path, PYTHONPATH=str(checkout), TMPDIR=str(folder)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    ready = json.loads(await asyncio.wait_for(process.stdout.readline(), SECONDS))
    assert ready["environment"]["QUOTEBOT_LEDGER_URL"].startswith("postgresql://")
    assert not (Path(ready["environment"]["QUOTEBOT_DATA_DIR"]) / "ledger.db").exists()
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), SECONDS)
    assert (process.returncode, b"bot.started" in log, b"Traceback" in log) == (0, True, False)
    folder.rmdir()  # nothing is left in it


def test_sandbox_says_how_to_install_a_missing_database_server(
    command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("quotebot.sandbox.cluster.find_programs", lambda: None)
    done = command("sandbox", "--port", "0", "--headless", "--postgres", "--data", str(tmp_path / "world"))
    assert (done.returncode, done.stdout) == (69, "")
    assert "No PostgreSQL server is installed. Install it (Debian: apt-get install postgresql). Nothing was started." in done.stderr


async def test_the_sandbox_takes_no_setting_of_an_installation(tmp_path: Path, checkout: Path) -> None:
    kept = str(tmp_path / "kept")
    (tmp_path / ".env").write_text(f"QUOTEBOT_BACKUP_FOLDER={kept}\nQUOTEBOT_BACKUP_KEEP=1\n")
    (tmp_path / "quotebot.toml").write_text("quote_valid_days = 3\n")
    for name in (".env", "quotebot.toml"):
        (tmp_path / name).chmod(0o600)
    given = {
        "QUOTEBOT_BACKUP_FOLDER": kept,
        "SENTRY_DSN": "http://key@127.0.0.1:9/1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "quotebot", "sandbox", "--port", "0", "--headless", "--data", str(tmp_path / "world")),
        cwd=tmp_path,
        env=clean_environment(tmp_path, PYTHONPATH=str(checkout), **given),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), SECONDS)
    bot = Path("/proc") / (tmp_path / "world" / "bot" / "ledger.db.lock").read_text().strip()
    pairs = (bot / "environ").read_text().rstrip("\0").split("\0")
    shown = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "quotebot", "config", "show"),
        cwd=(bot / "cwd").readlink(),
        env=dict(pair.split("=", 1) for pair in pairs),
        stdout=asyncio.subprocess.PIPE,
    )
    settings, _ = await asyncio.wait_for(shown.communicate(), SECONDS)
    process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.communicate(), SECONDS)
    lines = {line.split()[0]: line.split()[1:] for line in settings.decode().splitlines() if line.strip()}
    assert (shown.returncode, lines["data_dir"][0]) == (0, str(tmp_path / "world" / "bot"))
    assert {name: lines[name][-1] for name in ("backup_folder", "backup_keep", "quote_valid_days")} == {
        "backup_folder": "-",
        "backup_keep": "7",
        "quote_valid_days": "30",
    }
    assert not [pair for pair in pairs if pair.startswith(("SENTRY_", "OTEL_"))]


async def test_a_bot_killed_inside_the_sandbox_is_started_again(tmp_path: Path, checkout: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "quotebot", "sandbox", "--port", "0", "--headless", "--data", str(tmp_path / "kept")),
        cwd=tmp_path,
        env=clean_environment(tmp_path, PYTHONPATH=str(checkout)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), SECONDS)
    lock = tmp_path / "kept" / "bot" / "ledger.db.lock"
    first = int(lock.read_text())
    os.kill(first, signal.SIGKILL)
    await eventually(lambda: lock.read_text().strip() not in ("", str(first)), "another bot to take the lock")
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode == 0
    assert f"The bot (process {first}) ended with status -9; starting it again.".encode() in log


async def test_the_bot_ends_with_status_0_on_sigterm_and_its_manager_hears_of_its_life(tmp_path: Path) -> None:
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.settimeout(SECONDS)
    ear.bind(str(tmp_path / "notify"))
    manager = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "90000000"}
    async with (
        World(tmp_path / "world").serve() as world,
        bot_process(world, tmp_path, **manager) as (bot, deal),
    ):
        await bot.start()
        await deal.slash()
        await deal.settled()
        assert await bot.stop() == 0
        await eventually(lambda: world.socket.connections == 0, "the connection to be closed")
        (epoch,) = await deal.rows("SELECT * FROM epochs")
        assert epoch["end_reason"] == "stopped"
    with ear:
        heard = [ear.recv(4096).decode().partition("\n")[0] for _ in range(3)]
    assert heard == ["WATCHDOG=1", "READY=1", "STOPPING=1"]


@pytest.mark.parametrize(
    ("name", "token", "said"),
    [
        ("SLACK_BOT_TOKEN", "xoxb-refused-by-slack", "Slack refused the bot token (invalid_auth)"),
        ("SLACK_APP_TOKEN", "xapp-refused-by-slack", "Slack refused the app-level token (invalid_auth)"),
    ],
)
async def test_a_token_that_slack_refuses_ends_the_process_with_words(tmp_path: Path, name: str, token: str, said: str) -> None:
    async with World(tmp_path / "world").serve() as world, bot_process(world, tmp_path, **{name: token}) as (bot, _):
        await bot.start()
        assert await bot.stop() == 78
    log = (tmp_path / "bot.log").read_text()
    assert said in log
    assert token not in log
    assert "Traceback" not in log
