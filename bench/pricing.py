"""Time to price a quote: 40 and 400 lines of every kind of price, interleaved in one run.

    ./run bench pricing [--quick] [--json]

Status 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # beside this script a file named ledger.py stands in for the package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from quotebot.domain.catalogue.rulesets import Ruleset, parse_ruleset
from quotebot.domain.pricing.engine import LineRequest, PriceRequest, Pricing, canonical, price

ROUNDS = 25
QUICK_ROUNDS = 5
MARGIN = 1.2  # a line of 400 may cost this much, relative to a line of 40
LINES = (40, 400)
TIERS = [{"from": 1, "price": "10.05"}, {"from": 50, "price": "8.15"}, {"from": 100, "price": "6.25"}]
KINDS: tuple[dict[str, object], ...] = (
    {"kind": "flat", "price": "12.345"},
    {"kind": "range", "tiers": TIERS},
    {"kind": "slab", "tiers": TIERS},
    {"kind": "block", "tiers": TIERS},
    {"kind": "formula", "formula": "max(1, base - quantity * 0.01)", "inputs": {"base": 20}},
    {"kind": "percent", "percent": "2.5", "of": ["saas"]},
)


def wide_document(count: int) -> dict[str, Any]:
    """Return a ruleset, as imported, of `count` products of all kinds of prices in turn, a constraint each, taxes and a rate."""
    skus = [f"p{number}" for number in range(count)]
    common = {"unit": "seat", "billing": "recurring", "cost": "1.2"}
    shares = {sku for number, sku in enumerate(skus) if number % len(KINDS) == len(KINDS) - 1}
    return {
        "name": "wide",
        "version": "1",
        "currency": "USD",
        "products": [{"sku": sku, "name": sku, "family": "services" if sku in shares else "saas", **common} for sku in skus],
        "price_books": [
            {
                "name": "list",
                "currency": "USD",
                "converts_to": ["EUR"],
                "prices": [{"sku": sku, **KINDS[number % len(KINDS)]} for number, sku in enumerate(skus)],
            }
        ],
        "constraints": [{"kind": "max_quantity", "sku": sku, "quantity": 1000} for sku in skus],
        "taxes": [{"region": "DE", "percent": 19}],
    }


def wide_ruleset(count: int) -> Ruleset:
    """Return the parsed ruleset of `wide_document`."""
    return parse_ruleset(wide_document(count))


def wide_request(rules: Ruleset, count: int) -> PriceRequest:
    """Return a request for the first `count` products, with line and header discounts and tax."""
    lines = tuple(
        LineRequest(sku, 1 if rules.catalogue.products[sku].family == "services" else 17 + number, Decimal(5), Decimal("2.5"))
        for number, sku in enumerate(list(rules.catalogue.products)[:count])
    )
    return PriceRequest(lines, 12, Decimal("12.5"), region="DE", with_tax=True)


def priced_seconds(request: PriceRequest, rules: Ruleset) -> float:
    """Return the processor time of one pricing, in seconds; other work of the machine does not count."""
    started = time.process_time()
    result = price(request, rules)
    seconds = time.process_time() - started
    if not isinstance(result, Pricing):
        raise SystemExit(f"not priced: {result[0].message}")
    return seconds


def main() -> int:
    """Print the milliseconds of each size and the ratio to the smallest one of the same round."""
    parser = argparse.ArgumentParser(prog="./run bench pricing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a look: few rounds")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rounds = QUICK_ROUNDS if asked.quick else ROUNDS
    rules = wide_ruleset(max(LINES))
    requests = {count: wide_request(rules, count) for count in LINES}
    seconds: dict[int, list[float]] = {count: [] for count in LINES}
    for _ in range(rounds):
        for count, request in requests.items():
            seconds[count].append(priced_seconds(request, rules))
    ratios = {count: [own / first for own, first in zip(times, seconds[LINES[0]], strict=True)] for count, times in seconds.items()}
    goal = _goal(ratios[max(LINES)])
    if asked.json:
        print(json.dumps({"rounds": rounds, "seconds": seconds, "goals": [goal]}, indent=2))
        return int(goal["verdict"] == "missed")
    print(f"{'lines':>6} {'ratio':>7} {'min ms':>8} {'median ms':>10} {'max ms':>8}   ({rounds} interleaved rounds)")
    for count, times in seconds.items():
        ratio = statistics.median(ratios[count])
        print(f"{count:6} {ratio:7.1f} {min(times) * 1e3:8.2f} {statistics.median(times) * 1e3:10.2f} {max(times) * 1e3:8.2f}")
    largest = price(requests[max(LINES)], rules)
    if isinstance(largest, Pricing):
        print(f"snapshot of {max(LINES)} lines: {len(str(canonical(largest))) / 1024:,.0f} KiB")
    return int(goal["verdict"] == "missed")


def _goal(ratios: list[float]) -> dict[str, Any]:
    """Judge that the time grows linearly with the number of lines."""
    most = max(LINES) / min(LINES) * MARGIN
    found = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    return {
        "goal": f"{max(LINES)} lines are priced within {most:g}x the time of {min(LINES)}",
        "found": found,
        "unit": "x",
        "verdict": "ok" if found["median"] <= most else "missed",
    }


if __name__ == "__main__":
    sys.exit(main())
