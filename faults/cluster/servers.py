"""A primary and its standby, each behind a proxy, and the ways in which the primary ends."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from faults.cluster.proxy import CommitFault, Proxy
from quotebot.sandbox.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path

KINDS: Final = ("killed", "cut before COMMIT", "cut at COMMIT", "cut after COMMIT", "swallowed")
_CUTS: Final = {
    "cut before COMMIT": CommitFault.LOST,
    "cut at COMMIT": CommitFault.SENT,
    "cut after COMMIT": CommitFault.UNANSWERED,
}
_REPLICATION: Final = {"wal_level": "replica", "max_wal_senders": "4"}


class Servers:
    """A primary, whose COMMITs wait for its standby, and the standby. `url` leads to both, through a proxy each."""

    def __init__(self, folder: Path) -> None:
        self.primary, self.standby = (Cluster(folder / name, quick=True, settings=_REPLICATION) for name in ("a", "b"))
        self._proxies: dict[Cluster, Proxy] = {}
        self._open = contextlib.ExitStack()

    def start(self) -> None:
        """Start both."""
        for server in (self.primary, self.standby):
            self._open.callback(server.remove)
        self.primary.start()
        self.standby.follow(self.primary)
        self.primary.wait_for_standbys("ANY 1 (*)")
        for server in (self.primary, self.standby):
            self._proxies[server] = self._open.enter_context(Proxy(server.url()))

    def close(self) -> None:
        """Stop both and delete their files."""
        self._open.close()

    @property
    def url(self) -> str:
        """Address of the database on both servers."""
        addresses = [urlsplit(self._proxies[server].url) for server in (self.primary, self.standby)]
        hosts, ports = (
            quote(",".join(map(str, each)), safe="") for each in zip(*((a.hostname, a.port) for a in addresses), strict=True)
        )
        return (
            f"postgresql://{addresses[0].username}@{addresses[0].path}?host={hosts}&port={ports}&sslmode=disable&gssencmode=disable"
        )

    def address(self, name: str) -> str:
        """Return the address for a process of this name: all use the same proxies."""
        del name
        return self.url

    def fail(self, kind: str) -> None:
        """End the primary in one of the ways, and promote its standby. Returns when the standby takes writes."""
        proxy = self._proxies[self.primary]
        if kind == "swallowed":
            proxy.swallow()
        else:
            if kind in _CUTS:
                proxy.at_next_commit(_CUTS[kind])
                proxy.wait_until_struck()
            self.primary.kill()
        self.standby.promote()

    def bring_back(self, kind: str) -> None:
        """Let the former primary come back, ready to write, and break the connections to the new one."""
        if kind == "swallowed":
            self._proxies[self.primary].come_back()
        else:
            self.primary.start()
        self.primary.wait_for_standbys("")
        self._proxies[self.standby].cut()

    def swap(self) -> None:
        """Make the former primary the standby of the new one."""
        self.primary.kill()
        shutil.rmtree(self.primary.data)
        self.primary.follow(self.standby)
        self.primary, self.standby = self.standby, self.primary
        self.primary.wait_for_standbys("ANY 1 (*)")
