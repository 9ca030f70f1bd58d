"""Tests of `quotebot catalog ...` and `quotebot quote reprice --verify`, as people run them, without a running bot."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.quotebot.cli.conftest import SECONDS, begun_ledger, clean_environment
from tests.quotebot.parts import tampered
from tests.rig import read_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

PRICES = "book,sku,kind,from,price\nlist,pro,range,1,12\nlist,pro,,50,8\nlist,sso,,,3\n"
STATES = "SELECT version, state FROM rulesets ORDER BY version"


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return a ledger on which no bot has started yet."""
    return begun_ledger(tmp_path / "bot")


@pytest.fixture
def folder(command: Run, ledger: Path, tmp_path: Path) -> Path:
    """Return the folder with the sheets of the active version."""
    assert command("catalog", "discard", "9").returncode == 4
    assert command("catalog", "export", "--out", "sheets").returncode == 0
    (tmp_path / "prices.csv").write_text(PRICES.replace("list,sso", "list,enterprise,,,20\nlist,sso") + REST)
    return tmp_path / "sheets"


REST = "list,support,,,500\nlist,onboarding,,,5000\n"


def told(command: Run, *arguments: str, status: int = 0) -> dict[str, Any]:
    done = command("catalog", *arguments, "--json")
    assert done.returncode == status, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def states(ledger: Path) -> dict[int, str]:
    return {row["version"]: row["state"] for row in read_ledger(ledger, STATES)}


def test_prices_go_their_way_from_a_sheet_to_the_next_quote(command: Run, ledger: Path, folder: Path) -> None:
    dry = command("catalog", "import", "prices.csv", "--dry-run")
    assert (dry.returncode, states(ledger)) == (0, {1: "active"})
    assert "list / pro price range 1: 10, 50: 8, 100: 6 range 1: 12, 50: 8\n" in re.sub(" +", " ", dry.stdout)
    assert dry.stderr == "It would be imported as sample 2. Nothing was written.\n"

    imported = told(command, "import", "prices.csv", "--note", "autumn", "--as", "ann")
    assert (imported["outcome"], imported["version"], imported["base"]) == ("applied", 2, 1)
    assert {"kind": "changed", "table": "prices", "key": "list / sso", "field": "price", "old": "2", "new": "3"} in imported[
        "changes"
    ]
    newest = told(command, "list")["versions"][0]
    assert (newest["version"], newest["state"], newest["note"], newest["imported_by"]) == (2, "draft", "autumn", "ann")
    assert command("quote", "price", "10 pro; term 1m").stdout.count("100.00") == 3

    activated = command("catalog", "activate", "2")
    assert activated.stdout.endswith(
        "Version 2 (sample 2) prices from now on. Version 1 is retired; quotes priced by it keep their prices.\n"
    )
    assert states(ledger) == {1: "retired", 2: "active"}
    assert json.loads(command("quote", "price", "10 pro; term 1m", "--json").stdout)["net_total"] == "120.00"
    assert told(command, "diff", "1")["changes"] == imported["changes"]
    assert told(command, "show")["ruleset"]["origin"] == "prices.csv"
    assert [product["sku"] for product in told(command, "list", "2")["products"]] == [
        "enterprise",
        "onboarding",
        "pro",
        "sso",
        "support",
    ]
    for arguments in (("list",), ("list", "1"), ("show", "1"), ("diff", "1", "2"), ("lint", "2")):
        assert command("catalog", *arguments).returncode == 0


def test_what_was_exported_is_imported_as_nothing_new(command: Run, ledger: Path, folder: Path, tmp_path: Path) -> None:
    sheets = [f"sheets/{table}.csv" for table in ("products", "books", "prices", "constraints", "taxes", "rates")]
    (tmp_path / "whole.json").write_text(command("catalog", "export").stdout)
    for files in (sheets, ["prices=sheets/prices.csv"], ["whole.json"]):
        assert told(command, "import", *files, "--activate")["outcome"] == "unchanged"
    assert states(ledger) == {1: "active"}
    assert command("catalog", "export", "--out", "sheets").returncode == 65
    assert command("catalog", "export", "1", "--table", "rates").stdout.startswith(
        "base,currency,rate,on\nUSD,EUR,0.92,2026-01-02\n"
    )


