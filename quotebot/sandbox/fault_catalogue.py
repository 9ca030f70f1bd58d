"""Catalogue of the local world's faults, in words: every pair of target and effect that the control API accepts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from quotebot.sandbox.faults import Effect, Target


@dataclass(frozen=True, slots=True)
class Kind:
    """One fault that can be armed. It applies to `requests` one by one, once and `now`, or for a time (`lasting`)."""

    target: Target
    effect: Effect
    name: str
    about: str
    strikes: Literal["requests", "now", "lasting"] = "requests"


_HTTP: tuple[tuple[Effect, str, str], ...] = (
    ("5xx", "Out of order", "{0} answers 503 and does nothing."),
    ("429", "Too many requests", "{0} answers 429 and says how long to wait; nothing is done."),
    ("slow", "Slow", "{0} holds each request for five seconds, then serves it."),
    ("reset_before", "Cut before", "The connection is cut before {0} has done anything."),
    ("reset_after", "Cut after", "{0} does what was asked, then the connection is cut: nobody hears that it worked."),
    ("malformed", "Unreadable answer", "{0} does what was asked and answers something that cannot be read."),
    ("drip", "Dripping", "{0} does what was asked and answers one byte every five seconds."),
    ("refused", "Refused by an error code", "{0} refuses with an error code of its own, as for a trouble that passes."),
    ("refused_after", "Broken after", "{0} does what was asked and answers that something broke."),
    ("auth_expired", "Login expired", "{0} refuses the credentials. The bot holds this class of work until somebody resumes it."),
)
_SYSTEMS: tuple[tuple[Target, str], ...] = (("salesforce", "Salesforce"), ("slack", "Slack"), ("llm", "The language model"))

KINDS: tuple[Kind, ...] = (
    *(Kind(target, effect, name, about.format(system)) for target, system in _SYSTEMS for effect, name, about in _HTTP),
    Kind("socket", "drop_ack", "Lost acknowledgement", "The bot's acknowledgement never arrives: the person sees a failure."),
    Kind(
        "socket",
        "delay_ack",
        "Late acknowledgement",
        "The acknowledgement arrives five seconds late: the person sees a failure.",
    ),
    Kind("socket", "out_of_order", "Out of order", "An envelope is overtaken by the next one, or comes five seconds late."),
    Kind("socket", "refuse_ticket", "Refused ticket", "The next connection is refused at the door, as with a ticket used twice."),
    Kind("socket", "too_many_websockets", "No place left", "The next connection is sent away: ten are open already."),
    Kind("socket", "no_hello", "No greeting", "The next connection is accepted and then nothing comes over it."),
    Kind("socket", "disconnect", "Disconnect", "Every live connection is closed, as when Slack moves its servers.", "now"),
    Kind("socket", "reset", "Reset", "Every live connection is reset, as when a router forgets it.", "now"),
    Kind(
        "socket",
        "half_open",
        "Half open",
        "The connections of this moment stay up and go mute: nothing comes through, and no error says so.",
        "lasting",
    ),
)


# Methods that a fault may be narrowed to: the bot's most frequent calls. Any other method can be typed.
METHODS: dict[Target, tuple[str, ...]] = {
    "slack": (
        *("chat.postMessage", "chat.update", "chat.postEphemeral", "response_url", "files.getUploadURLExternal", "upload"),
        *(
            "files.completeUploadExternal",
            "files.info",
            "conversations.replies",
            "conversations.history",
            "views.open",
            "views.publish",
        ),
    ),
    "salesforce": ("oauth2/token", "composite/graph", "query"),
    "llm": ("chat.completions",),
    "socket": ("slash_commands", "interactive", "events_api", "link"),
}


def known() -> dict[str, object]:
    """Return the catalogue, JSON-ready: `kinds` and, for each target, `methods`."""
    return {"kinds": [asdict(kind) for kind in KINDS], "methods": {target: list(names) for target, names in METHODS.items()}}
