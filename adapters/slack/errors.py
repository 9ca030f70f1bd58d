"""Error tables of Slack: error codes and HTTP statuses mapped to our failures."""

from __future__ import annotations

import re
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING

from adapters.failures import AdapterError, Failure
from adapters.http import asked_wait_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

CODE = re.compile(r"[a-z0-9_.\-]{1,64}")  # any other value is not a code and is never shown

# Failure of each of Slack's error codes. An unknown code is a permanent refusal: VALIDATION.
CODES: Mapping[Failure, str] = MappingProxyType(
    {
        Failure.THROTTLED: "ratelimited rate_limited",
        Failure.TRANSIENT: "fatal_error internal_error service_unavailable request_timeout update_failed team_added_to_org",
        Failure.AUTH: "not_authed invalid_auth account_inactive token_revoked token_expired missing_scope"
        " not_allowed_token_type no_permission access_denied org_login_required"
        " ekm_access_denied enterprise_is_restricted team_access_not_granted two_factor_setup_required",
        Failure.NOT_FOUND: "message_not_found channel_not_found thread_not_found user_not_found users_not_found file_not_found"
        " file_deleted not_found view_not_found not_in_channel user_not_in_channel is_archived is_inactive cannot_reply_to_message"
        " no_hook expired_url used_url user_disabled user_not_visible cannot_dm_bot messages_tab_disabled"
        " cannot_find_channel cannot_find_message",
        Failure.CONFLICT: "hash_conflict duplicate_external_id",
        Failure.EXPIRED: "expired_trigger_id exchanged_trigger_id invalid_trigger_id trigger_expired trigger_exchanged",
        Failure.VALIDATION: "msg_too_long msg_blocks_too_long no_text invalid_blocks invalid_blocks_format block_mismatch"
        " metadata_too_large invalid_metadata_format too_many_attachments cant_update_message edit_window_closed"
        " invalid_arguments invalid_arg_name invalid_json invalid_form_data invalid_post_type view_too_large push_limit_reached"
        " channels_limit_exceeded restricted_action unknown_method method_deprecated invalid_cursor invalid_ts_oldest"
        " cannot_unfurl_message cannot_unfurl_url invalid_unfurls_format",
    }
)
ERRORS: Mapping[str, Failure] = MappingProxyType({code: failure for failure, codes in CODES.items() for code in codes.split()})

# Failure by HTTP status if the body names no code.
STATUSES: Mapping[int, Failure] = MappingProxyType(
    {
        401: Failure.AUTH,
        403: Failure.AUTH,
        404: Failure.NOT_FOUND,
        408: Failure.TRANSIENT,
        410: Failure.NOT_FOUND,
        425: Failure.TRANSIENT,
        429: Failure.THROTTLED,
    }
)
ADDRESS_STATUSES: Mapping[int, Failure] = MappingProxyType(
    {**STATUSES, 401: Failure.NOT_FOUND, 403: Failure.NOT_FOUND}
)  # these requests carry no token

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "not_in_channel": "invite the bot to the channel",
        "channel_not_found": "the channel is gone, or private without the bot in it: invite it",
        "is_archived": "unarchive the channel",
        "is_inactive": "unarchive the channel",
        "user_disabled": "the person has left the workspace: name somebody else",
        "messages_tab_disabled": "turn on the Messages tab under App Home, as manifest.yml has it",
        "missing_scope": "install the app again with the scopes of manifest.yml",
        "invalid_auth": "check SLACK_BOT_TOKEN",
        "token_revoked": "install the app again and set SLACK_BOT_TOKEN",
    }
)


def refusal(method: str, status: int, headers: Mapping[str, str], answer: object, statuses: Mapping[int, Failure]) -> AdapterError:
    """Classify a refusal: 429 and 5xx by status, any other by Slack's code, then by status."""
    if statuses is STATUSES and HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        message = f"Slack answered {method} with another address ({status}), where nothing was sent; it may have been applied."
        return AdapterError(Failure.TRANSIENT, "redirect", message, http_status=status, possibly_applied=True)
    code = answer.get("error") if isinstance(answer, dict) else None
    named = isinstance(code, str) and CODE.fullmatch(code) is not None
    if status == HTTPStatus.TOO_MANY_REQUESTS or (named and ERRORS.get(str(code)) is Failure.THROTTLED):
        return _throttled(method, str(code) if named else "http_429", status, asked_wait_seconds(headers))
    if status == HTTPStatus.OK and not named:
        return unreadable(method, status)
    failure = ERRORS.get(str(code), Failure.VALIDATION) if named else statuses.get(status, Failure.VALIDATION)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        failure = Failure.TRANSIENT
    word = str(code) if named else f"http_{status}"
    unknown = failure is Failure.TRANSIENT
    verb = "failed at" if unknown else "refused"
    remedy = REMEDIES.get(word) or ("it may have been applied" if unknown else "")
    message = f"Slack {verb} {method} ({word}){_where(answer)}{f': {remedy}' if remedy else ''}."
    return AdapterError(failure, word, message, http_status=status, possibly_applied=unknown)


def _throttled(method: str, code: str, status: int, retry_after_seconds: float | None) -> AdapterError:
    wait = "a while" if retry_after_seconds is None else f"{retry_after_seconds:g} s"
    message = f"Slack limits {method}: not again before {wait} have passed. Nothing was done."
    return AdapterError(Failure.THROTTLED, code, message, http_status=status, retry_after_seconds=retry_after_seconds)


def unreadable(method: str, status: int | None) -> AdapterError:
    """Return the error for an answer without the required content: the request may have been applied."""
    message = f"Slack's answer to {method} could not be read; it may have been applied."
    return AdapterError(Failure.TRANSIENT, "unreadable", message, http_status=status, possibly_applied=True)


def _where(answer: object) -> str:
    """Return the places that Slack reports, without its text, which may quote the message."""
    details = answer.get("response_metadata") if isinstance(answer, dict) else None
    messages = details.get("messages") if isinstance(details, dict) else None
    places = [
        str(message).rpartition("json-pointer:")[2].rstrip("]") for message in messages or () if "json-pointer:" in str(message)
    ]
    return f" at {', '.join(places[:3])}" if places else ""
