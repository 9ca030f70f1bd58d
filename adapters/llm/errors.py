"""Error tables of the LLM provider: error codes, HTTP statuses and transport errors mapped to our failures."""

from __future__ import annotations

from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import openai

from adapters.egress import AnswerTooLargeError
from adapters.failures import AdapterError, Failure
from adapters.retry_after import asked_wait_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A code takes precedence over its status. An unpaid account pauses the class like a refused key: only a payment resolves it.
CODES: Mapping[str, Failure] = MappingProxyType(
    {
        "insufficient_quota": Failure.AUTH,
        "billing_hard_limit_reached": Failure.AUTH,
        "account_deactivated": Failure.AUTH,
        "content_filter": Failure.VALIDATION,
        "content_policy_violation": Failure.VALIDATION,
        "context_length_exceeded": Failure.VALIDATION,
        "model_not_found": Failure.NOT_FOUND,
    }
)
STATUSES: Mapping[int, Failure] = MappingProxyType(
    {
        401: Failure.AUTH,
        402: Failure.AUTH,
        403: Failure.AUTH,
        404: Failure.NOT_FOUND,
        408: Failure.TRANSIENT,
        409: Failure.TRANSIENT,
        425: Failure.TRANSIENT,
        429: Failure.THROTTLED,
    }
)
SERVER_ERROR = 500
REMEDIES: Mapping[Failure, str] = MappingProxyType(
    {
        Failure.AUTH: "check the key, and that its account is paid for",
        Failure.NOT_FOUND: "check the address and the model's name",
    }
)


@contextmanager
def translated() -> Iterator[None]:
    """Translate every failure of a request or its answer into `AdapterError`. Text of the provider is never repeated."""
    try:
        yield
    except openai.APIStatusError as error:
        raise refusal(error) from error
    except (openai.APITimeoutError, TimeoutError) as error:
        message = "The model did not answer in time; nothing depends on whether it would have."
        raise AdapterError(Failure.TRANSIENT, "timeout", message, possibly_applied=True) from error
    except AnswerTooLargeError as error:
        raise AdapterError(Failure.LLM_SCHEMA, "too_large", "The model's provider answered too much to be read.") from error
    except (openai.APIConnectionError, OSError) as error:
        if isinstance(error.__cause__, AnswerTooLargeError):
            raise AdapterError(Failure.LLM_SCHEMA, "too_large", "The model's provider answered too much to be read.") from error
        message = "The connection to the model's provider failed or broke."
        raise AdapterError(Failure.TRANSIENT, "network", message, possibly_applied=True) from error
    except openai.OpenAIError as error:
        raise unreadable() from error


def refusal(error: Any) -> AdapterError:
    """Classify an error answer: by its code first, then by its status."""
    status: int = error.status_code
    code = error.code if isinstance(error.code, str) else ""
    failure = CODES.get(code) or STATUSES.get(status)
    if failure is None:
        failure = Failure.TRANSIENT if status >= SERVER_ERROR else Failure.VALIDATION
    known = code if code in CODES else f"http_{status}"
    remedy = f": {REMEDIES[failure]}" if failure in REMEDIES else ""
    wait = asked_wait_seconds(error.response.headers)
    message = f"The model's provider refused the request ({known}){remedy}."
    return AdapterError(failure, known, message, http_status=status, retry_after_seconds=wait)


def unreadable() -> AdapterError:
    """Return the error for an answer outside the protocol, for example of a proxy or a maintenance page."""
    return AdapterError(Failure.TRANSIENT, "unreadable", "The model's provider answered with something else than a completion.")
