"""Tests of the import rules, and of the other rules of the tree."""

from __future__ import annotations

import ast
import functools
import json
import re
import resource
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PRODUCT = ("quotebot", "ledger", "adapters", "faults")
HEAVY = (
    *("slack_bolt", "slack_sdk", "aiohttp", "weasyprint", "simple_salesforce", "openai", "prometheus_client", "cryptography"),
    *("pydantic", "asyncio", "ssl", "psycopg"),
)
IMPURE = frozenset(
    [
        "time",
        "random",
        "secrets",
        "os",
        "io",
        "socket",
        "ssl",
        "select",
        "subprocess",
        "threading",
        "asyncio",
        "pathlib",
        "shutil",
        "tempfile",
        "sqlite3",
        "urllib",
        "http",
        "uuid",
        "logging",
        "aiohttp",
        "aiosqlite",
        "requests",
        "structlog",
    ]
)


def modules(checkout: Path, *folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((checkout / folder).rglob("*.py"))


@functools.cache
def imported(module: Path) -> frozenset[str]:
    """Return every top-level name that the module imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return frozenset(names)


def code_of(module: Path) -> str:
    """Return the code of a module without comments and docstrings."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node) is not None
        ):
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


def importers(checkout: Path, library: str) -> set[str]:
    return {module.relative_to(checkout).as_posix() for module in modules(checkout, *PRODUCT) if library in imported(module)}


