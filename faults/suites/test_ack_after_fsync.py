"""Tests that no acknowledgement is sent before its reservation's fsync, by the order of the real bot's system calls."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from faults.harness.rig import BotProcess, Deal, eventually

if TYPE_CHECKING:
    from pathlib import Path

# `<pid> <call>(<fd><<path or socket>>, "<first bytes>"...`, as strace -f -yy prints it. A call that another thread's line
# interrupts is printed in two halves: up to `<unfinished ...>`, and from `<... call resumed>`.
_CALL = re.compile(
    r"^(?P<pid>\d+) +(?P<name>fdatasync|fsync|pwrite64|sendto|write|sendmsg|recvfrom|recvmsg|read)"
    r"\((?P<fd>\d+)<(?P<target>[^>]*(?:>[^>]*)?)>"
)
_UNFINISHED = re.compile(r"^(?P<pid>\d+) .*<unfinished \.\.\.>$")
_RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. \w+ resumed>")
WAL = "ledger.db-wal"
TEXT_FRAME = r"\201"  # first byte of a client's final WebSocket text frame; its pings start with \211
ENVELOPE = r"{\"envelope_id\":"  # may follow another frame in the same read


@dataclass(frozen=True, slots=True)
class Step:
    """One relevant system call: `envelope` (received), `wal_write`, `wal_sync` (when it ended), `ack` (sent)."""

    what: str
    line: int


def steps_of(trace: str) -> list[Step]:
    """Return the envelopes received, the writes to the WAL, the ends of their syncs and the text frames sent, in order.

    What a bot sends or writes counts from the call's first line, what it receives or has synced from its last.
    """
    steps: list[Step] = []
    unfinished: dict[str, str] = {}
    for number, line in enumerate(trace.splitlines(), start=1):
        if half := _UNFINISHED.match(line):
            unfinished[half["pid"]] = line
            steps += [Step(what, number) for what in _begun(line)]
        elif resumed := _RESUMED.match(line):
            steps += [Step(what, number) for what in _ended(unfinished.pop(resumed["pid"], "") + line[resumed.end() :])]
        else:
            steps += [Step(what, number) for what in (*_begun(line), *_ended(line))]
    return steps


def _begun(line: str) -> list[str]:
    call = _CALL.match(line)
    if call is None:
        return []
    if WAL in call["target"]:
        return ["wal_write"] * (call["name"] == "pwrite64")
    sent = call["target"].startswith("TCP") and not call["name"].startswith("re")
    return ["ack"] * (sent and f'"{TEXT_FRAME}' in line)


def _ended(line: str) -> list[str]:
    call = _CALL.match(line)
    if call is None:
        return []
    if WAL in call["target"]:
        return ["wal_sync"] * call["name"].endswith("sync")
    received = call["target"].startswith("TCP") and call["name"].startswith("re")
    return ["envelope"] * (line.count(ENVELOPE) if received else 0)


def acks_before_fsync(steps: list[Step]) -> list[int]:
    """Return the lines of acks without a synced write since their envelope arrived, or with one that is not synced yet."""
    early: list[int] = []
    unsynced = synced = False
    for step in steps:
        if step.what == "envelope":
            synced = False
        elif step.what == "wal_write":
            unsynced = True
        elif step.what == "wal_sync":
            synced = synced or unsynced
            unsynced = False
        elif unsynced or not synced:
            early.append(step.line)
    return early


def test_the_reader_sees_an_ack_that_leaves_too_early() -> None:
    envelope = r'7 recvfrom(11<TCP:[127.0.0.1:1->127.0.0.1:2]>, "\201~\3\1{\"envelope_id\":"..., 262144, 0, NULL, NULL) = 700'
    write = '7 pwrite64(9</d/ledger.db-wal>, "..."..., 24, 0) = 24'
    begun, ended = "7 fdatasync(9</d/ledger.db-wal> <unfinished ...>", "7 <... fdatasync resumed>) = 0"
    asked = "8 recvfrom(11<TCP:[127.0.0.1:1->127.0.0.1:2]>,  <unfinished ...>"
    came = r'8 <... recvfrom resumed>"\212\0\201~\3\1{\"envelope_id\":"..., 262144, 0, NULL, NULL) = 700'
    ack = r'7 sendto(11<TCP:[127.0.0.1:1->127.0.0.1:2]>, "\201\204"..., 10, 0, NULL, 0) = 10'

    def verdict(*lines: str) -> list[int]:
        return acks_before_fsync(steps_of("\n".join(lines)))

    assert verdict(envelope, write, begun, ended, ack) == []
    assert verdict(envelope, write, begun, ack, ended) == [4]
    assert verdict(envelope, write, ack, begun, ended) == [3]
    assert verdict(write, begun, ended, envelope, ack) == [5]  # an older command's sync proves nothing
    assert verdict(asked, write, begun, ended, came, ack) == [6]  # nor does one whose call began before the envelope arrived
    assert verdict(asked, came, write, begun, ended, ack) == []


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed (.ci/run installs it)")
async def test_every_ack_of_a_mutating_command_follows_the_fsync_of_its_reservation(
    rig: tuple[BotProcess, Deal], tmp_path: Path
) -> None:
    bot, deal = rig
    trace = tmp_path / "trace"
    calls = "trace=fdatasync,fsync,pwrite64,sendto,sendmsg,write,recvfrom,recvmsg,read"
    await bot.start(under=("strace", "-D", "-f", "-yy", "-s", "1024", "-e", calls, "-o", str(trace)))
    for _ in range(3):
        await deal.slash()
        await deal.settled()
    await deal.click("quote.submit", user="U0REP")
    await deal.settled()
    await eventually(lambda: len([s for s in steps_of(trace.read_text()) if s.what == "ack"]) >= 4, "the trace to be written")
    steps = steps_of(trace.read_text())
    assert [step.what for step in steps].count("envelope") == 4
    assert [step.what for step in steps].count("ack") == 4
    assert [step.what for step in steps].count("wal_sync") >= 12  # three commits per command
    assert acks_before_fsync(steps) == []
