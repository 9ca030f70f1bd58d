"""Restricted Slack Web API client: one request per call, no redirects, bounded answers, no retries."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from adapters.egress import bounded_body, closed_session


class BoundedWebClient(AsyncWebClient):
    """slack_sdk's client with its `_request` replaced; the client sends every request through it.

    An answer that is not a JSON object counts as an empty one, which the client refuses like `ok: false`.
    """

    async def _request(self, *, http_verb: str, api_url: str, req_args: dict[str, Any]) -> dict[str, Any]:
        if self.session is not None and not self.session.closed:
            return await _exchange(self.session, http_verb, api_url, req_args)
        async with closed_session(timeout=aiohttp.ClientTimeout(total=self.timeout)) as session:
            return await _exchange(session, http_verb, api_url, req_args)

    async def _upload_file(self, **_: Any) -> Any:
        raise NotImplementedError("files are uploaded by adapters/slack/api.py, which checks the address first")


async def _exchange(session: aiohttp.ClientSession, verb: str, url: str, arguments: dict[str, Any]) -> dict[str, Any]:
    headers = {**(arguments.get("headers") or {}), "Accept-Encoding": "gzip, deflate"}
    given = {**arguments, "headers": headers}
    async with session.request(verb, url, allow_redirects=False, auto_decompress=False, **given) as response:
        content = await bounded_body(response)
    return {"data": _object(content), "headers": response.headers, "status_code": response.status}


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