def test_every_bad_row_is_named_and_nothing_is_imported(command: Run, ledger: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "costs.csv").write_text("sku,cost\npro,two\nprox,1\n")
    done = command("catalog", "import", "costs.csv", "prices.csv", "--activate", "--request-id", "r")
    assert (done.returncode, done.stdout, states(ledger)) == (3, "", {1: "active"})
    assert done.stderr.splitlines() == [
        "costs.csv, line 2, column cost: 'two' is no plain number; write e.g. 10 or 10.50, without any sign",
        "costs.csv, line 3, column sku: 'prox' is not in the catalogue; name a product that is",
        "2 problems. Nothing was imported.",
    ]
    (tmp_path / "costs.csv").write_text("sku,cost\n" + "".join(f"x{number},1\n" for number in range(250)))
    found = told(command, "lint", "costs.csv", status=3)
    assert (found["problem_count"], len(found["problems"])) == (250, 100)
    assert found["problems"][99] | {"suggestion": ""} == {
        "file": "costs.csv",
        "line": 101,
        "column": "sku",
        "value": "x99",
        "message": "'x99' is not in the catalogue",
        "suggestion": "",
    }


def test_a_whole_document_is_checked_before_it_is_imported(command: Run, ledger: Path, folder: Path, tmp_path: Path) -> None:
    text = command("catalog", "export").stdout
    (tmp_path / "rules.json").write_text(text.replace('"cost": "2"', '"cost": "-2"'))
    done = command("catalog", "import", "rules.json")
    assert (done.returncode, "rules.json, column products[3].cost: '-2' must be between 0 and" in done.stderr) == (3, True)
    (tmp_path / "rules.json").write_text(text.replace('"cost": "2"', '"cost": "20"'))
    linted = command("catalog", "lint", "rules.json")
    assert linted.stderr == "Warning: pro is sold at 6 in list, below its cost of 20.\n"
    clash = command("catalog", "import", "rules.json")
    assert (clash.returncode, "Version 1 is called sample 1 too" in clash.stderr) == (3, True)
    assert told(command, "import", "rules.json", "--as-version", "9")["version"] == 2
    assert states(ledger) == {1: "active", 2: "draft"}


