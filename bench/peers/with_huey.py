"""huey on SQLite: `python -m bench.peers.with_huey FOLDER SECONDS CLIENTS` prints JSON.

Its fastest set-up: WAL, FULL, worker threads that poll every millisecond (default 0.1 s), clients woken by the signal that a task
is complete and its result stored (polling for results was several times slower). It has no idempotency keys; put_if_empty replaces
them. It deletes a task before it runs it, so a crash loses running tasks: its guarantees are weaker than the product's.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import threading
from pathlib import Path
from typing import Any, Final

from bench.peers.promise import Application, drive, not_durable

WORKERS: Final = 2  # 1, 4, 8 and 16 were not faster
POLL_SECONDS: Final = 0.001
RESULT_SECONDS: Final = 60


def main() -> None:
    """Run as the command line specifies."""
    folder, seconds, clients = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    logging.disable(logging.CRITICAL)
    huey_module: Any = importlib.import_module("huey")
    application = Application(folder / "application.db")
    huey = huey_module.SqliteHuey("bench", filename=str(folder / "huey.db"), fsync=True, timeout=30)
    completions: dict[str, threading.Event] = {}

    def execute(key: str) -> dict[str, str]:
        return application.apply(key)

    def complete(_: str, task: Any) -> None:
        completions.pop(task.id).set()

    apply = huey.task()(execute)
    huey.signal(huey_module.signals.SIGNAL_COMPLETE)(complete)

    def command(key: str) -> None:
        if not huey.storage.put_if_empty(f"key:{key}", b"1"):
            return
        task = apply.s(key)
        completion = completions[task.id] = threading.Event()
        huey.enqueue(task)
        if not completion.wait(RESULT_SECONDS):
            raise TimeoutError(key)

    consumer = huey.create_consumer(
        workers=min(WORKERS, clients),
        worker_type="thread",
        periodic=False,
        initial_delay=POLL_SECONDS,
        backoff=1,
        max_delay=POLL_SECONDS,
    )
    consumer.start()
    try:
        summary = drive(command, clients, seconds)
    finally:
        consumer.stop(graceful=True)
    if huey.storage.result_store_size() != 2 * summary["ops"]:  # a key and a result each
        summary["problems"].append(f"{huey.storage.result_store_size()} rows stored for {summary['ops']} keys and results")
    summary["problems"] += not_durable(huey.storage.conn) + application.problems(summary["ops"])
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
