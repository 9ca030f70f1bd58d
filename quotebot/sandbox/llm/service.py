"""The LLM stand-in's service: the OpenAI protocol, faults and the request log."""

from __future__ import annotations

import hmac
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aiohttp import web

from quotebot.sandbox.llm.rules import in_words, understand
from quotebot.sandbox.llm.shape import natural, shaped
from quotebot.sandbox.serving import serving
from quotebot.sandbox.wire import Answer, Cut, json_answer, text_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quotebot.sandbox.faults import ArmedFaults, Fault
    from quotebot.sandbox.request_log import Witness
    from quotebot.sandbox.wire import Received

API_KEY = "sk-sandbox"
MODEL = "sandbox-rules-1"
_FINGERPRINT = "fixed-rules-not-a-model"
_METHOD = "chat.completions"
_EFFECTS = frozenset(
    {"429", "5xx", "slow", "reset_before", "reset_after", "malformed", "drip", "refused", "refused_after", "auth_expired"}
)
_BROKEN = '{"account": 42, "lines": "all of them", "term_months": '  # cut short and of the wrong types
_WORD_CHARACTERS = 4  # a token is about that long


class LlmService:
    """Answers chat completions by rules. Faults: target `llm`, method `chat.completions`; `malformed` breaks the content."""

    def __init__(self, witness: Witness, weather: ArmedFaults, *, now: Callable[[], float] = time.time) -> None:
        self._witness = witness
        self._now = now
        self._weather = weather
        self._count = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the routes under /v1."""
        answer = serving(self)
        return [web.get("/v1/models", answer), web.post("/v1/chat/completions", answer)]

    def environment(self, base_url: str) -> dict[str, str]:
        """Return the settings that make the bot connect here; `base_url` is the server's, without a path."""
        return {"QUOTEBOT_LLM_BASE_URL": f"{base_url}/v1", "QUOTEBOT_LLM_API_KEY": API_KEY, "QUOTEBOT_LLM_MODEL": MODEL}

    def delay(self, received: Received) -> float:
        """Return for how many seconds this request is delayed."""
        return self._weather.delay("llm", _METHOD, only=_EFFECTS) if received.path.endswith("/completions") else 0.0

    def receive(self, received: Received, *, waited: bool = False) -> Answer:
        """Answer one request. Raises Cut."""
        match received.verb, received.segments:
            case "GET", ["v1", "models"]:
                return _models(received)
            case "POST", ["v1", "chat", "completions"]:
                return self._completions(received, waited=waited)
        return text_answer("404: Not Found", 404)

    def _completions(self, received: Received, *, waited: bool) -> Answer:
        fault = None if waited else self._weather.take("llm", _METHOD, only=_EFFECTS - {"slow"})
        effect = fault.effect if fault is not None else None
        if effect == "reset_before":
            self._record(received, applied=False, status=None)
            raise Cut
        answer = _refused_by(fault) if fault is not None else None
        if answer is None:
            answer = self._answer(received, broken=effect == "malformed")
        applied = answer.status == 200  # noqa: PLR2004 -- HTTP: OK
        if effect == "reset_after":
            self._record(received, applied=applied, status=None)
            raise Cut
        if fault is not None and effect == "refused_after":
            answer = _error(500, "The server had an error.", "server_error", fault.code or "server_error")
        self._record(received, applied=applied, status=answer.status)
        return replace(answer, drip_seconds=fault.delay) if fault is not None and effect == "drip" else answer

    def _answer(self, received: Received, *, broken: bool) -> Answer:
        if not _authorised(received):
            return _key_refused()
        try:
            asked = json.loads(received.body)
            text = _last_user_text(asked["messages"])
            content = _BROKEN if broken else _content(text, asked.get("response_format") or {})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return _error(400, "The request is not a chat completion request.", "invalid_request_error", "invalid_request")
        if asked.get("model") != MODEL:
            return _error(404, f"No such model; the only one here is {MODEL}.", "invalid_request_error", "model_not_found")
        if asked.get("stream"):
            return _error(400, "Streaming is not offered here.", "invalid_request_error", "unsupported_value")
        self._count += 1
        return json_answer(_completion(self._count, int(self._now()), text, content))

    def _record(self, received: Received, *, applied: bool, status: int | None) -> None:
        key = received.header("Idempotency-Key") or None
        self._witness.record("llm", _METHOD, key=key, applied=applied, status=status, request=received.body)


def _models(received: Received) -> Answer:
    if not _authorised(received):
        return _key_refused()
    model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "sandbox (fixed rules, not a model)"}
    return json_answer({"object": "list", "data": [model]})


def _completion(number: int, created: int, text: str, content: str) -> dict[str, object]:
    prompt, answer = len(text) // _WORD_CHARACTERS + 1, len(content) // _WORD_CHARACTERS + 1
    return {
        "id": f"chatcmpl-sandbox-{number}",
        "object": "chat.completion",
        "created": created,
        "model": MODEL,
        "system_fingerprint": _FINGERPRINT,
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "logprobs": None,
                "message": {"role": "assistant", "content": content, "refusal": None},
            }
        ],
        "usage": {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer},
    }


def _content(text: str, wanted: Mapping[str, Any]) -> str:
    facts = understand(text)
    if wanted.get("type") == "json_schema":
        return json.dumps(shaped(facts, wanted["json_schema"]["schema"], text))
    if wanted.get("type") == "json_object":
        return json.dumps(natural(facts))
    return in_words(facts)


def _last_user_text(messages: list[Mapping[str, Any]]) -> str:
    """Return the text of the last user message, given as text or as parts. Raises KeyError if there is none."""
    for message in reversed(messages):
        if message["role"] != "user":
            continue
        content = message["content"]
        if isinstance(content, str):
            return content
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    raise KeyError("user")


def _refused_by(fault: Fault) -> Answer | None:
    if fault.effect == "429":
        headers = {"Retry-After": str(1 if fault.retry_after is None else fault.retry_after)}
        return _error(429, "Rate limit reached.", "requests", "rate_limit_exceeded", headers)
    if fault.effect == "5xx":
        return _error(int(fault.code or 503), "The server is overloaded.", "server_error", "server_error")
    if fault.effect == "refused":
        return _error(400, "The request was refused.", "invalid_request_error", fault.code or "server_error")
    return _key_refused() if fault.effect == "auth_expired" else None


def _error(status: int, message: str, kind: str, code: str, headers: Mapping[str, str] | None = None) -> Answer:
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return json_answer(body, status, headers)


def _key_refused() -> Answer:
    return _error(401, "Incorrect API key provided.", "invalid_request_error", "invalid_api_key")


def _authorised(received: Received) -> bool:
    given = received.header("Authorization")
    return hmac.compare_digest(given.encode(), f"Bearer {API_KEY}".encode())
