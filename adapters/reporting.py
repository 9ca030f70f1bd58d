"""HTTP session for reports to watchers: no redirects, no retries, bounded answers."""

from __future__ import annotations

import io
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter

ANSWER_BYTES_MAX: Final = 64 * 1024
_CHUNK_BYTES: Final = 16 * 1024


class _Adapter(HTTPAdapter):
    """Transport adapter that sends once, treats a redirect as a failed connection and reads answers up to the limit."""

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send a request and read its answer."""
        kwargs["stream"] = True
        response = super().send(request, *args, **kwargs)
        if response.is_redirect:
            response.close()
            raise requests.ConnectionError("a redirect is not followed")
        content = bytearray()
        for chunk in response.raw.stream(_CHUNK_BYTES, decode_content=True):
            content += chunk
            if len(content) > ANSWER_BYTES_MAX:
                response.close()
                raise requests.ConnectionError("the answer is too large")
        response.raw.release_conn()
        response.raw = io.BytesIO(bytes(content))
        return response


class _Session(requests.Session):
    """Session that follows no redirects."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Return None for every answer, so that no redirect is followed."""
        del resp
        return None


def reporting_session() -> requests.Session:
    """Return a session for reports."""
    session = _Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, _Adapter(max_retries=0))
    return session
