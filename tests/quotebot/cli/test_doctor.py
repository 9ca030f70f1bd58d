"""Tests that each broken set-up is found by its check, and passes after the fix."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable  # noqa: TC003 -- dataclasses read it
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import AnyHttpUrl, SecretStr

from ledger.database import DatabaseError
from quotebot.app.installation import load_rules
from quotebot.cli import root
from quotebot.cli.doctor.checks import Check, Seen, Site, State, bad, examine, exit_status, fine
from quotebot.cli.doctor.others import CHANNEL_SCOPES, OPTIONAL_SCOPES, SCOPES
from quotebot.cli.doctor.table import CHECKS
from quotebot.domain.approvals.policy_document import policy_document
from quotebot.sandbox.slack.directory import APPROVERS
from quotebot.sandbox.world import World
from quotebot.settings import Settings
from tests import test_manifest
from tests.quotebot.parts import tampered
from tests.rig import bot_in, settings_for

BY_ID = {check.id: check for check in CHECKS}


@pytest.fixture(autouse=True)
def _bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("QUOTEBOT_", "SLACK_", "SALESFORCE_", "CREDENTIALS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


async def looked(site: Site, check_id: str) -> tuple[State, str]:
    (result,) = await examine(site, [BY_ID[check_id]])
    return result.state, result.words


@dataclass(frozen=True, slots=True)
class Broken:
    """A set-up with one defect: how it is broken, the check and words that report it, and the fix."""

    check_id: str
    state: State
    words: str
    harm: Callable[[Site], Site | None]
    mend: Callable[[Site], Site | None]


def ledger(site: Site) -> Path:
    return site.settings.ledger_path


def with_(site: Site, **settings: object) -> Site:
    return replace(site, settings=site.settings.model_copy(update=settings))


def opened_to_others(name: str, site: Site) -> None:
    """Give other users access to a file or folder of the data folder."""
    path = site.settings.data_dir / name
    for folder in reversed(path.relative_to(site.settings.data_dir).parents):
        (site.settings.data_dir / folder).mkdir(mode=0o700, exist_ok=True)
    if path.suffix:
        path.touch()
        path.chmod(0o644)
    else:
        path.mkdir(exist_ok=True)
        path.chmod(0o755)


def closed_to_others(name: str, site: Site) -> None:
    """Remove that access, as the fix says."""
    path = site.settings.data_dir / name
    path.chmod(0o700 if path.is_dir() else 0o600)


def env_file(_: Site) -> None:
    Path(".env").write_text("SLACK_BOT_TOKEN=xoxb-planted\n")
    Path(".env").chmod(0o644)


def keys(site: Site) -> list[Path]:
    return sorted(site.settings.data_dir.glob("audit-*.key"))


def sql(statement: str) -> Callable[[Site], None]:
    return lambda site: tampered(ledger(site), statement)


def with_mirror(site: Site) -> Site:
    """Return the site with contacts that were synced long ago."""
    with contextlib.closing(sqlite3.connect(ledger(site))) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO crm_mirror_cursors VALUES ('contacts', 'a', '', '', 0, 1, 0, 0)")
    return site


def quotebot(*arguments: str) -> Callable[[Site], None]:
    """Run the command that the fix says, as somebody would at a terminal."""

    def run(site: Site) -> None:
        os.environ["QUOTEBOT_DATA_DIR"] = str(site.settings.data_dir)
        try:
            status = root.run(arguments)
        finally:
            del os.environ["QUOTEBOT_DATA_DIR"]
        assert status == 0

    return run


def sparse_wal(site: Site) -> None:
    with ledger(site).with_name("ledger.db-wal").open("wb") as log:
        log.truncate(300 << 20)  # a sparse file: it takes no space


def backed_up_again(site: Site) -> Site:
    quotebot("backup")(site)
    return replace(site, now_seconds=time.time)


def backed_up_long_ago(site: Site) -> Site:
    quotebot("backup")(site)
    return replace(site, now_seconds=lambda: time.time() + 3 * 86_400)


def dead_effects(site: Site) -> list[str]:
    with contextlib.closing(sqlite3.connect(ledger(site))) as file:
        return [str(row) for (row,) in file.execute("SELECT id FROM effects WHERE state = 'failed' ORDER BY id").fetchall()]


def discard_all(site: Site) -> None:
    for reference in dead_effects(site):
        quotebot("dead", "discard", reference, "--reason", "the customer went elsewhere")(site)


COPIED = "operation_id, class, semantics, target, aggregate_id, correlation_id, payload, aged_from, created_at, updated_at"
COPY = (
    f"INSERT INTO effects (effect_key, {COPIED}, next_attempt_at) SELECT ?, {COPIED}, 1 FROM effects WHERE state = 'failed' LIMIT 1"  # noqa: S608 -- ours
)
CLAIMED = (
    "UPDATE effects SET state = 'in_flight', epoch = 1, lease_until = 1, fence = 1, next_attempt_at = NULL WHERE effect_key = ?"
)
DEAD = (
    "UPDATE effects SET state = 'failed', epoch = NULL, lease_until = NULL, finished_at = 1, ever_failed = 1 WHERE effect_key = ?"
)


def nine_more_dead(site: Site) -> None:
    with contextlib.closing(sqlite3.connect(ledger(site))) as file, file:
        for number in range(9):
            for statement in (COPY, CLAIMED, DEAD):
                file.execute(statement, [f"{number:064}"])


def a_week_later(site: Site) -> Site:
    return replace(site, now_seconds=lambda: time.time() + 8 * 86_400)


def replayed_often(site: Site) -> None:
    with contextlib.closing(sqlite3.connect(ledger(site))) as file, file:
        file.execute("UPDATE effects SET cycle = 21 WHERE id = ?", [dead_effects(site)[0]])


def put_to_sleep(site: Site) -> None:
    """Make a row wait for one that is already done, which only a defect or another program can do."""
    done = "(SELECT max(id) FROM effects WHERE state = 'delivered' AND id < :id)"
    statement = f"UPDATE effects SET state = 'pending', finished_at = NULL, after_id = {done} WHERE id = :id"  # noqa: S608 -- ours
    with contextlib.closing(sqlite3.connect(ledger(site))) as file, file:
        file.execute(statement, {"id": dead_effects(site)[-1]})


def chmod_as_told(check_id: str) -> Callable[[Site], None]:
    """Run the fix literally for each file that the check names."""

    def mend(site: Site) -> None:
        (mode,) = re.findall(r"chmod (\d{3}) on", BY_ID[check_id].fix)
        _, words = asyncio.run(looked(site, check_id))
        named = re.findall(r"(\S+) \(\d{3}\)", words)
        assert named
        for path in named:
            Path(path).chmod(int(mode, 8))

    return mend


def cancel_stuck(site: Site) -> None:
    """Cancel the row that the check names."""
    _, words = asyncio.run(looked(site, "ledger.stuck"))
    (reference,) = re.findall(r"nothing: (\d+) ", words)
    quotebot("ops", "cancel", reference, "--reason", "stuck")(site)


def forge(site: Site) -> None:
    shutil.copy(ledger(site), "backup.db")
    tampered(ledger(site), "UPDATE audit_events SET actor = 'nobody' WHERE id = 3")


def damage(site: Site) -> None:
    """Overwrite pages of tables with random bytes, as a failing disk does."""
    shutil.copy(ledger(site), "backup.db")
    with ledger(site).open("r+b") as file:
        for page in range(8, 24):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)


def restore(site: Site) -> None:
    shutil.copy("backup.db", ledger(site))


def store_file(site: Site, sha256: str) -> None:
    folder = site.settings.data_dir / "artefacts"
    folder.mkdir(exist_ok=True)
    (folder / f"{sha256}.pdf").touch()


def lose_key(site: Site) -> None:
    keys(site)[0].rename("kept.key")


def restore_key(site: Site) -> None:
    Path("kept.key").rename(site.settings.data_dir / "audit-0001.key")


STRANGER = "INSERT INTO schema_migrations (component, name, sha256, applied_at) VALUES ('ledger', '9999_new.sql', 'x', 1)"
LOCAL = [
    Broken(
        "settings.tokens",
        State.ERROR,
        "SLACK_APP_TOKEN is missing",
        lambda site: with_(site, slack_app_token=None),
        lambda site: with_(site, slack_app_token=Settings(_env_file=None, SLACK_APP_TOKEN="xapp-1").slack_app_token),
    ),
    Broken("secrets.private", State.ERROR, ".env (644)", env_file, chmod_as_told("secrets.private")),
    Broken(
        "data.folder",
        State.ERROR,
        "(755)",
        lambda site: site.settings.data_dir.chmod(0o755),
        chmod_as_told("data.folder"),
    ),
    Broken("data.files", State.ERROR, "ledger.db (640)", lambda site: ledger(site).chmod(0o640), chmod_as_told("data.files")),
    Broken(
        "data.files",
        State.ERROR,
        "audit-0001.key (644)",
        lambda site: keys(site)[0].chmod(0o644),
        chmod_as_told("data.files"),
    ),
    *(
        Broken("data.files", State.ERROR, f"{name} (", partial(opened_to_others, name), partial(closed_to_others, name))
        for name in (
            "proof-signing.key",
            "artefacts/ab/cdef.pdf",
            "backups/ledger-20260101T000000Z.db",
            "metrics.prom",
            "audit-anchors.log",
            "backups",
        )
    ),
    Broken(
        "disk.room",
        State.ERROR,
        "10 MiB are free",
        lambda site: replace(site, free_bytes=lambda _: 10 << 20),
        lambda site: replace(site, free_bytes=lambda _: 10 << 30),
    ),
    Broken(
        "sqlite.version",
        State.ERROR,
        "SQLite 3.31.1 is older",
        lambda site: replace(site, sqlite_version=(3, 31, 1)),
        lambda site: replace(site, sqlite_version=(3, 51, 3)),
    ),
    Broken(
        "ledger.schema", State.ERROR, "newer build", sql(STRANGER), sql("DELETE FROM schema_migrations WHERE name = '9999_new.sql'")
    ),
    Broken("ledger.whole", State.ERROR, "", damage, restore),
    Broken(
        "ledger.sqlite.wal", State.WARNING, "300 MiB", sparse_wal, lambda site: ledger(site).with_name("ledger.db-wal").unlink()
    ),
    Broken("ledger.dead", State.WARNING, "dead letters: 2 ", lambda _: None, discard_all),
    Broken("ledger.dead_this_week", State.WARNING, "11 dead letters in the last seven days", nine_more_dead, a_week_later),
    Broken("ledger.histories", State.WARNING, "(20 replays)", replayed_often, sql("UPDATE effects SET cycle = 2 WHERE cycle = 21")),
    Broken("ledger.stuck", State.ERROR, "1 rows wait for nothing", put_to_sleep, cancel_stuck),
    Broken(
        "ledger.unread",
        State.ERROR,
        "1 commands wait for a newer build: op1 (quote.create)",
        sql(
            "UPDATE operations SET state = 'reserved', outcome = NULL, finished_at = NULL, next_attempt_at = 1,"
            " category = 'needs_newer_build' WHERE id = 1"
        ),
        sql("UPDATE operations SET category = NULL WHERE id = 1"),
    ),
    Broken("ledger.gates", State.WARNING, "crm", quotebot("pause", "crm", "--reason", "a test"), quotebot("resume", "crm")),
    Broken(
        "audit.whole",
        State.ERROR,
        "audit_events 3",
        forge,
        restore,
    ),
    Broken(
        "audit.whole",
        State.ERROR,
        "audit-0001.key is missing",
        lose_key,
        restore_key,
    ),
    Broken(
        "backup.age",
        State.WARNING,
        "there is no backup of this ledger in",
        lambda site: replace(site, now_seconds=lambda: time.time() + 3 * 86_400),
        backed_up_again,
    ),
    Broken(
        "backup.age",
        State.WARNING,
        "72.0 hours old",
        backed_up_long_ago,
        lambda site: replace(site, now_seconds=time.time),
    ),
    Broken(
        "documents.folder",
        State.WARNING,
        "cannot be used: there is no such folder",
        lambda site: with_(site, document_folder=site.settings.data_dir / "none"),
        lambda site: with_(site, document_folder=None),
    ),
    Broken(
        "documents.stored",
        State.WARNING,
        f"files are gone: Q-2026-0042 v1 ({'a' * 12})",
        sql("INSERT INTO artefacts VALUES (hex(zeroblob(32)), replace(hex(zeroblob(32)), '0', 'a'), 'Q-2026-0042', 1, 1, 1)"),
        lambda site: store_file(site, "a" * 64),
    ),
    Broken(
        "crm.mirror",
        State.WARNING,
        "accounts were never read whole; contacts are as of 1 Jan 1970, 00:00 UTC",
        lambda site: with_(with_mirror(site), crm_mirror=("accounts", "contacts"), crm_sync_minutes=15),
        lambda site: with_(site, crm_mirror=(), crm_sync_minutes=None),
    ),
    Broken(
        "crm.mirror",
        State.WARNING,
        "without crm_sync_minutes nobody reads them",
        lambda site: with_(site, crm_mirror=("accounts",)),
        lambda site: with_(site, crm_mirror=()),
    ),
    Broken(
        "watchers.installed",
        State.WARNING,
        "SENTRY_DSN is",  # not an address or, without the extra, unused
        lambda site: with_(site, sentry_dsn=SecretStr("sentry.example.com")),
        lambda site: with_(site, sentry_dsn=None),
    ),
    Broken(
        "people.approvers",
        State.WARNING,
        "needs cfo",
        lambda site: with_(site, approvers={role: people for role, people in APPROVERS.items() if role != "cfo"}),
        lambda site: with_(site, approvers=APPROVERS),
    ),
    Broken(
        "people.approvers",
        State.WARNING,
        "does not know finance",
        lambda site: with_(site, approvers={**APPROVERS, "finance": ("U0X",)}),
        lambda site: with_(site, approvers=APPROVERS),
    ),
]


@pytest.fixture
def site(tmp_path: Path, dead_ledger: Path) -> Site:
    """Return a correct set-up with the ledger of a stopped bot, which has two dead letters."""
    shutil.copytree(dead_ledger, tmp_path / "bot", ignore=shutil.ignore_patterns("*.ballast"))
    given: dict[str, Any] = {"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"}
    return Site(Settings(_env_file=None, data_dir=tmp_path / "bot", approvers=APPROVERS, **given))


@pytest.mark.parametrize("broken", LOCAL, ids=lambda broken: f"{broken.check_id}-{broken.words}")
def test_a_broken_set_up_is_found_and_its_fix_mends_it(site: Site, broken: Broken) -> None:
    harmed = broken.harm(site) or site
    state, words = asyncio.run(looked(harmed, broken.check_id))
    assert (state, broken.words in words) == (broken.state, True), words
    mended = broken.mend(harmed) or harmed
    state, words = asyncio.run(looked(mended, broken.check_id))
    assert state in (State.OK, State.SKIPPED), words


def test_looking_changes_nothing(site: Site) -> None:
    def files() -> dict[str, tuple[int, str]]:
        return {
            str(path): (path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(site.settings.data_dir.rglob("*"))
            if path.is_file() and not path.name.endswith(("-wal", "-shm"))  # created by any reader
        }

    before = files()
    results = asyncio.run(examine(site, [check for check in CHECKS if check.id != "pdf.renders"], offline=True))
    assert files() == before
    assert [(each.check.id, each.words) for each in results if each.state is State.UNKNOWN] == []


@pytest.mark.parametrize(("most", "effect"), [(None, "rate_days_max is not set"), (30, "such quotes are refused")])
def test_old_exchange_rates_are_reported_with_their_effect(
    site: Site, most: int | None, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if most is None:
        assert asyncio.run(looked(site, "rates.age"))[0] is State.SKIPPED  # the sample's
    rules = load_rules(site.settings)
    own = replace(rules, ruleset=replace(rules.ruleset, hash="another"))
    monkeypatch.setattr("quotebot.cli.doctor.records.load_rules", lambda _: own)
    state, words = asyncio.run(looked(with_(site, rate_days_max=most), "rates.age"))
    assert (state, "USD to EUR is of 2026-01-02" in words, effect in words) == (State.WARNING, True, True), words
    day = datetime(2026, 1, 20, tzinfo=UTC).timestamp()
    assert asyncio.run(looked(replace(with_(site, rate_days_max=most), now_seconds=lambda: day), "rates.age"))[0] is State.OK


def test_documents_are_checked_with_the_special_terms_of_the_active_policy(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lint(_: object, __: object, terms: Iterable[str], ___: object) -> tuple[str, ...]:
        return tuple(sorted(terms))

    monkeypatch.setattr("quotebot.cli.doctor.records.lint", lint)
    own = with_(site, document_folder=tmp_path)
    shipped = load_rules(site.settings).policy
    assert asyncio.run(looked(own, "documents.folder"))[1] == "; ".join(sorted(shipped.legal_terms | shipped.other_terms))
    policy = policy_document(replace(shipped, legal_terms=frozenset({"escrow"}), other_terms=frozenset({"net_90"}), term_names={}))
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    quotebot("approval-policy", "import", str(tmp_path / "policy.yaml"), "--activate")(site)
    assert asyncio.run(looked(own, "documents.folder")) == (State.WARNING, "escrow; net_90")


def test_the_bot_s_own_renderer_is_tried(site: Site) -> None:
    state, words = asyncio.run(looked(site, "pdf.renders"))
    assert (state, "a page was rendered" in words) == (State.OK, True)


def test_a_new_installation_has_nothing_wrong_but_what_it_was_not_given(tmp_path: Path) -> None:
    new = Site(Settings(_env_file=None, data_dir=tmp_path / "none"))
    results = asyncio.run(examine(new, [check for check in CHECKS if check.id != "pdf.renders"], offline=True))
    assert {each.check.id for each in results if each.state not in (State.OK, State.SKIPPED)} == {
        "settings.tokens",
        "people.approvers",
    }
    assert not (tmp_path / "none").exists()


def test_a_misspelled_variable_of_the_environment_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"QUOTEBOT_CONFIG": "x", "QUOTEBOT_LANGUAGE": "de", "QUOTEBOT_SLACK_BOT_TOKEN": "x"})
    assert asyncio.run(looked(site, "settings.variables"))[0] is State.OK
    monkeypatch.setattr(os, "environ", {"QUOTEBOT_LANGAUGE": "de"})
    words = "QUOTEBOT_LANGAUGE: there is no such setting; did you mean language?"
    assert asyncio.run(looked(site, "settings.variables")) == (State.WARNING, words)


def test_a_bot_that_ended_is_a_trouble_also_while_another_program_has_its_pid(site: Site) -> None:
    lock = site.settings.data_dir / "ledger.db.lock"
    for pid in (os.getppid(), 2**22 + 1):  # alive, and beyond the highest one
        lock.write_text(f"{pid}\n")
        assert asyncio.run(looked(site, "bot.running")) == (State.WARNING, f"no bot is running (process {pid} held its lock last)")
    with contextlib.closing(site.storage.hold() or contextlib.ExitStack()):
        assert asyncio.run(looked(site, "bot.running"))[0] is State.OK
    lock.unlink()
    assert asyncio.run(looked(site, "bot.running")) == (State.SKIPPED, "no bot ever ran here")


async def test_what_slack_and_salesforce_refuse_is_found_and_mended(tmp_path: Path) -> None:
    """One world for all cases: each is broken by a setting, or by the state of that world."""
    async with World(tmp_path / "world", scopes=SCOPES - {"files:write"}).serve() as world:
        good = Site(settings_for(world, tmp_path / "bot"))
        wrong = Settings(_env_file=None, SLACK_BOT_TOKEN="xoxb-planted", SLACK_APP_TOKEN="xapp-planted")
        asked: dict[str, Any] = world.model_environment()
        secret = good.settings.model_copy(update={"salesforce_client_secret": wrong.slack_bot_token})
        table = [
            ("slack.bot_token", with_(good, slack_bot_token=wrong.slack_bot_token), State.ERROR, "Slack refused it (invalid_auth)"),
            ("slack.app_token", with_(good, slack_app_token=wrong.slack_app_token), State.ERROR, "Slack refused it (invalid_auth)"),
            ("slack.scopes", good, State.ERROR, "files:write missing"),
            ("slack.channel_scopes", good, State.WARNING, "groups:read missing"),
            ("clock.skew", replace(good, now_seconds=lambda: time.time() + 600), State.WARNING, "ahead of Slack's"),
            ("clock.skew", replace(good, now_seconds=lambda: time.time() - 600), State.WARNING, "behind Slack's"),
            ("crm.login", replace(good, settings=secret), State.ERROR, ""),
            ("crm.login", with_(good, salesforce_instance_url="https://127.0.0.1:1"), State.ERROR, "no connection"),
        ]
        model = Settings(_env_file=None, **{name.removeprefix("QUOTEBOT_").lower(): value for name, value in asked.items()})
        asks = with_(good, llm_base_url=model.llm_base_url, llm_api_key=model.llm_api_key, llm_model=model.llm_model)
        elsewhere = AnyHttpUrl("http://127.0.0.1:1/v1")
        table += [
            ("llm.reachable", good, State.SKIPPED, "no language model is configured"),
            ("llm.reachable", asks, State.OK, "has sandbox-rules-1"),
            ("llm.reachable", with_(asks, llm_api_key=wrong.slack_bot_token), State.WARNING, "check the key"),
            ("llm.reachable", with_(asks, llm_model="none-such"), State.WARNING, "does not list none-such"),
            ("llm.reachable", with_(asks, llm_base_url=elsewhere), State.WARNING, "connection"),
        ]
        for check_id, site, state, words in table:
            found = await looked(site, check_id)
            assert (found[0], words in found[1], "planted" in found[1]) == (state, True, False), (check_id, found)
        nowhere = with_(good, slack_api_url="http://127.0.0.1:1/api/")
        states = {each.check.id: each.state for each in await examine(nowhere, [each for each in CHECKS if each.online])}
        assert [check_id for check_id, state in states.items() if state is State.ERROR] == ["slack.reachable"]
        address, world.slack.url = world.slack.url, "http://127.0.0.1:1"
        assert (await looked(good, "slack.socket"))[0] is State.ERROR
        world.slack.url = address


@pytest.mark.parametrize("effect", ["5xx", "429", "malformed"])
async def test_an_outage_of_the_other_side_is_not_called_a_refused_login(tmp_path: Path, effect: str) -> None:
    asked = {"slack.reachable", "slack.bot_token", "slack.app_token", "slack.scopes", "crm.login"}
    async with World(tmp_path / "world").serve() as world:
        world.weather.arm("slack", effect, times=50)
        world.weather.arm("salesforce", effect, times=50)
        found = await examine(Site(settings_for(world, tmp_path / "bot")), [each for each in CHECKS if each.id in asked])
    troubles = {each.check.id: each for each in found if each.state is State.ERROR}
    assert troubles.keys() - {"slack.reachable"} == {"slack.bot_token", "slack.app_token", "crm.login"}
    assert {each.check.fix[:19] for each in troubles.values()} == {"Change no login: it"}
    assert exit_status(found) == 69
    assert not [each for each in found if "refused it" in each.words]


async def test_beside_a_running_bot_all_is_well(tmp_path: Path) -> None:
    checks = [check for check in CHECKS if check.id != "pdf.renders"]
    async with World(tmp_path / "world", scopes=SCOPES | CHANNEL_SCOPES.keys()).serve() as world, bot_in(world, tmp_path / "bot"):
        results = await examine(Site(settings_for(world, tmp_path / "bot")), checks)
    states = {each.check.id: each.state for each in results}
    without = {
        "secrets.private",
        "ledger.role",  # the ledger is a file
        *("clock.database", "ledger.connections", "slack.sockets"),
        "llm.reachable",
        "backup.age",
        "watchers.installed",
        "crm.mirror",
        "rates.age",
        "documents.folder",
    }  # not part of this set-up
    assert {check_id for check_id, state in states.items() if state is not State.OK} == without, results


def test_the_scopes_are_the_manifest_s() -> None:
    assert SCOPES | CHANNEL_SCOPES.keys() | OPTIONAL_SCOPES.keys() == test_manifest.SCOPES


def check_of(look: Any, severity: State = State.ERROR, status: int = 3, *, is_online: bool = False) -> Check:
    return Check("a.check", "it", "because", "do", severity, status, look, is_online)


@pytest.mark.parametrize(
    ("error", "fix"),
    [(DatabaseError("no server"), "Nothing is known of"), (PermissionError(13, "x"), "Run the command as the bot")],
)
async def test_a_ledger_that_cannot_be_read_gets_no_advice_about_its_content(error: Exception, fix: str) -> None:
    async def closed(_: Site) -> Seen:
        raise error

    (found,) = await examine(Site(Settings(_env_file=None)), [check_of(closed)])
    assert (found.state, found.check.fix[: len(fix)], exit_status([found])) == (State.UNKNOWN, fix, 69)


async def test_a_check_that_cannot_run_says_so_and_stops_no_other() -> None:
    site = Site(Settings(_env_file=None, SLACK_BOT_TOKEN="xoxb-planted"))

    async def breaks(_: Site) -> Seen:
        raise OSError("the disk ate xoxb-planted")

    async def hangs(_: Site) -> Seen:
        await asyncio.Event().wait()
        raise AssertionError

    async def works(_: Site) -> Seen:
        return fine("well")

    broken, hung, well, kept = await examine(
        site, [check_of(breaks), check_of(hangs), check_of(works), check_of(hangs, is_online=True)], offline=True, seconds_max=0.05
    )
    assert (broken.state, broken.words) == (State.UNKNOWN, "it could not be run (OSError: the disk ate [redacted])")
    assert (hung.state, hung.words) == (State.UNKNOWN, "it could not be finished within 0.05 s")
    assert (well.state, kept.state) == (State.OK, State.SKIPPED)


async def test_the_exit_status_is_that_of_the_gravest_trouble() -> None:
    async def trouble(_: Site) -> Seen:
        return bad("broken")

    site = Site(Settings(_env_file=None))
    graded = ((State.WARNING, 3), (State.ERROR, 78), (State.ERROR, 69))
    results = await examine(site, [check_of(trouble, *each) for each in graded])
    assert exit_status(results) == 78
    assert exit_status(results[:1]) == 3
    assert exit_status([]) == 0


def test_every_check_has_an_id_of_its_own_and_says_why_and_what_to_do() -> None:
    assert len(BY_ID) == len(CHECKS)
    assert [check.id for check in CHECKS if not (check.what and check.why and check.fix and check.exit_status)] == []


def test_every_command_of_a_fix_stands_in_backticks_and_parses(checkout: Path) -> None:
    fixes = " ".join(check.fix for check in CHECKS)
    quoted = re.findall(r"`quotebot ([^`]+)`", fixes)
    assert re.findall(r"quotebot [a-z]+", re.sub(r"`[^`]*`", "", fixes)) == []
    for line in quoted:
        root.app.parse_args(shlex.split(line), print_error=False, exit_on_error=False)  # raises if it is not a command
    named = {" ".join(re.findall(r"^[a-z]+|(?<= )(?:list|discard|cancel|status|confirm)\b", line)) for line in quoted}
    assert named >= {"run", "init", "gates", "resume", "dead list", "dead discard", "ops cancel", "crm status"}
    assert [page for page in re.findall(r"docs/[\w.]+\.md", fixes) if not (checkout / page).is_file()] == []


def test_at_least_fifteen_broken_set_ups_are_tried() -> None:
    assert len(LOCAL) >= 15
    assert {broken.check_id for broken in LOCAL} <= set(BY_ID)


def test_the_command_tells_people_and_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-planted")
    arguments = ("doctor", "--offline", "--only", "settings", "--only", "disk.room")
    assert root.run(arguments) == 78
    told = capsys.readouterr().out
    assert "SLACK_APP_TOKEN is missing" in told
    assert "Fix:  Set SLACK_BOT_TOKEN and SLACK_APP_TOKEN" in told
    monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-planted")
    assert root.run((*arguments, "--json")) == 0
    printed = capsys.readouterr().out
    states = {each["id"]: each["state"] for each in json.loads(printed)["checks"]}
    assert states == {"settings.readable": "ok", "settings.variables": "ok", "settings.tokens": "ok", "disk.room": "ok"}
    assert "planted" not in told + printed
    assert root.run(("doctor", "--only", "moon")) == 64


@pytest.mark.parametrize(
    ("line", "mended", "words"),
    [
        ("quote_valid_day = 3", "quote_valid_days = 3", "did you mean quote_valid_days?"),
        ("quote_valid_days = 0", "quote_valid_days = 1", "QUOTEBOT_QUOTE_VALID_DAYS: "),
        ('salesforce_client_id = "x"', "", "SALESFORCE_INSTANCE_URL, SALESFORCE_CLIENT_SECRET missing"),
        ("seller_name = Acme", 'seller_name = "Acme"', "is not TOML"),
    ],
)
def test_settings_that_cannot_be_read_are_a_finding_too(
    capsys: pytest.CaptureFixture[str], line: str, mended: str, words: str
) -> None:
    Path("quotebot.toml").write_text(line)
    assert root.run(("doctor", "--only", "settings.readable", "--json")) == 78
    (found,) = json.loads(capsys.readouterr().out)["checks"]
    assert (found["id"], found["state"], words in found["found"]) == ("settings.readable", "error", True)
    Path("quotebot.toml").write_text(mended)
    assert root.run(("doctor", "--only", "settings.readable")) == 0
