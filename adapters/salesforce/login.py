"""OAuth logins at Salesforce: client credentials, or a signed assertion (JWT bearer). Neither sends a password.

This module builds one token request; adapters/salesforce/calls.py sends it.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ASSERTION_SECONDS = 180  # Salesforce rejects assertions valid for more than about three minutes
KEY_BITS_MIN = 2048
_JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class KeyUnusableError(ValueError):
    """The private key cannot be used for signing; the message gives the reason and never contains the key."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Form fields and headers of a request to /services/oauth2/token. Both hold secrets."""

    form: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Consumer key and secret of the connected app; Salesforce runs as the user that the app names."""

    client_id: str
    client_secret: str = field(repr=False)

    def request(self) -> TokenRequest:
        """Return the token request with HTTP Basic authentication, so that the form does not contain the secret."""
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode("ascii")
        return TokenRequest({"grant_type": "client_credentials"}, {"Authorization": f"Basic {basic}"})


@dataclass(frozen=True, slots=True)
class JwtBearer:
    """User name and an assertion signed with the private key whose certificate the connected app holds. No secret is sent.

    `private_key` is PEM text of an RSA key without a passphrase; `audience` is https://login.salesforce.com, for a sandbox org
    https://test.salesforce.com; `now` returns Unix seconds: the assertion expires ASSERTION_SECONDS later.
    """

    client_id: str
    username: str
    private_key: str = field(repr=False)
    audience: str = "https://login.salesforce.com"
    now: Callable[[], float] = field(repr=False, default=time.time)

    def request(self) -> TokenRequest:
        """Return the token request with a fresh assertion. Raises KeyUnusableError."""
        claims = {
            "iss": self.client_id,
            "sub": self.username,
            "aud": self.audience,
            "exp": int(self.now()) + ASSERTION_SECONDS,
        }
        return TokenRequest({"grant_type": _JWT_GRANT, "assertion": signed(claims, self.private_key)})


Credentials = ClientCredentials | JwtBearer  # `request` builds the token request of one login; it runs in a worker thread


def signed(claims: Mapping[str, object], private_key: str) -> str:
    """Return the claims as a JWT signed with RS256, the only algorithm Salesforce accepts. Raises KeyUnusableError."""
    try:
        key = load_pem_private_key(private_key.strip().encode(), password=None)
    except (ValueError, TypeError) as error:  # TypeError: it has a passphrase
        raise KeyUnusableError("the private key is not a PEM key without a passphrase") from error
    if not isinstance(key, RSAPrivateKey) or key.key_size < KEY_BITS_MIN:
        raise KeyUnusableError(f"the private key is not an RSA key of at least {KEY_BITS_MIN} bits")
    parts = [_part({"alg": "RS256", "typ": "JWT"}), _part(claims)]
    signature = key.sign(".".join(parts).encode(), PKCS1v15(), SHA256())
    return ".".join((*parts, _base64url(signature)))


def _part(content: Mapping[str, object]) -> str:
    return _base64url(json.dumps(content, separators=(",", ":")).encode())


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")
