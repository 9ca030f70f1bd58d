"""Tests of the refusals of Slack's own client in a form, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from quotebot.sandbox.slack.elements import REQUIRED, Found, complaint, refusals, state_object

TEXT = {"type": "plain_text_input", "min_length": 3, "max_length": 5}
NUMBER = {"type": "number_input", "is_decimal_allowed": False, "min_value": "1", "max_value": "100"}
PERCENT = {"type": "number_input", "is_decimal_allowed": True, "min_value": "0"}
EMAIL = {"type": "email_text_input"}
URL = {"type": "url_text_input"}
PEOPLE = {"type": "multi_users_select", "max_selected_items": 2}


def field(element: dict[str, Any], *, optional: bool = False) -> Found:
    return Found("b1", {"action_id": "a1", **element}, is_input=True, optional=optional)


@pytest.mark.parametrize(
    ("element", "value", "words"),
    [
        (TEXT, "", REQUIRED),
        (TEXT, "ab", "Please use at least 3 characters."),
        (TEXT, "abc", None),
        (TEXT, "abcde", None),
        (TEXT, "abcdef", "Please use at most 5 characters."),
        (NUMBER, "twelve", "Please enter a number."),
        (NUMBER, "NaN", "Please enter a number."),
        (NUMBER, "1.5", "Please enter a whole number."),
        (NUMBER, "0", "Please enter 1 or more."),
        (NUMBER, "101", "Please enter 100 or less."),
        (NUMBER, "100", None),
        (PERCENT, "12.5", None),
        (PERCENT, "-0.1", "Please enter 0 or more."),
        (EMAIL, "nobody", "Please enter a valid email address."),
        (EMAIL, "nobody@example.com", None),
        (URL, "example.com", "Please enter a valid URL, with https://."),
        (URL, "https://example.com/a", None),
        (PEOPLE, ["U0REP", "U0CFO", "U0VP"], "Please choose at most 2."),
        (PEOPLE, ["U0REP"], None),
        (PEOPLE, [], REQUIRED),
    ],
)
def test_a_field_is_refused_with_words_that_say_what_it_takes(element: dict[str, Any], value: Any, words: str | None) -> None:
    assert complaint(field(element), state_object(element, value)) == words


def test_an_optional_field_may_be_empty_but_not_wrong() -> None:
    assert complaint(field(NUMBER, optional=True), state_object(NUMBER, "")) is None
    assert complaint(field(NUMBER, optional=True), state_object(NUMBER, "0")) is not None


def test_only_the_inputs_of_a_form_are_judged() -> None:
    button = Found("b2", {"type": "static_select", "action_id": "a2", "options": []}, is_input=False)
    state = {"b1": {"a1": state_object(TEXT, "")}, "b2": {"a2": state_object(button.element, None)}}
    assert refusals([field(TEXT), button], state) == {"b1": REQUIRED}
