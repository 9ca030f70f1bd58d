"""Tests of hostile command-line arguments: one documented status and a bounded answer, never a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from tests.quotebot.cli.conftest import Run

STATUSES: Final = {0, 3, 4, 64, 69, 75, 78}
OUTPUT_CHARACTERS_MAX: Final = 20_000
ESCAPED: Final = 2 * len("\\U0001f600")  # a character may be shown escaped, and twice
COMMANDS: Final = (
    "quote show {}",
    "quote new {} --channel C0DEALS --as U0REP",
    "quote new @ --channel {} --as U0REP",
    "quote new @ --channel C0DEALS --as {}",
    "quote revise Q-2026-0001 {} --as U0REP",
    "quote discount {} {} --as U0REP",
    "quote lost Q-2026-0001 {} --as U0REP",
    "quote sent Q-2026-0001 {} --as U0REP",
    "quote cancel {} --as U0REP",
    "quote delegate {} --as U0REP",
    "quote list --state {}",
    "catalog import {}",
    "catalog activate {}",
    "catalog diff {}",
    "dead list --class {}",
    "dead show {}",
    "dead discard {} --reason {}",
    "dead resolve {} --delivered --reason {}",
    "replay {}",
    "replay --class {}",
    "trace {}",
    "why {}",
    "ops list --state {}",
    "ops show {}",
    "ops cancel {} --reason {}",
    "pause {} --reason {}",
    "resume {}",
    "audit show {}",
    "audit export {}",
    "ledger verify {}",
    "ledger prune --keep {}",
    "restore {} --yes",
    "backup --to {}",
    "doctor --offline --only {}",
    "config show --set {}",
    "metrics --since {}",
    "slo --since {}",
    "clock {}",
    "completion {}",
    "{}",
)
SEEDS: Final = (
    "",
    "-",
    "--",
    "=",
    "\0",
    "\ud800",
    "\x1b]0;x\x07",
    "'; DROP TABLE quotes; --",
    "../" * 40,
    "9" * 5_000,
    "[" * 5_000,
)
CHARACTERS: Final = st.characters(exclude_characters="\0")  # an argument cannot contain one
TYPED: Final = (
    st.sampled_from(SEEDS) | st.text(CHARACTERS, max_size=60) | st.text(CHARACTERS, max_size=5).map(lambda unit: unit * 2_000)
)


@pytest.mark.usefixtures("dead")
@pytest.mark.parametrize("command_line", COMMANDS)
def test_any_argument_ends_in_a_documented_status_without_a_traceback(command: Run, command_line: str) -> None:
    @settings(max_examples=4, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @example("\ud800")
    @example("")
    @example("/")
    @given(TYPED)
    def any_text(text: str) -> None:
        arguments = ["for Acme: 3 pro" if part == "@" else part.replace("{}", text) for part in command_line.split()]
        done = command(*arguments)
        assert done.returncode in STATUSES, done
        assert "Traceback" not in done.stderr
        assert len(done.stdout) + len(done.stderr) < OUTPUT_CHARACTERS_MAX + ESCAPED * sum(map(len, arguments))

    any_text()
