"""An OpenAI-compatible endpoint that answers by fixed rules. It is not a model and says so in every answer.

Its parser finds quantities with words, an account after "for", a term in months and a discount. The answer has the shape of the
requested schema, so that a change of the schema changes the answer.
"""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from quotebot.sandbox.faults import ArmedFaults, Fault, Outages, Served
from quotebot.sandbox.serving import serving
from quotebot.sandbox.wire import Answer, Received, json_answer, text_answer

if TYPE_CHECKING:
    from quotebot.sandbox.request_log import Witness

API_KEY = "sk-sandbox"
MODEL = "sandbox-rules-1"
_FINGERPRINT = "fixed-rules-not-a-model"
_METHOD = "chat.completions"
_BROKEN = '{"account": 42, "lines": "all of them", "term_months": '  # cut short and of the wrong types
_WORD_CHARACTERS = 4  # a token is about that long
_PAIR = re.compile(r"(?<![\w.,$])(\d{1,3}(?:,\d{3})+|\d{1,9})\s+(?:x\s+)?([A-Za-z][\w-]{0,60})")
_TERM = re.compile(r"(?<![\w.])(\d{1,4})[\s-]+(month|year)s?\b", re.IGNORECASE)
_DISCOUNT = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,4})?)\s?(?:%|percent\b)", re.IGNORECASE)
_ACCOUNT = re.compile(r"\b[Ff]or\s+([A-Z][\w&'-]{0,60}(?:\s[A-Z][\w&'-]{0,60}){0,4})")
_CURRENCY = re.compile(r"\b(USD|EUR|GBP|CHF|JPY)\b")
_MONTHS_A_YEAR = 12
_NOT_PRODUCTS = frozenset({"month", "months", "year", "years", "percent", "off", "discount", "of", "for", "at", "and", "with"})
_DEPTH_MAX = 12
Schema = Mapping[str, Any]


