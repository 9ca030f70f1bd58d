"""Tests that every worker starts with its own tests, and that no test runs twice or is left out."""

from __future__ import annotations

from faults.harness.test_order import dealt, spread


def test_each_worker_gets_its_own_tests_first_and_all_get_equal_numbers() -> None:
    assert dealt(["AB", "C", ""], "abcdef") == [*"ABa", *"Cbc", *"def"]


def test_worker_with_too_many_own_tests_keeps_them_all() -> None:
    assert dealt(["ABCD", "E"], "a") == [*"ABCD", *"Ea"]


def test_single_worker_gets_all_tests_in_order() -> None:
    assert dealt(["AB"], "cd") == [*"ABcd"]


def test_longest_tests_go_to_the_worker_that_is_free_first() -> None:
    lengths = {"a": 10.0, "b": 9.0, "c": 3.0, "d": 2.0, "e": 1.0}
    assert spread("edcba", lengths.__getitem__, [8.0, 0.0, 0.0]) == [["c"], ["a", "e"], ["b", "d"]]
