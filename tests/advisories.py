"""Check of the installed packages for known vulnerabilities, and of their licences.

    ./run advisories             asks OSV about every package of both locks, by pip-audit; needs the network
    ./run advisories --licences     prints name, version and licence of every package of the product

Exit status 1: a known vulnerability, or a licence that was not reviewed; 69: the service was not available.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT: Final = Path(__file__).resolve().parent.parent
LOCKS: Final = ("requirements.lock", "requirements-dev.lock")
SECONDS: Final = 600.0
UNAVAILABLE: Final = 69
PINNED: Final = re.compile(r"^(?P<name>[a-z0-9][\w.-]*)==(?P<version>[^\s\\;]+)")
# pip-audit gets its own environment for the run, because it is not part of the product.
ASKER: Final = (sys.executable, "-m", "uv", "tool", "run", "pip-audit", "--vulnerability-service", "osv")
# Licences that require notices only; MPL's terms cover its own files, which are not changed here.
KNOWN: Final = ("mit", "bsd", "apache", "python software foundation", "psf", "isc", "mpl", "mozilla")


@dataclass(frozen=True, slots=True)
class Package:
    """One package of a lock; `licence` is "" if its metadata name none, None if it is not installed on this machine."""

    name: str
    version: str
    licence: str | None

    @property
    def fits(self) -> bool:
        """Tell whether its licence, or one of its alternatives, is a known one."""
        return self.licence is None or any(word in self.licence.lower() for word in KNOWN)


@dataclass(frozen=True, slots=True)
class Hole:
    """A known vulnerability of an installed package."""

    package: str
    version: str
    name: str
    mended_by: tuple[str, ...]


def locked(lock: Path) -> list[Package]:
    """Return the packages of a lock, with the licences that their metadata name."""
    found = (PINNED.match(line) for line in lock.read_text("utf-8").splitlines())
    return [Package(each["name"], each["version"], licence_of(each["name"])) for each in found if each]


def licence_of(name: str) -> str | None:
    """Return the licence of an installed package from the shortest of the three metadata fields that may contain it."""
    try:
        told = metadata(name)
    except PackageNotFoundError:
        return None
    classified = [line.rpartition(" :: ")[2] for line in told.get_all("Classifier", []) if line.startswith("License ::")]
    expression, text = (next(iter(told.get_all(field) or ()), "") for field in ("License-Expression", "License"))
    return expression or ", ".join(classified) or text.partition("\n")[0]


def holes(told: dict[str, Any]) -> Iterable[Hole]:
    """Return the vulnerabilities in pip-audit's JSON."""
    for package in told["dependencies"]:
        for each in package.get("vulns", ()):
            yield Hole(package["name"], package["version"], each["id"], tuple(each.get("fix_versions", ())))


def ask(asker: Sequence[str], lock: Path) -> list[Hole] | str:
    """Query one lock; return its vulnerabilities, or the reason why the result is unknown."""
    asked = [*asker, "--require-hashes", "--disable-pip", "--format", "json", "--requirement", str(lock)]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=False)
        return list(holes(json.loads(done.stdout)))
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    except (ValueError, KeyError, TypeError):
        return (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode} and said nothing"])[-1]


def audit(asker: Sequence[str], locks: Sequence[Path]) -> int:
    """Query every lock and print the results."""
    status = 0
    for lock in locks:
        found = ask(asker, lock)
        if isinstance(found, str):
            print(
                f"{lock.name}: the database of holes could not be asked ({found}). Nothing is known; try where the network allows."
            )
            return UNAVAILABLE
        print(f"{lock.name}: {len(found)} known holes in {len(locked(lock))} packages")
        for hole in found:
            print(f"  {hole.package} {hole.version}: {hole.name}, mended by {', '.join(hole.mended_by) or 'no version yet'}")
        status = status or int(bool(found))
    return status


def licences(lock: Path) -> int:
    """Print the licences of a lock's packages."""
    packages = locked(lock)
    for package in packages:
        print(f"{package.name:24} {package.version:12} {package.licence or ('not installed here' if package.fits else 'UNKNOWN')}")
    strange = [package.name for package in packages if not package.fits]
    if strange:
        print(f"Look at the licence of: {', '.join(strange)}")
    return int(bool(strange))


def main(arguments: Sequence[str]) -> int:
    """Run the requested check."""
    if list(arguments) == ["--licences"]:
        return licences(ROOT / LOCKS[0])
    if arguments:
        print(__doc__)
        return 64
    return audit(ASKER, [ROOT / name for name in LOCKS])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
