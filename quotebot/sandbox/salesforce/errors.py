"""Refusals in Salesforce's format."""

from __future__ import annotations


class SalesforceRefusalError(Exception):
    """One refusal: HTTP `status`, `errorCode`, message and the fields it names, as one element of Salesforce's error list."""

    def __init__(self, status: int, code: str, message: str, fields: tuple[str, ...] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fields = fields

    def body(self) -> list[dict[str, object]]:
        """Return the JSON body: a list of one error; `fields` is left out where Salesforce leaves it out."""
        error: dict[str, object] = {"message": self.message, "errorCode": self.code}
        if self.fields is not None:
            error["fields"] = list(self.fields)
        return [error]