class LlmService:
    """Answers chat completions by rules. Faults: target `llm`, method `chat.completions`; `malformed` breaks the content."""

    def __init__(self, witness: Witness, weather: ArmedFaults, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._outages = Outages("llm", weather, witness)
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
        return self._outages.delay(_METHOD) if received.path.endswith("/completions") else 0.0

    def receive(self, received: Received, *, waited: bool = False) -> Answer:
        """Answer one request. Raises Cut."""
        match received.verb, received.segments:
            case "GET", ["v1", "models"]:
                return _models(received)
            case "POST", ["v1", "chat", "completions"]:
                return self._completions(received, waited=waited)
        return text_answer("404: Not Found", 404)

    def _completions(self, received: Received, *, waited: bool) -> Answer:
        key = received.header("Idempotency-Key") or None

        def apply(fault: Fault | None) -> Served:
            answer = None if fault is None else _refused_by(fault)
            if answer is None:
                answer = self._answer(received, broken=fault is not None and fault.effect == "malformed")
            applied = answer.status == 200  # noqa: PLR2004 -- HTTP: OK
            if fault is not None and fault.effect == "refused_after":
                answer = _error(500, "The server had an error.", "server_error", fault.code or "server_error")
            return Served(answer, applied, answer.status, key)

        return self._outages.serve(_METHOD, received.body, key, apply, waited=waited)

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
        lines = [{"product": line.product, "quantity": line.quantity} for line in facts.lines]
        natural = {"account": facts.account, "lines": lines, "term_months": facts.term_months}
        return json.dumps({**natural, "discount_percent": facts.discount, "currency": facts.currency})
    return _in_words(facts)


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


@dataclass(frozen=True, slots=True)
class Line:
    """One "<number> <word>" pair; `excerpt` is the text it was read from."""

    quantity: int
    product: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Values found in a message; None for those that are missing. `discount` is a percentage as text, never a float."""

    account: str | None
    lines: tuple[Line, ...]
    term_months: int | None
    discount: str | None
    currency: str | None


def understand(text: str) -> Facts:
    """Parse one message. Never raises; takes linear time."""
    term = _TERM.search(text)
    discount = _DISCOUNT.search(text)
    account = _ACCOUNT.search(text)
    currency = _CURRENCY.search(text)
    lines = tuple(
        Line(int(match.group(1).replace(",", "")), match.group(2), match.group())
        for match in _PAIR.finditer(text)
        if match.group(2).lower() not in _NOT_PRODUCTS
    )
    months = None
    if term is not None:
        months = int(term.group(1)) * (_MONTHS_A_YEAR if term.group(2).lower() == "year" else 1)
    return Facts(
        account=account.group(1) if account else None,
        lines=lines,
        term_months=months,
        discount=discount.group(1) if discount else None,
        currency=currency.group(1) if currency else None,
    )


def _in_words(facts: Facts) -> str:
    """Return one plain sentence, for requests that ask for no structure."""
    lines = ", ".join(f"{line.quantity} {line.product}" for line in facts.lines) or "no products"
    term = f", {facts.term_months} months" if facts.term_months is not None else ""
    discount = f", {facts.discount}% discount" if facts.discount is not None else ""
    return f"{lines} for {facts.account or 'an unnamed account'}{term}{discount}."


def shaped(facts: Facts, schema: Schema, excerpt: str) -> Any:
    """Return the JSON value for `schema`. A property is recognized by its name; an unknown value is null, or empty if required."""
    return _Shaper(schema).value(schema, _known(facts, excerpt), 0)


def _known(facts: Facts, excerpt: str) -> dict[str, Any]:
    """Return the known values by the words that a property's name may contain, the most specific words first."""
    return {
        "line": [_known_line(line) for line in facts.lines],
        "item": [_known_line(line) for line in facts.lines],
        "product": [_known_line(line) for line in facts.lines],
        "account": facts.account,
        "customer": facts.account,
        "company": facts.account,
        "discount": facts.discount,
        "term_unit": "months" if facts.term_months is not None else None,
        "term": facts.term_months,
        "month": facts.term_months,
        "currency": facts.currency,
        "summary": excerpt.partition("\n")[0][:200],
        "excerpt": excerpt[:200],
        "quantity": facts.lines[0].quantity if facts.lines else None,
        "sku": facts.lines[0].product if facts.lines else None,
    }


def _known_line(line: Line) -> dict[str, Any]:
    return {
        "discount": None,  # of the line alone: the stand-in finds none
        "quantity": line.quantity,
        "qty": line.quantity,
        "count": line.quantity,
        "seats": line.quantity,
        "excerpt": line.excerpt,
        "raw": line.excerpt,
        "sku": line.product,
        "product": line.product,
        "name": line.product,
        "description": line.product,
    }


class _Shaper:
    """Walks one schema; `$ref` is looked up in its `$defs`."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def value(self, schema: Schema, known: Any, depth: int) -> Any:
        """Return a value for `schema` from the values that are known for it."""
        schema, nullable = self._resolved(schema)
        if depth > _DEPTH_MAX:
            return None
        kind = schema.get("type")
        if kind == "object" or "properties" in schema:
            inner = known if isinstance(known, dict) else {}
            parts = schema.get("properties", {})
            return {name: self.value(part, _look_up(inner, name), depth + 1) for name, part in parts.items()}
        if kind == "array":
            items = known if isinstance(known, list) else []
            return [self.value(schema.get("items", {}), item, depth + 1) for item in items]
        if isinstance(known, list | dict) or known is None:
            return None if nullable else _empty(schema)
        return _scalar(schema, known)

    def _resolved(self, schema: Schema) -> tuple[Schema, bool]:
        """Resolve references and unions to one plain schema; tell whether null is allowed on the way."""
        nullable = False
        for _ in range(_DEPTH_MAX):
            if "$ref" in schema:
                schema = self._root.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {})
                continue
            options = schema.get("anyOf") or schema.get("oneOf")
            if options:
                nullable = nullable or any(option.get("type") == "null" for option in options)
                plain = [option for option in options if option.get("type") != "null"]
                # An amount that may be a number or text becomes text.
                schema = next((option for option in plain if option.get("type") == "string"), plain[0] if plain else {})
                continue
            break
        kind = schema.get("type")
        if isinstance(kind, list):
            plain = [name for name in kind if name != "null"]
            return {**schema, "type": plain[0] if plain else "null"}, nullable or "null" in kind
        return schema, nullable or kind == "null"


def _look_up(known: Mapping[str, Any], name: str) -> Any:
    lowered = name.lower()
    if lowered in known:
        return known[lowered]
    return next((value for word, value in known.items() if word in lowered), None)


def _empty(schema: Schema) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    return {"string": "", "integer": 0, "number": 0, "boolean": False}.get(str(schema.get("type")))


def _scalar(schema: Schema, known: str | float) -> Any:
    choices = schema.get("enum")
    if choices:
        return next((choice for choice in choices if str(choice).lower() == str(known).lower()), choices[0])
    text = str(known)
    kind = schema.get("type")
    if kind == "integer":
        whole = text.partition(".")[0]
        return int(whole) if whole.isdecimal() else 0
    if kind == "number":
        return float(text) if text.replace(".", "", 1).isdecimal() else 0
    if kind == "boolean":
        return bool(known)
    return text
