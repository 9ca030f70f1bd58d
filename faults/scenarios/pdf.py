"""Failures of the PDF: its renderer crashes, its template is broken, its upload fails."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from faults.checks import checker
from faults.harness.rig import eventually
from faults.scenarios.stage import Scenario, amended

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faults.scenarios.stage import Stage

PROCESSES: Final = Path("/proc")
RENDERER: Final = "adapters.pdf.worker"
TEMPLATE: Final = "adapters/pdf/templates/detailed.html"


def renderer_of(bot: int) -> int | None:
    """Return the process id of the bot's renderer, None if it has none."""
    return next((pid for pid, parent, arguments in processes() if parent == bot and RENDERER in arguments), None)


def processes() -> Iterator[tuple[int, int, str]]:
    """Yield every process: its id, its parent's id, its command line. A small Linux has no `ps`, a Mac has no /proc."""
    if not PROCESSES.is_dir():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)  # noqa: S607 -- POSIX
        for line in listed.stdout.splitlines():
            pid, parent, arguments = line.split(maxsplit=2)
            yield int(pid), int(parent), arguments
        return
    for folder in PROCESSES.glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text("utf-8").rpartition(")")[2]
            arguments = (folder / "cmdline").read_text("utf-8", "replace").replace("\0", " ")
        except OSError:  # it has ended meanwhile
            continue
        yield int(folder.name), int(after_name.split()[1]), arguments


async def renderer_killed(stage: Stage) -> str:
    """FI-013: the renderer is killed."""
    deal = await stage.start(QUOTEBOT_ZYGOTES="")  # as shipped: the renderer is the bot's own child
    await deal.submitted_deal()

    async def killed() -> bool:
        renderer = await asyncio.to_thread(renderer_of, stage.bot.pid)
        if renderer is not None:
            os.kill(renderer, signal.SIGKILL)  # it starts when first needed and takes longer to load than this takes to find it
        return renderer is not None

    approving = deal.click("approval.approve", user="U0MANAGER")
    await asyncio.gather(approving, eventually(killed, "the renderer to be started and killed"))
    await deal.settled()
    ends = await stage.ends("pdf.render")
    stage.equal("one try dies with its renderer, the next one renders", ends, [("retry", "transient"), ("delivered", None)])
    await one_artefact(stage)
    await checker.golden_deal(deal)
    await stage.audited("pdf.render", "claimed retry_scheduled claimed delivered")
    return "rendered at the second try, one artefact, one checksum, one file"


async def one_artefact(stage: Stage) -> None:
    """Check that ledger, store and Slack have the same one PDF."""
    (effect,) = await stage.deal.rows("SELECT json_extract(result, '$.sha256') AS sha256 FROM effects WHERE class = 'pdf.render'")
    stored = await stage.documents()
    stage.equal("there is one artefact, named by its checksum", stored, [effect["sha256"]])
    content = await asyncio.to_thread(stage.deal.document, effect["sha256"])
    stage.equal("its content has that checksum", hashlib.sha256(content or b"").hexdigest(), effect["sha256"])
    stage.equal("Slack has the same bytes, once", [file["sha256"] for file in await stage.deal.files()], [effect["sha256"]])


async def template_broken(stage: Stage) -> str:
    """FI-014: the template is broken."""
    deal = await stage.start(None, **amended(stage.folder, TEMPLATE, "</body>", "{{ document.no_such_thing }}</body>"))
    await deal.approved_deal()
    (effect,) = await deal.rows("SELECT state, attempts, category, last_error FROM effects WHERE class = 'pdf.render'")
    stage.equal("it is given up at first sight", (effect["state"], effect["attempts"], effect["category"]), ("failed", 1, "render"))
    stage.fact("the error says what is wrong with the template", "no_such_thing" in effect["last_error"], effect["last_error"])
    stage.equal("nothing was stored", await stage.documents(), [])
    stage.equal("nothing was uploaded, HTML least of all", (await deal.get("state"))["files"], [])
    stage.fact("the card says what failed", "No PDF yet" in await deal.card_text(), await deal.card_text())
    stage.equal("the quote stands", await deal.rows("SELECT state FROM quotes"), [{"state": "approved"}])
    stage.equal("the record in Salesforce is there all the same", len(await deal.crm()), 1)
    await stage.audited("pdf.render", "claimed system.error")
    return "one dead letter at first sight, no file of any kind, the rest of the deal done"


async def upload_fails(stage: Stage) -> str:
    """FI-015: the upload fails."""
    deal = await stage.start()
    await deal.submitted_deal()
    await deal.arm("slack", "5xx", method="upload", times=2)
    await deal.complete(deal.click("approval.approve", user="U0MANAGER"))
    stage.equal("it was rendered once", len(await stage.attempts("pdf.render")), 1)
    uploads = await deal.witness("upload")
    stage.equal("two uploads fail, the third is taken", [each["applied"] for each in uploads], [False, False, True])
    stage.equal("all three carried the same bytes", len({each["request_hash"] for each in uploads}), 1)
    await one_artefact(stage)
    await checker.golden_deal(deal)
    await stage.audited("slack.file", "claimed retry_scheduled claimed retry_scheduled claimed delivered")
    return "three uploads of the same bytes, one render, one file"


SCENARIOS: Final = (
    Scenario(
        "FI-013",
        "P1",
        ("fail_once",),
        "the renderer dies once",
        "The process that renders PDFs is killed while it works on one.",
        "The PDF is rendered by the next one: one artefact, one checksum, one file.",
        renderer_killed,
    ),
    Scenario(
        "FI-014",
        "P1",
        ("always_fail",),
        "the template is broken",
        "The installed template names a value that does not exist.",
        "The render is a dead letter at first sight, no file of any kind goes out, and the rest of the deal is done.",
        template_broken,
    ),
    Scenario(
        "FI-015",
        "P1",
        ("fail_n",),
        "the upload fails twice",
        "Slack refuses the bytes of a rendered PDF two times.",
        "The same bytes are uploaded again: no second render, one file.",
        upload_fails,
    ),
)
