"""The OAuth endpoints: tokens by client credentials, by a signed assertion (JWT bearer) or by a password; identity; revocation."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import math
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from quotebot.sandbox.salesforce.org import ORG_ID, RUNNING_USER
from quotebot.sandbox.salesforce.rest import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quotebot.sandbox.chance import Tokens
    from quotebot.sandbox.wire import Received

CLIENT_ID = "3MVG9-sandbox-quotebot"
CLIENT_SECRET = "sandbox-secret"
USERNAME = "integration@quotebot-sandbox.example"
PASSWORD = "sandbox-password"
MY_DOMAIN = "quotebot-sandbox.my.salesforce.com"
JWT_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_PATH = "/services/oauth2/token"
_REVOKE_PATH = "/services/oauth2/revoke"
_IDENTITY = re.compile(r"/id/\w+/\w+|/services/oauth2/userinfo")
_EVERYBODYS = ("login.salesforce.com", "test.salesforce.com")
_ASSERTION_SECONDS_MAX = 300  # how far in the future an assertion may expire
_ASSERTION_PARTS = 3
_SOAP_FAULT = """<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:sf="urn:fault.partner.soap.sforce.com">
<soapenv:Body><soapenv:Fault><faultcode>sf:INVALID_OPERATION</faultcode>
<faultstring>INVALID_OPERATION: SOAP API login() is disabled by default in this org.</faultstring>
<detail><sf:UnexpectedErrorFault><sf:exceptionCode>INVALID_OPERATION</sf:exceptionCode>
<sf:exceptionMessage>SOAP API login() is disabled by default in this org.</sf:exceptionMessage></sf:UnexpectedErrorFault></detail>
</soapenv:Fault></soapenv:Body></soapenv:Envelope>"""


class Login:
    """Issues tokens and tracks the valid ones."""

    def __init__(self, now: Callable[[], float], tokens: Tokens) -> None:
        self._now = now
        self._random = tokens
        self._tokens: set[str] = set()
        self._certificate: RSAPublicKey | None = None

    def upload_certificate(self, pem: bytes) -> None:
        """Store the certificate for assertions: an RSA certificate or public key. Raises ValueError for anything else."""
        loaded = x509.load_pem_x509_certificate(pem).public_key() if b"BEGIN CERTIFICATE" in pem else load_pem_public_key(pem)
        if not isinstance(loaded, RSAPublicKey):
            raise ValueError("assertions are signed with RS256: the certificate's key must be an RSA key")  # noqa: TRY004 -- a wrong file
        self._certificate = loaded

    def accepts(self, authorization: str | None) -> bool:
        """Tell whether an Authorization header carries a valid token."""
        scheme, _, token = (authorization or "").partition(" ")
        return scheme.lower() in ("bearer", "oauth") and token.strip() in self._tokens

    def expire_all(self) -> None:
        """Invalidate every session."""
        self._tokens.clear()

    def serve(self, received: Received) -> Reply | None:
        """Answer a request to one of these endpoints; None for any other."""
        authorization = received.header("Authorization")
        if received.path.startswith("/services/Soap/"):
            # A new org's answer to the SOAP login.
            return Reply(500, _SOAP_FAULT.encode(), headers={"Content-Type": "text/xml;charset=UTF-8"})
        if _IDENTITY.fullmatch(received.path):
            return self.identity(authorization, received.origin)
        if received.verb != "POST" or received.path not in (TOKEN_PATH, _REVOKE_PATH):
            return None
        form = received.body.decode("utf-8", "replace")
        return self.revoke(form) if received.path == _REVOKE_PATH else self.token(form, authorization, received.origin)

    def token(self, form: str, authorization: str | None, base_url: str) -> Reply:
        """Answer one token request; `base_url` is the address that the client used."""
        fields = dict(parse_qsl(form))
        grant = fields.get("grant_type")
        if grant == JWT_GRANT:
            refusal = self._refused_assertion(fields.get("assertion", ""), base_url)
        elif grant in ("client_credentials", "password"):
            refusal = _refused_client(fields, authorization)
        else:
            refusal = refused("unsupported_grant_type", "grant type not supported")
        return refusal or Reply(200, self._issued(base_url))

    def revoke(self, form: str) -> Reply:
        """Answer one revocation."""
        token = dict(parse_qsl(form)).get("token", "")
        if token not in self._tokens:
            return refused("unsupported_token_type", "this token type is not supported")
        self._tokens.discard(token)
        return Reply(200)

    def identity(self, authorization: str | None, base_url: str) -> Reply:
        """Answer with the caller's identity."""
        if not self.accepts(authorization):
            return Reply(403, b"Bad_OAuth_Token")
        return Reply(
            200,
            {
                "id": f"{base_url}/id/{ORG_ID}/{RUNNING_USER}",
                "asserted_user": True,
                "user_id": RUNNING_USER,
                "organization_id": ORG_ID,
                "username": USERNAME,
                "display_name": "Integration",
                "email": USERNAME,
                "active": True,
                "user_type": "STANDARD",
                "language": "en_US",
                "locale": "en_US",
                "urls": {
                    "rest": f"{base_url}/services/data/v{{version}}/",
                    "query": f"{base_url}/services/data/v{{version}}/query/",
                },
            },
        )

    def _issued(self, base_url: str) -> dict[str, object]:
        token = f"{ORG_ID[:15]}!{self._random.urlsafe(48)}"
        self._tokens.add(token)
        instance = f"https://{MY_DOMAIN}" if urlsplit(base_url).hostname in _EVERYBODYS else base_url
        return {
            "access_token": token,
            "signature": self._random.urlsafe(32),
            "scope": "api",
            "instance_url": instance,
            "id": f"{base_url}/id/{ORG_ID}/{RUNNING_USER}",
            "token_type": "Bearer",
            "issued_at": str(int(self._now() * 1000)),
        }

    def _refused_assertion(self, assertion: str, base_url: str) -> Reply | None:
        """Return the refusal of an assertion, in the order of Salesforce's checks; None if it is valid."""
        claims = self._claims(assertion)
        if claims is None:
            return refused("invalid_grant", "invalid assertion")
        audiences = [f"https://{host}" for host in (*_EVERYBODYS, MY_DOMAIN)]
        if not base_url.endswith(".salesforce.com"):
            audiences.append(base_url)  # reached without the tunnel, the loopback address is its My Domain
        try:
            left = float(claims.get("exp", "nan")) - self._now()
        except (TypeError, ValueError):
            left = math.nan
        for holds, error, description in (
            (claims.get("iss") == CLIENT_ID, "invalid_client_id", "client identifier invalid"),
            (self._signed(assertion), "invalid_grant", "invalid assertion"),
            (claims.get("aud") in audiences, "invalid_grant", "audience is invalid"),
            (left > 0, "invalid_grant", "expired authorization code"),
            (left <= _ASSERTION_SECONDS_MAX, "invalid_grant", "invalid assertion"),
            (claims.get("sub") == USERNAME, "invalid_grant", "user hasn't approved this consumer"),
        ):
            if not holds:
                return refused(error, description)
        return None

    def _claims(self, assertion: str) -> dict[str, Any] | None:
        parts = assertion.split(".")
        if len(parts) != _ASSERTION_PARTS:
            return None
        try:
            header, claims = (json.loads(_unpadded(part)) for part in parts[:2])
        except ValueError:
            return None
        return claims if isinstance(header, dict) and header.get("alg") == "RS256" and isinstance(claims, dict) else None

    def _signed(self, assertion: str) -> bool:
        signed, _, signature = assertion.rpartition(".")
        if self._certificate is None:
            return False
        try:
            self._certificate.verify(_unpadded(signature), signed.encode(), PKCS1v15(), hashes.SHA256())
        except (InvalidSignature, ValueError):
            return False
        return True


def refused(error: str, description: str, status: int = 400) -> Reply:
    """Return an OAuth refusal."""
    return Reply(status, {"error": error, "error_description": description})


def _refused_client(fields: Mapping[str, str], authorization: str | None) -> Reply | None:
    client_id, secret = _credentials(fields, authorization)
    if not hmac.compare_digest(client_id.encode(), CLIENT_ID.encode()):
        return refused("invalid_client_id", "client identifier invalid")
    if not hmac.compare_digest(secret.encode(), CLIENT_SECRET.encode()):
        return refused("invalid_client", "invalid client credentials")
    person = fields.get("username"), fields.get("password")
    if fields["grant_type"] == "password" and person != (USERNAME, PASSWORD):
        return refused("invalid_grant", "authentication failure")
    return None


def _credentials(fields: Mapping[str, str], authorization: str | None) -> tuple[str, str]:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return fields.get("client_id", ""), fields.get("client_secret", "")
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return client_id, secret


def _unpadded(part: str) -> bytes:
    """Decode base64url without padding. Raises ValueError."""
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
