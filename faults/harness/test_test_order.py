"""Every worker begins with its own, and nothing is run twice or left out."""

from __future__ import annotations

from faults.harness.test_order import dealt, spread


def test_each_stretch_begins_with_its_own_and_all_have_the_same_length() -> None:
    assert dealt(["AB", "C", ""], "abcdef") == [*"ABa", *"Cbc", *"def"]


def test_what_is_more_than_a_stretch_is_not_cut() -> None:
    assert dealt(["ABCD", "E"], "a") == [*"ABCD", *"Ea"]


def test_one_worker_has_it_all_in_order() -> None:
    assert dealt(["AB"], "cd") == [*"ABcd"]


def test_what_takes_longest_goes_to_whoever_is_free_soonest() -> None:
    lengths = {"a": 10.0, "b": 9.0, "c": 3.0, "d": 2.0, "e": 1.0}
    assert spread("edcba", lengths.__getitem__, [8.0, 0.0, 0.0]) == [["c"], ["a", "e"], ["b", "d"]]
