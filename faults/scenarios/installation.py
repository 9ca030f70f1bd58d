"""Another build of the product: a copy of the installed code with one text of it replaced, for a bot to be started from.

So a broken template or a wrong mapping is the same as in production, an error in the installed code, and production needs no switch
for it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import quotebot

PACKAGES: Final = ("quotebot", "ledger", "adapters")


def amended(folder: Path, file: str, old: str, new: str) -> dict[str, str]:
    """Copy the installation under `folder`, replace `old` in `file`, and return the environment that starts a bot from there.

    Raises ValueError if the text is not in the file exactly once: the scenario no longer fits the product then.
    """
    installed, copy = Path(quotebot.__file__).resolve().parent.parent, folder / "installation"
    for package in PACKAGES:
        shutil.copytree(installed / package, copy / package)  # compiled files too: the bot starts as fast as before
    path = copy / file
    text = path.read_text("utf-8")
    if text.count(old) != 1:
        raise ValueError(f"{file} does not hold {old!r} exactly once: amend the scenario")
    path.write_text(text.replace(old, new), "utf-8")
    return {"PYTHONPATH": str(copy), "PYTHONSAFEPATH": "1"}
