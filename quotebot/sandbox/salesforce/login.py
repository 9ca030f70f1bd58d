"""The token endpoint: client credentials only, as a form body or HTTP Basic."""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from quotebot.sandbox.salesforce.rest import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quotebot.sandbox.chance import Tokens

CLIENT_ID = "3MVG9-sandbox-quotebot"
CLIENT_SECRET = "sandbox-secret"
_ORG_ID = "00DSB0000000001AAA"
_BAD_REQUEST = 400


class Login:
    """Issues tokens and remembers which are good."""

    def __init__(self, now: Callable[[], float], tokens: Tokens) -> None:
        self._now = now
        self._random = tokens
        self._tokens: set[str] = set()

    def accepts(self, authorization: str | None) -> bool:
        """Tell whether an Authorization header carries a token that is still good."""
        scheme, _, token = (authorization or "").partition(" ")
        return scheme.lower() in ("bearer", "oauth") and token.strip() in self._tokens

    def expire_all(self) -> None:
        """End every session."""
        self._tokens.clear()

    def token(self, form: str, authorization: str | None, base_url: str) -> Reply:
        """Answer one token request; `base_url` is where the client found us."""
        fields = dict(parse_qsl(form))
        if fields.get("grant_type") != "client_credentials":
            return refused("unsupported_grant_type", "grant type not supported")
        client_id, secret = _credentials(fields, authorization)
        if not hmac.compare_digest(client_id.encode(), CLIENT_ID.encode()):
            return refused("invalid_client_id", "client identifier invalid")
        if not hmac.compare_digest(secret.encode(), CLIENT_SECRET.encode()):
            return refused("invalid_client", "invalid client credentials")
        token = f"00DSB0000000001!{self._random.urlsafe(48)}"
        self._tokens.add(token)
        body = {
            "access_token": token,
            "signature": self._random.urlsafe(32),
            "scope": "api",
            "instance_url": base_url,
            "id": f"{base_url}/id/{_ORG_ID}/005SB0000000001AAA",
            "token_type": "Bearer",
            "issued_at": str(int(self._now() * 1000)),
        }
        return Reply(200, body)


def refused(error: str, description: str) -> Reply:
    """Return an OAuth refusal."""
    return Reply(_BAD_REQUEST, {"error": error, "error_description": description})


def _credentials(fields: Mapping[str, str], authorization: str | None) -> tuple[str, str]:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return fields.get("client_id", ""), fields.get("client_secret", "")
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return client_id, secret
