"""Named SQL statements: `-- name: reserve` above a statement in a queries.sql file makes it callable by that name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME = re.compile(r"^-- name: (\w+)\s*$")


def load_statements(texts: Iterable[str]) -> Mapping[str, str]:
    """Return statement text by name over all files. Raises ValueError on a name used twice or a statement without one."""
    statements: dict[str, str] = {}
    for text in texts:
        name: str | None = None
        for line in text.splitlines():
            if match := _NAME.match(line):
                name = match.group(1)
                if name in statements:
                    raise ValueError(f"two statements are named {name}")
                statements[name] = ""
            elif name is not None and not line.startswith("--"):
                statements[name] += line + "\n"
            elif name is None and line.strip() and not line.startswith("--"):
                raise ValueError(f"a statement without a name: {line.strip()[:60]}")
    return {name: sql.strip().removesuffix(";") for name, sql in statements.items()}
