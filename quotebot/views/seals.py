"""Seals on the values of buttons and forms whose container leaves no lasting record: ephemeral replies, forms and the Home tab.

A seal is a keyed hash over the person whom the container was made for, the purpose (the action_id of a button, the callback_id of a
form) and the value, which names the quote. A value without its seal, or with that of another person or purpose, is not ours. Every
key of the installation's audit is tried, so a rotated key invalidates no open form.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ledger.keys import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledger.audit.events import Keyring
    from quotebot.views.blocks import Json

TAG: Final = "quotebot/click/1"
MARK: Final = "~"  # between the value and its seal


@dataclass(frozen=True, slots=True)
class Seals:
    """Writer and reader of seals, with the keys of one installation."""

    keyring: Keyring

    def sealed(self, person: str, purpose: str, value: str) -> str:
        """Return a value with its seal; `opened` reads it."""
        return f"{value}{MARK}{_seal(self.keyring.current[1], person, purpose, value)}"

    def opened(self, person: str, purpose: str, text: str) -> str | None:
        """Return a sealed value without its seal, or None if it was not sealed for this person and purpose."""
        value, _, seal = text.rpartition(MARK)
        known = (_seal(key, person, purpose, value) for key in self.keyring.keys.values())
        return value if any(hmac.compare_digest(each.encode(), seal.encode()) for each in known) else None

    def blocks(self, person: str, blocks: Sequence[Json]) -> list[Json]:
        """Return the blocks of a message or view for one person, with a seal on each value of a button or menu."""
        return [self._block(person, block) for block in blocks]

    def view(self, person: str, view: Mapping[str, Any]) -> Json:
        """Return a form for one person with sealed metadata; a view without a callback_id is only shown, and returned unchanged."""
        callback_id, carried = view.get("callback_id"), view.get("private_metadata")
        if not callback_id or carried is None:
            return dict(view)
        return {**view, "private_metadata": self.sealed(person, callback_id, carried)}

    def _block(self, person: str, block: Json) -> Json:
        if block["type"] == "actions":
            return {**block, "elements": [self._element(person, element) for element in block["elements"]]}
        return {**block, "accessory": self._element(person, block["accessory"])} if "accessory" in block else block

    def _element(self, person: str, element: Json) -> Json:
        purpose = element.get("action_id", "")
        if "value" in element:
            return {**element, "value": self.sealed(person, purpose, element["value"])}
        options = [{**option, "value": self.sealed(person, purpose, option["value"])} for option in element.get("options", ())]
        chosen = next(
            (new for new, old in zip(options, element.get("options", ()), strict=True) if old == element.get("initial_option")),
            None,
        )
        return {**element, "options": options, **({} if chosen is None else {"initial_option": chosen})} if options else element


def _seal(key: bytes, person: str, purpose: str, value: str) -> str:
    """Return 80 bits of the keyed hash, as 20 hex digits."""
    return hmac.digest(key, dumps([TAG, person, purpose, value]).encode(), "sha256").hex()[:20]
