"""Tests of catalogue, policy and settings files that try to exhaust the reader: one clear refusal, never a crash."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.quotebot.cli.conftest import begun_ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tests.quotebot.cli.conftest import Run

DEEP: Final = 200_000
HEAD: Final = 'name = "x"\nversion = "1"\ncurrency = "USD"\n'
PRODUCTS: Final = "sku,name,family,unit,billing,cost,aliases\npro,Pro,saas,seat,recurring,1,"
CATALOGUES: Final[dict[str, tuple[str, str]]] = {
    "deep flow.yaml": ("[" * DEEP, "line 1: it is not valid YAML: it is nested deeper than 50 levels"),
    "deep block.yaml": ("".join(f"{' ' * level}a:\n" for level in range(2_000)), "nested deeper than 50 levels"),
    "alias.yaml": ("a: &a [1]\nb: *a\n", "line 1: it is not valid YAML: anchors and aliases are not read"),
    "deep.toml": (f"a = {'[' * DEEP}", "it is not valid TOML: it is nested deeper than 50 levels"),
    "dotted.toml": (f"{'a.' * 300}b = 1", "it is not valid TOML: it is nested deeper than 50 levels"),
    "exponent.toml": (f"{HEAD}products = 1e999999999", "the number 1E+999999999 is not between 1e-60 and 1e60"),
    "overflow.toml": (f"{HEAD}products = 1e{'9' * 40}", "it is not valid TOML: a number is too large"),
    "digits.toml": (f"{HEAD}products = {'9' * 100_000}", "it is not valid TOML: a number is too large"),
    "hex.toml": (f"{HEAD}products = 0x{'f' * 100_000}", "a whole number has more than 256 bits"),
    "deep.json": ("[" * DEEP, "it is not valid JSON: it is nested deeper than 50 levels"),
    "nested.json": (f"{'[' * 60}{']' * 60}", "it is not valid JSON: it is nested deeper than 50 levels"),
    "exponent.json": ('{"products": 1e-999999999}', "is not between 1e-60 and 1e60"),
    "digits.json": (f'{{"products": {"9" * 100_000}}}', "it is not valid JSON: a number is too large"),
    "products.csv": (
        f"sku,name,family,unit,billing,cost,aliases\npro,Pro,saas,seat,recurring,1,{'[' * 100_000}\n",
        "products.csv, line 2",
    ),
    "prices.csv": (",".join(f"c{number}" for number in range(5_000)), "the header has 5,000 columns; at most 100 are read"),
}


@pytest.fixture
def ledger(tmp_path: Path) -> None:
    """Make a ledger on which no bot has started yet."""
    begun_ledger(tmp_path / "bot")


@pytest.mark.usefixtures("ledger")
@pytest.mark.parametrize("name", CATALOGUES)
def test_hostile_catalogue_is_refused_with_its_reason(command: Run, tmp_path: Path, name: str) -> None:
    text, reason = CATALOGUES[name]
    (tmp_path / name).write_text(text)
    done = command("catalog", "import", name)
    assert reason in done.stderr + done.stdout
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr + done.stdout) < 5_000


@pytest.mark.parametrize(
    "text", [f"a = {'[' * DEEP}", f"{'a.' * 300}b = 1", f"slots = 0x{'f' * 100_000}"], ids=["deep", "dotted", "hex"]
)
def test_hostile_settings_file_is_refused_with_its_reason(command: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "quotebot.toml").write_text(text)
    done = command("config", "show")
    assert done.returncode != 0
    assert "quotebot.toml" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert len(done.stderr + done.stdout) < 5_000