def test_a_document_in_yaml_is_read_with_every_value_as_text(command: Run, ledger: Path, folder: Path, tmp_path: Path) -> None:
    whole = json.loads(command("catalog", "export").stdout)
    whole["rates"][0]["rate"] = "0.1"
    file = tmp_path / "rules.yaml"
    text = yaml.safe_dump(whole).replace("'0.1'", "0.1").replace("region: DE", "region: NO").replace("'on': '", "on: '")
    assert all(each in text for each in ("rate: 0.1\n", "region: NO\n", " on: '2026-01-02'\n"))  # YAML 1.1 would misread these
    file.write_text(text)
    changes = told(command, "import", "rules.yaml", "--as-version", "2")["changes"]
    assert [(each["table"], each["key"], each["new"]) for each in changes if each["kind"] != "removed"] == [
        ("ruleset", "", "2"),
        ("taxes", "NO", "region NO, percent 19, estimated true"),
        ("rates", "USD EUR 2026-01-02", "0.1"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nproducts: [\n", "rules.yaml, line 3: it is not valid YAML: "),
        ("name: a\nname: b\n", "rules.yaml, line 2: it is not valid YAML: the key 'name' is there twice"),
        ("a: &x [1]\nb: *x\n", "rules.yaml, line 1: it is not valid YAML: anchors and aliases are not read"),
        ("[a]: 1\n", "rules.yaml, line 1: it is not valid YAML: a key must be a word"),
        ("- a\n", "rules.yaml, line 1: a ruleset is a table"),
        ("", "rules.yaml: a ruleset is a table"),
        ("name: a\nproducts:\n- sku: a\n  cost: x\n", "rules.yaml, line 4, column products[1].cost: 'x' must be an amount"),
        ("!!python/object/apply:os.system ['true']", "rules.yaml, line 1: a ruleset is a table"),
    ],
)
def test_what_is_wrong_in_yaml_is_named_by_its_line(command: Run, ledger: Path, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "rules.yaml").write_text(text)
    done = command("catalog", "lint", "rules.yaml")
    assert done.returncode == 3
    assert any(line.startswith(said) for line in done.stderr.splitlines()), done.stderr


def test_the_same_request_id_is_one_import_and_another_use_of_it_a_conflict(command: Run, ledger: Path, folder: Path) -> None:
    first = told(command, "import", "prices.csv", "--request-id", "r")
    again = told(command, "import", "prices.csv", "--request-id", "r")
    assert (told(command, "import", "prices.csv")["outcome"], states(ledger)) == ("unchanged", {1: "active", 2: "draft"})
    assert (again["version"], again["repeated"], first["repeated"]) == (first["version"], True, False)
    assert told(command, "activate", "2", "--request-id", "r", status=65)["outcome"] == "conflict"
    assert told(command, "discard", "2", "--request-id", "d")["outcome"] == "applied"
    assert told(command, "activate", "2", status=3)["outcome"] == "refused"
    assert states(ledger) == {1: "active", 2: "discarded"}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("import",), 64, "Name the files to import"),
        (("import", "rules.yaml"), 64, "rules.yaml cannot be read"),
        (("import", "sheet.csv"), 64, "does not say which table it holds"),
        (("import", "rules.toml", "prices.csv"), 64, "is a whole ruleset: give it alone"),
        (("import", "none.toml"), 64, "none.toml cannot be read (No such file or directory). Nothing was imported."),
        (("import", "prices.csv", "--request-id", "a b"), 64, "--request-id is 1 to 100 printable characters"),
        (("lint",), 64, "Say what to check"),
        (("export", "--table", "costs"), 64, "There is no table 'costs'"),
        (("export", "--table", "rates", "--json"), 64, "Give one of"),
        (("show", "9"), 4, "There is no version 9 of the ruleset"),
        (("show", "x"), 4, "There is no"),
        (("diff", "1", "9"), 4, "There is no version 9 of the ruleset"),
        (("activate", "9"), 4, "There is no version 9 of the ruleset"),
        (("list", "7"), 4, "There is no version 7 of the ruleset"),
    ],
)
def test_what_makes_no_sense_is_said_and_nothing_is_done(
    command: Run, ledger: Path, arguments: tuple[str, ...], status: int, said: str
) -> None:
    done = command("catalog", *arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr


def activating(version: int, actor: str, folder: Path, checkout: Path) -> subprocess.Popen[str]:
    environment = clean_environment(folder, PYTHONPATH=str(checkout), PYTHONUNBUFFERED="1")
    command = [sys.executable, "-m", "quotebot", "catalog", "activate", str(version), "--as", actor]
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_concurrent_activations_run_in_turn_or_one_is_refused_naming_the_other(
    command: Run, ledger: Path, folder: Path, tmp_path: Path, checkout: Path
) -> None:
    told(command, "import", "prices.csv")
    told(command, "import", "prices.csv", "--as-version", "3")
    racers = {actor: activating(version, actor, tmp_path, checkout) for actor, version in (("ann", 2), ("ben", 3))}
    ends = {actor: (racer.communicate(timeout=SECONDS), racer.returncode) for actor, racer in racers.items()}
    done = [actor for actor, (_, status) in ends.items() if status == 0]
    told_off = [said[1] for said, status in ends.values() if status == 3]
    assert len(done) + len(told_off) == 2
    assert all(said.splitlines()[-1].startswith(f"{done[0]} activated version ") for said in told_off)
    activated = read_ledger(ledger, "SELECT actor FROM audit_events WHERE event_type = 'ruleset.activated' ORDER BY id")
    assert {row["actor"] for row in activated[1:]} == set(done)
    assert len(activated) == 1 + len(done)
    assert list(states(ledger).values()).count("active") == 1


def test_a_bot_less_ledger_has_no_versions_to_show(command: Run, ledger: Path) -> None:
    assert "There are no versions yet" in command("catalog", "list").stderr
    assert "There is no active version" in command("catalog", "show").stderr


# ------------------------------------------------------------------------------------------------------- pricing again


def test_stored_prices_are_verified_and_a_changed_one_is_named(command: Run, ledger: Path, folder: Path) -> None:
    new = ("--channel", "C0DEALS", "--as", "U0REP", "--team", "T0HOME")
    assert command("quote", "new", "for Zed: 150 pro", *new).returncode == 0
    told(command, "import", "prices.csv", "--activate")
    assert command("quote", "new", "for Zed: 10 pro", *new).returncode == 0
    assert command("quote", "reprice", "--verify").stdout == "2 snapshots priced again: all the same.\n"
    ids = [row["quote_id"] for row in read_ledger(ledger, "SELECT quote_id FROM quotes ORDER BY quote_id")]
    explained = [json.loads(command("quote", "explain", each, "--json").stdout)["ruleset"] for each in ids]
    assert [(each["version"], each["name"]) for each in explained] == [(1, "sample 1"), (2, "sample 2")]
    assert "A new version would use price list 2 (sample 2)." in command("quote", "explain", ids[0]).stdout

    tampered(ledger, "UPDATE quote_versions SET pricing = json_set(pricing, '$.net_total', '1.00') WHERE quote_id = ?", ids[1])
    found = command("quote", "reprice", "--verify")
    assert found.returncode == 3
    assert f"{ids[1]} v1 (priced by sample 2, version 2):\n" in found.stdout
    assert "  net_total: 1.00 is now 1440.00\n" in found.stdout
    assert found.stdout.endswith("2 snapshots priced again: 1 differ.\n")
    listed = json.loads(command("quote", "reprice", "--verify", "--json").stdout)
    assert (listed["snapshots"], listed["differing"], listed["shown"][0]["quote_id"]) == (2, 1, ids[1])


def test_prices_are_only_ever_verified(command: Run, ledger: Path) -> None:
    done = command("quote", "reprice")
    assert (done.returncode, "Stored prices never change" in done.stderr) == (64, True)
    assert command("quote", "reprice", "--verify").stdout == "0 snapshots priced again: all the same.\n"
