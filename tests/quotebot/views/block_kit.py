"""Validation of a message or a view as in Slack: the rules of adapters/slack/block_kit.py, and those of slack_sdk's models."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.blocks import Block, DividerBlock
from slack_sdk.models.views import View

from adapters.slack import block_kit

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]


def message_problems(text: str, blocks: list[Json]) -> list[str]:
    """Return everything that Slack would refuse in a message; empty if nothing."""
    return [*block_kit.message_problems(text, blocks), *_refused_blocks(blocks)]


def view_problems(view: Json) -> list[str]:
    """Return everything that Slack would refuse in a modal or an App Home; empty if nothing."""
    return [*block_kit.view_problems(view), *_refused_blocks(view["blocks"]), *_refused_view(view)]


def _refused_blocks(blocks: list[Json]) -> Iterator[str]:
    for block in blocks:
        try:
            parsed = Block.parse(copy.deepcopy(block))
            if parsed is None:
                yield f"slack_sdk knows no block {block.get('type')}"
            else:
                parsed.to_dict()
        except (SlackObjectFormationError, TypeError, ValueError, KeyError, AttributeError) as error:
            yield f"slack_sdk: {error}"


def _refused_view(view: Json) -> Iterator[str]:
    rest = {key: value for key, value in copy.deepcopy(view).items() if key != "blocks"}
    try:
        View(**rest, blocks=[DividerBlock()]).to_dict()  # the blocks are checked one by one
    except SlackObjectFormationError as error:
        yield f"slack_sdk: {error}"
