"""`python -m quotebot` and the `quotebot` script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its status."""
    from quotebot.cli import printable  # noqa: PLC0415 -- importing this module runs nothing and costs nothing
    from quotebot.cli.root import run  # noqa: PLC0415 -- as above

    with printable.safe_streams():
        printable.install()
        sys.exit(run())


if __name__ == "__main__":
    main()
