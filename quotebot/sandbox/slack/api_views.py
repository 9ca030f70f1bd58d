"""views.*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.sandbox.slack.blocks import check_view
from quotebot.sandbox.slack.directory import BOT_USER_ID
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.workspace import Workspace


def open_(workspace: Workspace, arguments: Arguments) -> Json:
    """views.open."""
    view = arguments.structure("view", "invalid_arguments")
    check_view(view, kind="modal")
    user = workspace.passes.redeem_trigger(_trigger(arguments))
    return {"view": workspace.views.open(user, view).wire()}


def push(workspace: Workspace, arguments: Arguments) -> Json:
    """views.push."""
    view = arguments.structure("view", "invalid_arguments")
    check_view(view, kind="modal")
    user = workspace.passes.redeem_trigger(_trigger(arguments))
    return {"view": workspace.views.push(user, view).wire()}


def update(workspace: Workspace, arguments: Arguments) -> Json:
    """views.update, by view_id or external_id, guarded by `hash` when given."""
    found = workspace.views.by_reference(arguments.text("view_id") or None, arguments.text("external_id") or None)
    view = arguments.structure("view", "invalid_arguments")
    return {"view": workspace.views.update(found, view, expected_hash=arguments.text("hash") or None).wire()}


def publish(workspace: Workspace, arguments: Arguments) -> Json:
    """views.publish."""
    user = arguments.require("user_id")
    if user not in workspace.directory.people or user == BOT_USER_ID:
        raise SlackError("user_not_found")
    view = arguments.structure("view", "invalid_arguments")
    return {"view": workspace.views.publish(user, view, expected_hash=arguments.text("hash") or None).wire()}


def _trigger(arguments: Arguments) -> str:
    return arguments.text("trigger_id") or arguments.require("interactivity_pointer")
