"""Import, activation and discarding of ruleset versions: each is one durable, audited transaction, with or without a running bot.

These are operator transactions, like pausing a class or replaying a dead letter, and not commands of the registry: a document is
far larger than a command's payload may be, no effect is enqueued, and exactly the version that was shown is activated. A change
applies as a whole or not at all, and the running bot prices its next command with it.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from ledger import keys
from ledger.keys import dumps, loads
from ledger.records import QUOTEBOT
from quotebot.domain.catalogue.rulesets import Ruleset, RulesetError
from quotebot.store import rulesets as store

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.database import Tx
    from ledger.ledger import Ledger
    from quotebot.store.rulesets import RulesetVersion

_IMPORT_FIRST: Final = "Nothing was imported. Give the import without --activate."
SAMPLE_ORIGIN: Final = "the sample that ships with Quotebot"

Outcome = Literal["applied", "unchanged", "refused", "conflict", "not_found"]


@dataclass(frozen=True, slots=True)
class Who:
    """Actor and request id of a change: the same request id given twice is one change."""

    actor: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Import:
    """Ruleset to import as a draft. `replaces` is a draft to discard with it; `activate` makes it price at once.

    `given` identifies the input if that is not the ruleset itself: the same sheets give another ruleset on another active version.
    """

    ruleset: Ruleset
    origin: str
    note: str | None = None
    replaces: int | None = None
    activate: bool = False
    given: str | None = None


@dataclass(frozen=True, slots=True)
class RulesetAnswer:
    """Result of a request.

    `version` is the one it was about; `text` names the outcome, the reason of a refusal, and the next step.
    """

    outcome: Outcome
    text: str
    version: int | None = None
    repeated: bool = False  # the answer to the first such request


class RulesetChanges:
    """Changes to the ruleset versions of one ledger. Raises NotRecorded or OutcomeUnknown as Database.write does.

    `seen` is the active version at the time the person viewed the difference: of two concurrent changes, the second is refused.
    With `review` the person who imported a draft cannot activate it. A retired version, once activated, needs no second person.
    """

    def __init__(self, ledger: Ledger, *, review: bool = False) -> None:
        self._ledger = ledger
        self._review = review

    async def begin(self, initial: Ruleset) -> None:
        """Store and activate the first version in a ledger without any ruleset."""
        if await self._ledger.database.read(store.newest):
            return
        now = self._ledger.clock.now_ms()

        def work(tx: Tx) -> None:
            if store.newest(tx):
                return
            self._activated(tx, self._insert(tx, Import(initial, SAMPLE_ORIGIN), QUOTEBOT, now), initial, QUOTEBOT, now)

        await self._ledger.database.write("ruleset.begin", work, alone=True)

    async def import_draft(self, asked: Import, who: Who, *, seen: int | None) -> RulesetAnswer:
        """Store a ruleset as the next version. Content that equals an existing version creates no new one."""
        now = self._ledger.clock.now_ms()
        fingerprint = keys.digest(["import", asked.given or asked.ruleset.hash, asked.replaces, asked.activate])

        def change(tx: Tx) -> RulesetAnswer:
            twin = store.of_hash(tx, asked.ruleset.hash)
            if asked.activate and self._review:
                return RulesetAnswer("refused", f"Another person activates what you import (ruleset_review). {_IMPORT_FIRST}")
            refused = _moved_on(tx, seen) or (_no_room(tx, asked) if twin is None else None)
            if refused is not None:
                return refused
            if twin is not None:
                return self._known(tx, twin, asked, who, now)
            replaced = None if asked.replaces is None else store.load(tx, asked.replaces)
            if replaced is not None:
                self._discard(tx, replaced, who.actor, now)
            version = self._insert(tx, asked, who.actor, now)
            if not asked.activate:
                text = f"Version {version} ({asked.ruleset.label}) is a draft; it prices nothing yet. To use it: "
                return RulesetAnswer("applied", f"{text}quotebot catalog activate {version}", version)
            return self._activated(tx, version, asked.ruleset, who.actor, now)

        return await self._ledger.database.write("ruleset.import", lambda tx: _once(tx, who, fingerprint, now, change), alone=True)

    async def activate(self, version: int, who: Who, *, seen: int | None) -> RulesetAnswer:
        """Activate a draft or a retired version; the active one is retired in the same transaction."""
        now = self._ledger.clock.now_ms()
        # Parsing a large document inside the transaction would block others, so it is cached first; errors are reported inside.
        with contextlib.suppress(LookupError, RulesetError):
            await self._ledger.database.read(lambda tx: store.document(tx, version))

        def change(tx: Tx) -> RulesetAnswer:
            found = store.load(tx, version)
            if found is None:
                return _no_such(version)
            if found.state == "active":
                return RulesetAnswer(
                    "unchanged", f"Version {version} ({found.label}) is active already; nothing was changed.", version
                )
            if found.state == "discarded":
                return RulesetAnswer("refused", f"Version {version} was discarded. Nothing was changed. Import it again.", version)
            if self._review and found.state == "draft" and found.imported_by == who.actor:
                return RulesetAnswer(
                    "refused",
                    f"{who.actor} imported version {version} ({found.label}), so another person activates it (ruleset_review). "
                    "Nothing was changed.",
                    version,
                )
            return _moved_on(tx, seen) or self._activate_stored(tx, version, who.actor, now)

        fingerprint = keys.digest(["activate", version])
        return await self._ledger.database.write(
            "ruleset.activate", lambda tx: _once(tx, who, fingerprint, now, change), alone=True
        )

    async def discard(self, version: int, who: Who) -> RulesetAnswer:
        """Discard a draft. Its number is not used again."""
        now = self._ledger.clock.now_ms()

        def change(tx: Tx) -> RulesetAnswer:
            found = store.load(tx, version)
            if found is None:
                return _no_such(version)
            if found.state == "discarded":
                return RulesetAnswer("unchanged", f"Version {version} was discarded before; nothing was changed.", version)
            if found.state != "draft":
                return RulesetAnswer(
                    "refused",
                    f"Version {version} ({found.label}) is {found.state}: quotes may name it. Nothing was changed.",
                    version,
                )
            self._discard(tx, found, who.actor, now)
            return RulesetAnswer("applied", f"Version {version} ({found.label}) is discarded.", version)

        fingerprint = keys.digest(["discard", version])
        return await self._ledger.database.write("ruleset.discard", lambda tx: _once(tx, who, fingerprint, now, change), alone=True)

    def _known(self, tx: Tx, twin: RulesetVersion, asked: Import, who: Who, now: int) -> RulesetAnswer:
        said = f"Version {twin.version} ({twin.label}, {twin.state}) already says exactly this"
        if not asked.activate or twin.state == "active":
            rest = "" if twin.state == "active" else f" To use it: quotebot catalog activate {twin.version}"
            return RulesetAnswer("unchanged", f"{said}; nothing was imported.{rest}", twin.version)
        activated = self._activated(tx, twin.version, asked.ruleset, who.actor, now)
        return replace(activated, text=f"{said}. {activated.text}")

    def _activate_stored(self, tx: Tx, version: int, actor: str, now: int) -> RulesetAnswer:
        try:
            ruleset = store.document(tx, version)  # an unreadable version must never price
        except RulesetError as error:
            return RulesetAnswer(
                "refused",
                f"Version {version} cannot be used by this build: {error.problems[0]}. Nothing was changed. Import it again.",
                version,
            )
        return self._activated(tx, version, ruleset, actor, now)

    def _activated(self, tx: Tx, version: int, ruleset: Ruleset, actor: str, now: int) -> RulesetAnswer:
        retired = store.activate(tx, version, actor=actor, now=now)
        self._audit(tx, now, "ruleset.activated", actor, version=version, label=ruleset.label, hash=ruleset.hash, retired=retired)
        before = "" if retired is None else f" Version {retired} is retired; quotes priced by it keep their prices."
        return RulesetAnswer("applied", f"Version {version} ({ruleset.label}) prices from now on.{before}", version)

    def _insert(self, tx: Tx, asked: Import, actor: str, now: int) -> int:
        version = store.insert(tx, asked.ruleset, origin=asked.origin, note=asked.note, actor=actor, now=now)
        self._audit(tx, now, "ruleset.imported", actor, version=version, label=asked.ruleset.label, hash=asked.ruleset.hash)
        return version

    def _discard(self, tx: Tx, found: RulesetVersion, actor: str, now: int) -> None:
        store.discard(tx, found.version)
        self._audit(tx, now, "ruleset.discarded", actor, version=found.version, label=found.label, hash=found.hash)

    def _audit(self, tx: Tx, now: int, event: str, actor: str, **after: object) -> None:
        kind = "system" if actor == QUOTEBOT else "operator"
        self._ledger.audit.append(tx, now, event, actor=actor, actor_type=kind, after=after)


def _once(tx: Tx, who: Who, fingerprint: str, now: int, change: Callable[[Tx], RulesetAnswer]) -> RulesetAnswer:
    """Make a change unless its request was answered before. A refusal stores nothing, not even the request."""
    earlier = tx.one("ruleset_request", request_id=who.request_id)
    if earlier is not None:
        if earlier["fingerprint"] != fingerprint:
            return RulesetAnswer(
                "conflict", f"Request id {who.request_id} was used for something else. Nothing was changed. Use a fresh one."
            )
        kept: dict[str, Any] = loads(earlier["answer"])
        return RulesetAnswer(**{**kept, "repeated": True})
    answer = change(tx)
    if answer.outcome not in ("applied", "unchanged"):
        return answer
    asked = {"request_id": who.request_id, "fingerprint": fingerprint, "requested_by": who.actor, "requested_at": now}
    tx.one("insert_ruleset_request", **asked, answer=dumps(asdict(answer)))
    return answer


def _moved_on(tx: Tx, seen: int | None) -> RulesetAnswer | None:
    """Refuse a change that was decided on another active version than the present one."""
    active = store.active(tx)
    if active is None or active.version == seen or active.activated_at is None:
        return None
    when = f"{datetime.fromtimestamp(active.activated_at / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
    text = (
        f"{active.activated_by} activated version {active.version} ({active.label}) on {when}, after you looked. "
        "Nothing was changed. Give the command again: it shows what differs now."
    )
    return RulesetAnswer("refused", text, active.version)


def _no_room(tx: Tx, asked: Import) -> RulesetAnswer | None:
    """Refuse to replace a version that is no draft, and a label that other content already has."""
    if asked.replaces is not None:
        replaced = store.load(tx, asked.replaces)
        if replaced is None:
            return _no_such(asked.replaces)
        if replaced.state != "draft":
            return RulesetAnswer(
                "refused",
                f"Version {replaced.version} is {replaced.state}: only a draft can be replaced. Nothing was imported.",
                replaced.version,
            )
    namesake = store.of_label(tx, asked.ruleset.label)
    if namesake is None or namesake.version == asked.replaces:
        return None
    drafted = f", or add --replaces {namesake.version}" if namesake.state == "draft" else ""
    return RulesetAnswer(
        "refused",
        f"Version {namesake.version} is called {namesake.label} too, with another content. Nothing was imported. "
        f"Give this one another name with --as-version{drafted}.",
        namesake.version,
    )


def _no_such(version: int) -> RulesetAnswer:
    return RulesetAnswer(
        "not_found", f"There is no version {version} of the ruleset. Nothing was changed. See: quotebot catalog list"
    )