def test_imports_go_in_the_directions_of_the_contracts(checkout: Path) -> None:
    linter = [sys.executable, "-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"]
    done = subprocess.run(linter, cwd=checkout, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_the_sqlite_module_of_the_ledger_imports_aiosqlite(checkout: Path) -> None:
    assert importers(checkout, "aiosqlite") <= {"ledger/sqlite/engine.py"}


def test_in_the_bot_only_the_storage_and_its_backups_know_sqlite(checkout: Path) -> None:
    inside = re.compile(r"^\s*(?:from|import) (?:sqlite3|ledger\.sqlite)\b", re.MULTILINE)
    found = {
        path.relative_to(checkout).as_posix() for path in modules(checkout, "quotebot") if inside.search(path.read_text("utf-8"))
    }
    assert found == {"quotebot/app/backups.py", "quotebot/app/sqlite_storage.py"}


def test_only_the_engine_and_the_places_that_choose_it_name_postgresql(checkout: Path) -> None:
    own = ("ledger/postgres/", "quotebot/store/postgres/", "quotebot/app/", "quotebot/sandbox/")
    options = ("quotebot/settings.py", "quotebot/cli/serve.py")  # the address of the database; `quotebot sandbox --postgres`
    found = [
        path.relative_to(checkout).as_posix()
        for path in modules(checkout, "quotebot", "ledger", "adapters")
        if re.search(r"postgres(?!ql\.md)|psycopg", code_of(path), re.IGNORECASE)  # a page may be named
    ]
    assert [path for path in found if not path.startswith((*own, *options))] == []


def test_in_the_product_only_the_slack_package_imports_slack_bolt(checkout: Path) -> None:
    assert {path for path in importers(checkout, "slack_bolt") if not path.startswith(("quotebot/slack/", "faults/"))} == set()


def test_the_domain_and_the_handlers_import_nothing_that_reads_the_world(checkout: Path) -> None:
    found = {
        module.relative_to(checkout).as_posix(): sorted(imported(module) & IMPURE)
        for module in modules(checkout, "quotebot/domain", "quotebot/handlers")
        if imported(module) & IMPURE
    }
    assert found == {}


def test_the_domain_and_the_handlers_never_ask_what_time_it_is(checkout: Path) -> None:
    asked = [
        f"{module.relative_to(checkout)}:{node.lineno}"
        for module in modules(checkout, "quotebot/domain", "quotebot/handlers")
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in {"now", "utcnow", "today"}
        and ast.unparse(node.value).split(".")[-1] in {"datetime", "date"}
    ]
    assert asked == []


def ruff_ignores(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield (line, its comment) for every line of pyproject.toml that switches a ruff rule off."""
    inside = ""
    for line in (checkout / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and not line.startswith("[["):
            inside = line
        code, _, reason = line.partition("#")
        if inside == "[tool.ruff.lint]" and re.match(r'\s+"[A-Z]+[0-9]*"', code):
            yield line, reason
        if inside == "[tool.ruff.lint.per-file-ignores]" and "=" in code:
            yield line, reason


def test_every_ruff_rule_that_is_off_says_why(checkout: Path) -> None:
    ignores = list(ruff_ignores(checkout))
    listed = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]["lint"]
    assert sum(line.count('"') // 2 for line, _ in ignores) >= len(listed["ignore"])
    assert [line for line, reason in ignores if not reason.strip()] == []


@pytest.mark.parametrize(
    ("marker", "reasoned"),
    [("noqa", r"# noqa: [A-Z0-9, ]+ -- \S"), ("type: ignore", r"# type: ignore\[[a-z\-, ]+\] *#* *(--)? *\S")],
)
def test_every_exemption_in_the_code_names_its_rule_and_its_reason(checkout: Path, marker: str, reasoned: str) -> None:
    bare = [
        f"{module.relative_to(checkout)}:{number}: {line.strip()}"
        for module in modules(checkout, *PRODUCT)
        for number, line in enumerate(module.read_text(encoding="utf-8").splitlines(), start=1)
        if f"# {marker}" in line and not re.search(reasoned, line)
    ]
    assert bare == []


LOCKS: Final = ("requirements.lock", "requirements-dev.lock", "requirements-build.lock", "requirements-extras.lock")


@pytest.mark.parametrize("lock", [*LOCKS, "bench/requirements-peers.lock"])
def test_a_lock_names_packages_versions_and_hashes_but_no_host(checkout: Path, lock: str) -> None:
    text = (checkout / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert [line for line in text.splitlines() if line.startswith("-")] == []  # no option: index, find-links, trusted host
    pins = re.split(r"\n(?=[A-Za-z0-9])", text)
    assert [pin.splitlines()[0] for pin in pins if not pin.startswith("#") and "--hash=sha256:" not in pin] == []


def test_the_development_lock_holds_every_pin_of_the_runtime_lock(checkout: Path) -> None:
    def pins(name: str) -> set[str]:
        return set(
            re.findall(
                r"^([A-Za-z0-9._\-]+(?:\[[^\]]*\])?==[^\s;\\]+)", (checkout / name).read_text(encoding="utf-8"), re.MULTILINE
            )
        )

    assert len(pins("requirements.lock")) > 20
    for lock in LOCKS:
        assert pins(lock) - pins("requirements-dev.lock") == set()


def test_build_lock_holds_the_whole_backend(checkout: Path) -> None:
    locked = set(re.findall(r"^([a-z0-9\-]+)==", (checkout / "requirements-build.lock").read_text(encoding="utf-8"), re.MULTILINE))
    (backend,) = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    needed = {re.split(r"[^a-z0-9\-]", backend)[0]}
    for name in list(needed):
        wanted = (each for each in requires(name) or () if "python_version <" not in each and "extra ==" not in each)
        needed |= {re.split(r"[^A-Za-z0-9\-_]", each)[0].lower() for each in wanted}
    assert locked == needed


def processor_seconds(arguments: Sequence[str], folder: Path) -> float:
    """Return the processor seconds of one run of a Python program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_costs_hardly_more_than_the_library_that_prints_it(checkout: Path) -> None:
    """Uses the minimum of several alternating runs: other load only adds time, and to both alike."""
    library, ours = ["-c", "import cyclopts.help, rich.console"], ["-m", "quotebot", "--help"]
    took = [(processor_seconds(library, checkout), processor_seconds(ours, checkout)) for _ in range(6)]
    assert min(each for _, each in took) < 2 * min(each for each, _ in took)


def test_help_imports_nothing_heavy(checkout: Path) -> None:
    probe = (
        "import atexit, json, runpy, sys\n"
        f"atexit.register(lambda: print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]), file=sys.stderr))\n"
        "sys.argv = ['quotebot', '--help']\n"
        "runpy.run_module('quotebot', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=checkout, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1]) == []
