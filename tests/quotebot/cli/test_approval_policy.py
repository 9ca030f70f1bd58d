"""Tests of `quotebot approval-policy ...`, as people run it, without a running bot."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.quotebot.cli.conftest import begun_ledger
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

REQUEST = "10 pro; term 12m; discount 15%"
PACKAGED = files("quotebot").joinpath("data/policy.toml").read_text("utf-8")
STATES = "SELECT version, state FROM rulesets ORDER BY version"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return a ledger whose first ruleset version is active, without a policy of its own; and the files of two policies."""
    path = begun_ledger(tmp_path / "bot")
    strict = PACKAGED.replace("percent = 10,", "percent = 5,").replace('version = "1"', 'version = "2"')
    (tmp_path / "strict.toml").write_text(strict)
    free = strict.replace('{ percent = 5, role = "sales_manager" },', "").replace('name = "sample"', 'name = "acme"')
    (tmp_path / "free.toml").write_text(free)
    return path


def told(command: Run, *arguments: str, status: int = 0) -> dict[str, Any]:
    done = command("approval-policy", *arguments, "--json")
    assert done.returncode == status, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def approvers(command: Run, request: str = REQUEST) -> list[str]:
    roles: list[str] = json.loads(command("quote", "preview", request, "--json").stdout)["required_roles"]
    return roles


def test_an_imported_policy_decides_after_its_activation(command: Run, ledger: Path) -> None:
    six_percent = REQUEST.replace("15", "6")
    assert approvers(command, six_percent) == []

    imported = told(command, "import", "strict.toml", "--note", "less room")
    assert (imported["outcome"], imported["version"]) == ("applied", 2)
    assert approvers(command, six_percent) == []  # a draft decides nothing

    assert command("catalog", "activate", "2").returncode == 0
    assert approvers(command, six_percent) == ["sales_manager"]
    assert command("catalog", "activate", "1").returncode == 0
    assert approvers(command, six_percent) == []  # without a policy of its own, the packaged one decides


def test_an_import_shows_the_changed_rules_before_it_writes(command: Run, ledger: Path) -> None:
    dry = told(command, "import", "strict.toml", "--dry-run")
    assert dry["outcome"] == "not imported"
    assert {(change["kind"], change["key"], change["field"]) for change in dry["changes"]} == {
        ("changed", "head", "version"),
        ("added", "discount over 5", ""),
        ("removed", "discount over 10", ""),
    }
    assert read_ledger(ledger, STATES) == []


def test_a_catalogue_import_keeps_the_policy(command: Run, ledger: Path, tmp_path: Path) -> None:
    assert told(command, "import", "strict.toml", "--activate")["outcome"] == "applied"
    catalogue = files("quotebot").joinpath("data/catalogue.toml").read_text("utf-8")
    (tmp_path / "catalogue.toml").write_text(catalogue.replace('version = "1"', 'version = "9"', 1))
    assert command("catalog", "import", "catalogue.toml", "--activate").returncode == 0
    assert told(command, "show")["policy"]["version"] == "2"
    (tmp_path / "prices.csv").write_text("book,sku,kind,from,price\nlist,sso,,,3\n")
    assert command("catalog", "import", "prices.csv", "--activate").returncode == 0
    assert told(command, "show")["policy"]["version"] == "2"


@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_shown_policy_can_be_imported_again_unchanged(command: Run, ledger: Path, tmp_path: Path, suffix: str) -> None:
    assert told(command, "import", "strict.toml", "--activate")["version"] == 2
    shown = command("approval-policy", "show").stdout if suffix == "yaml" else json.dumps(told(command, "show")["policy"])
    (tmp_path / f"policy.{suffix}").write_text(shown)
    again = told(command, "import", f"policy.{suffix}")
    assert (again["outcome"], again["version"], again["changes"]) == ("unchanged", 2, [])


def test_the_packaged_policy_is_shown_as_such(command: Run, ledger: Path) -> None:
    assert told(command, "show")["origin"] == "built in"
    printed = command("approval-policy", "show").stdout
    assert "ships with Quotebot" in printed.splitlines()[0]
    assert yaml.safe_load(printed)["discount"]["blocked_over"] == "40"


def test_lint_names_families_without_a_floor_and_roles_without_a_holder(command: Run, ledger: Path, tmp_path: Path) -> None:
    bare = PACKAGED.replace('services = { under = 40, role = "cfo" }', 'hardware = { under = 40, role = "cfo" }')
    (tmp_path / "bare.toml").write_text(bare)
    warnings = told(command, "lint", "bare.toml")["warnings"]
    assert "services has no margin floor, so each quote with such a product needs cfo" in warnings
    assert "margin.hardware applies to nothing: no product has this family" in warnings
    assert "legal has no holder, and nobody above it: nobody can approve" in warnings

    (tmp_path / "any.toml").write_text(bare.replace("hardware =", '"*" ='))
    assert not [warning for warning in told(command, "lint", "any.toml")["warnings"] if "margin" in warning]


