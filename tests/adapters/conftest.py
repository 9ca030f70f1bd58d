"""Fixtures: the Slack adapter on a served world."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from adapters.slack.api import SlackApi
    from quotebot.sandbox.world import World


from tests.adapters.slack_parts import api_for


@pytest.fixture
async def api(world: World) -> AsyncIterator[SlackApi]:
    opened = api_for(world)
    yield opened
    await opened.close()
