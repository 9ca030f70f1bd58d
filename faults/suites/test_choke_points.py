"""Tests that nothing in the product bypasses the choke points: clock, randomness, database, outbound calls, files.

The modules that touch the machine, and the kinds of calls by which they do, are listed here with the reason: the module is the
choke point, or its work cannot be part of a command. A new place fails; so does an entry that is no longer true.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
KINDS: Final = {
    "clock": {"time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "time.sleep", "datetime.now", "datetime.utcnow"},
    "chance": {
        *("random.SystemRandom", "random.random", "random.Random", "random.uniform", "random.choice"),
        *("secrets.token_bytes", "secrets.token_hex", "secrets.token_urlsafe", "uuid.uuid4", "os.urandom"),
    },
    "database": {"sqlite3.connect", "aiosqlite.connect"},
    "outbound": {
        *("aiohttp.ClientSession", "requests.Session", "requests.get", "requests.post", "requests.request"),
        *("socket.socket", "socket.create_connection", "asyncio.open_connection"),
    },
    "process": {"subprocess.run", "subprocess.Popen", "asyncio.create_subprocess_exec", "os.fork", "os.execv", "os.system"},
    "files": {
        *(
            "os.open",
            "os.write",
            "os.pwrite",
            "os.fsync",
            "os.fdatasync",
            "os.replace",
            "os.rename",
            "os.unlink",
            "os.link",
            "os.ftruncate",
        ),
        *("os.posix_fallocate", "os.mkdir", "os.makedirs", "tempfile.mkstemp", "tempfile.TemporaryDirectory", "shutil.rmtree"),
    },
}
WRITING: Final = frozenset({"write_bytes", "write_text", "mkdir", "touch", "symlink_to", "hardlink_to", "unlink", "rmdir", "chmod"})

PLACES: Final = {
    "ledger/clock.py": ("clock", "the choke point"),
    "quotebot/app/workers.py": ("chance", "the jitter that Ports hands on"),
    "ledger/sqlite/engine.py": ("database", "the choke point"),
    "ledger/sqlite/file.py": (
        "database files",
        "the choke point; it makes the ledger's file and opens the witness",
    ),
    "ledger/postgres/engine.py": ("clock", "how long a read waits for a server, on a thread: nothing of it is recorded"),
    "ledger/postgres/writer.py": ("clock", "how long a batch waits for a server, likewise"),
    "ledger/postgres/marks.py": (
        "clock files",
        "how long a COMMIT without an answer may stay unresolved, likewise; the number of the last commit, for the next start",
    ),
    "ledger/postgres/sessions.py": (
        "clock files outbound",
        "the limit of every call; the timelines that were seen; the socket of a session, to shut it down",
    ),
    "ledger/sqlite/wal.py": ("files", "the choke point for flushes beside SQLite; faults/lab/sqlite_vfs.py stands in it"),
    "ledger/audit/history.py": ("database", "a private scratch database that SQLite deletes: the digests of one verification"),
    "quotebot/app/clients.py": ("outbound", "the choke point: what Ports.outside hands on"),
    "adapters/http.py": (
        "clock outbound",
        "the choke point for aiohttp: no redirects, bounded answers; a Retry-After with a date is on the other side's clock",
    ),
    "adapters/reporting.py": ("outbound", "the choke point for reports to watchers, with the same rules"),
    "adapters/slack/api.py": ("outbound", "its own session when nobody hands one in"),
    "adapters/salesforce/api.py": ("outbound", "names the type of a session that is handed in"),
    "adapters/salesforce/calls.py": ("outbound", "likewise"),
    "adapters/salesforce/transport.py": (
        "clock outbound",
        "the choke point for Salesforce; an assertion is good for three minutes of the other side's clock",
    ),
    "adapters/artefacts.py": ("files", "the choke point for artefacts"),
    "adapters/pdf/renderer.py": ("files process", "the renderer's child and its font cache: rendering is pure"),
    "ledger/sqlite/locks.py": ("files", "lock files, whose content is for people"),
    "ledger/sqlite/disk.py": ("files", "the choke point for backups and what is put in their place"),
    "ledger/operator/backup.py": ("clock database files", "connections that only read, the copy, and pauses between its steps"),
    "ledger/sqlite/connections.py": ("database", "connections that only read, hardened against what the file says of itself"),
    "ledger/sqlite/migrations.py": ("database", "the schema that the migrations make, in memory"),
    "ledger/sqlite/moving.py": ("database", "the copy before it is a ledger, and the seal of one that no process has open"),
    "quotebot/app/moves.py": ("chance", "the id of a move, which a repetition finds in the ledger"),
    "ledger/sqlite/ballast.py": ("files", "room for a full disk; it holds nothing"),
    "ledger/audit/keyring.py": ("chance files", "an audit key, made before the ledger it signs"),
    "ledger/audit/anchors.py": ("files", "the log of anchors, a copy of what the ledger holds"),
    "quotebot/app/installation.py": ("files", "an empty file that marks a first start, before there is a ledger"),
    "quotebot/app/sqlite_storage.py": ("files", "removes that file once the ledger exists"),
    "quotebot/app/postgres_storage.py": ("files", "likewise"),
    "quotebot/observability/metrics.py": ("files", "the page of metrics, made anew every few seconds"),
    "quotebot/cli/doctor/checks.py": (
        "clock",
        "how long a check may take, and the machine's clock beside Slack's: what is checked",
    ),
    "quotebot/cli/doctor/others.py": ("outbound", "whether the others can be reached: what is checked"),
    "quotebot/observability/systemd.py": (
        "outbound",
        "a socket of this machine: words for the service manager, which nothing depends on",
    ),
    "quotebot/app/front.py": (
        "process outbound",
        "the process that holds Slack's socket, and the pair of sockets that the two have and speak over",
    ),
    "quotebot/cli/config.py": ("files", "quotebot.toml, written where an operator asked for it"),
    "quotebot/cli/audit.py": ("files", "a proof bundle, written where an operator asked for it"),
    "quotebot/cli/document.py": ("files", "the preview of a document, written where an operator asked for it"),
    "quotebot/cli/catalog.py": ("chance", "a fresh request id"),
    "quotebot/cli/catalog_files.py": ("files", "exported sheets, written where an operator asked for them"),
    "quotebot/cli/quote_work.py": ("chance", "a fresh request id, and the jitter of a command that this process executes itself"),
    "quotebot/cli/root.py": ("files", "/dev/null, for an output nobody reads any more"),
    "quotebot/cli/drill.py": ("process", "the drills' player"),
    "quotebot/cli/serve.py": ("files", "the sandbox's folder"),
}


def modules() -> list[Path]:
    """Return the modules of the product, without the sandbox."""
    every = [module for package in ("quotebot", "ledger", "adapters") for module in sorted((ROOT / package).rglob("*.py"))]
    return [module for module in every if "sandbox" not in module.parts]


def touches(module: Path) -> set[str]:
    """Return the kinds of calls by which a module touches the machine."""
    found = set()
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Attribute):
            name = ".".join(ast.unparse(node).split(".")[-2:])
            found |= {kind for kind, calls in KINDS.items() if name in calls}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITING:
            found.add("files")
    return found


def test_only_the_listed_places_touch_the_machine_and_each_for_its_reason() -> None:
    found = {module.relative_to(ROOT).as_posix(): touches(module) for module in modules()}

    assert {place: kinds for place, kinds in found.items() if kinds} == {
        place: set(kinds.split()) for place, (kinds, _) in PLACES.items()
    }


def test_no_module_takes_a_name_out_of_a_library_that_would_hide_it_from_this_test() -> None:
    hiding = {"time", "random", "secrets", "uuid", "os", "sqlite3", "aiosqlite", "requests", "socket", "subprocess", "shutil"}
    found = []
    for module in modules():
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in hiding:
                found += [f"{module.name}: from {node.module} import {alias.name}" for alias in node.names]
    assert found == []