def test_an_invalid_policy_names_the_place_and_imports_nothing(command: Run, ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(PACKAGED.replace('role = "vp_sales" },', 'role = "boss" },', 1))
    done = command("approval-policy", "import", "bad.toml")
    assert done.returncode == 3
    assert "bad.toml: discount.over[2].role: 'boss' must be one of" in done.stderr
    assert "Nothing was imported." in done.stderr


def test_a_preview_names_the_quotes_that_need_other_approvers(command: Run, ledger: Path) -> None:
    at = ("--channel", "C0DEALS", "--as", "U0REP", "--team", "T0QUOTE")
    assert command("quote", "new", "for Acme: 10 pro; term 12m; discount 6%", *at).returncode == 0
    found = told(command, "preview", "strict.toml")
    assert (found["quotes"], found["before"], found["after"]) == (1, {"nobody": 1}, {"sales_manager": 1})
    (changed,) = found["changed"]
    assert (changed["quote_id"][:2], changed["before"], changed["after"]) == ("Q-", "nobody", "sales_manager")
    assert changed["reasons"] == ["discount 6% (limit 5%)"]
    printed = command("approval-policy", "preview", "strict.toml").stdout
    assert "1 quote of the last 90 days; 1 would need other approvers under sample 2." in printed


def test_terms_and_quantities_need_the_approval_that_the_policy_names(command: Run, ledger: Path, tmp_path: Path) -> None:
    more = '\n[term]\nover = [{ months = 24, role = "deal_desk" }]\n[quantity]\nsso = { over = 20, role = "vp_sales" }\n'
    (tmp_path / "more.toml").write_text(PACKAGED + more)
    assert told(command, "import", "more.toml", "--as-version", "7", "--activate")["outcome"] == "applied"
    assert approvers(command, "20 pro, 20 sso; term 24m") == []
    assert approvers(command, "20 pro; term 36m") == ["deal_desk"]
    assert approvers(command, "21 pro, 21 sso; term 24m") == ["vp_sales"]


def test_under_review_a_person_cannot_pass_for_two(command: Run, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUOTEBOT_RULESET_REVIEW", "true")
    as_other = command("approval-policy", "import", "strict.toml", "--as", "ben")
    assert (as_other.returncode, "told apart by their system users" in as_other.stderr) == (64, True)
    assert command("approval-policy", "import", "strict.toml", "--activate").returncode == 3
    assert told(command, "import", "strict.toml")["version"] == 2
    own = command("catalog", "activate", "2")
    assert (own.returncode, "another person activates it" in own.stderr) == (3, True)
    assert told(command, "show")["policy"]["version"] == "1"


RICH = PACKAGED.replace(
    '{ percent = 20, role = "vp_sales" }', '{ percent = 20, roles = ["vp_sales", "legal"], dual_control = true }'
)
RICH += """
[term]
over = [{ months = 36, role = "cfo", people = "all" }]
[quantity]
pro = { over = 1000, role = "deal_desk" }
[segment]
partner = "nobody"
[calendar]
from = "09:00"
until = "17:00"
holidays = ["2026-12-25", "2027-01-01"]
"""


def test_a_policy_shown_as_csv_is_imported_again_unchanged(command: Run, ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "rich.toml").write_text(RICH)
    told(command, "import", "rich.toml")
    (tmp_path / "policy.csv").write_text(command("approval-policy", "show", "2", "--csv").stdout)
    assert command("catalog", "activate", "2").returncode == 0
    again = told(command, "import", "policy.csv", "--dry-run")
    assert again["changes"] == []
    assert told(command, "lint", "policy.csv")["name"] == "sample 1"


def test_a_csv_with_an_unusable_row_names_its_line(command: Run, ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.csv").write_text("rule,name,value,role\nrouting,,2,\n")
    done = command("approval-policy", "lint", "policy.csv")
    assert done.returncode == 3
    assert "policy.csv: line 2, column name: the row says neither a limit of a rule nor a name" in done.stderr
    (tmp_path / "policy.csv").write_text(
        "rule,name,value,role\npolicy,currency,USD,\ndiscount,,ten,cfo\ndiscount,blocked_over,40,\n"
    )
    expected = "policy.csv: line 3, column value: 'ten' is no plain number"
    assert expected in command("approval-policy", "lint", "policy.csv").stderr


def test_lint_counts_a_holder_who_left_as_none(command: Run, ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = ("sales_manager", "deal_desk", "vp_sales", "cfo", "legal")
    monkeypatch.setenv("QUOTEBOT_APPROVERS", json.dumps({role: [f"U0{role.upper()}"] for role in roles}))
    assert told(command, "lint")["warnings"] == []
    with closing(sqlite3.connect(ledger, isolation_level=None)) as connection:
        person = ("T0HOME", "U0VP_SALES", "deactivated", 1, "", "")
        connection.execute("INSERT INTO people (team_id, user_id, kind, fetched_at, name, zone) VALUES (?, ?, ?, ?, ?, ?)", person)
    assert told(command, "lint")["warnings"] == ["vp_sales has no holder; cfo is asked instead"]


def test_own_roles_are_imported_shown_compared_linted_and_asked(command: Run, ledger: Path) -> None:
    roles = '[roles]\nladder = ["team_lead", "sales_manager", "deal_desk", "vp_sales", "cfo"]\nbeside = ["legal", "security"]\n'
    names = '[roles.names]\nteam_lead = "Team Lead"\n[terms.groups]\nclean_room = "security"\n'
    (ledger.parent.parent / "own.toml").write_text(
        PACKAGED.replace('10, role = "sales_manager"', '10, role = "team_lead"') + roles + names
    )
    imported = told(command, "import", "own.toml", "--activate")
    assert {change["key"] for change in imported["changes"]} == {"discount over 10", "roles", "terms"}
    assert "no rule names sales_manager" in imported["warnings"]
    assert approvers(command, "10 pro; term 12m; discount 15%; terms clean_room") == ["team_lead", "security"]
    sheet = command("approval-policy", "show", "--csv").stdout
    assert "roles.names,team_lead,Team Lead" in sheet
    assert "terms.groups,clean_room,security" in sheet
    (ledger.parent.parent / "own.csv").write_text(sheet)
    assert told(command, "import", "own.csv", "--dry-run")["changes"] == []
