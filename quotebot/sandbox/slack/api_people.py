"""users.*, usergroups.*, auth.test and other methods about identities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quotebot.sandbox.slack.directory import APP_ID, BOT_ID, BOT_NAME, BOT_USER_ID, TEAM_DOMAIN, TEAM_ID, TEAM_NAME, Group, Person
from quotebot.sandbox.slack.errors import Json, SlackError

if TYPE_CHECKING:
    from quotebot.sandbox.slack.arguments import Arguments
    from quotebot.sandbox.slack.workspace import Workspace


def api_test(workspace: Workspace, arguments: Arguments) -> Json:
    """api.test: echoes, and fails on request."""
    del workspace
    if "error" in arguments:
        raise SlackError(arguments.text("error"))
    return {"args": {"foo": arguments.text("foo")} if "foo" in arguments else {}}


def auth_test(workspace: Workspace, arguments: Arguments) -> Json:
    """auth.test."""
    del arguments
    enterprise_id = workspace.directory.enterprise_id
    return {
        "url": f"{workspace.url}/",
        "team": TEAM_NAME,
        "user": BOT_NAME,
        "team_id": TEAM_ID,
        "user_id": BOT_USER_ID,
        "bot_id": BOT_ID,
        **({} if enterprise_id is None else {"enterprise_id": enterprise_id}),
        "is_enterprise_install": False,
    }


def bots_info(workspace: Workspace, arguments: Arguments) -> Json:
    """bots.info."""
    del workspace
    if arguments.text("bot", BOT_ID) != BOT_ID:
        raise SlackError("bot_not_found")
    return {"bot": {"id": BOT_ID, "app_id": APP_ID, "user_id": BOT_USER_ID, "name": BOT_NAME, "deleted": False, "icons": {}}}


def team_info(workspace: Workspace, arguments: Arguments) -> Json:
    """team.info."""
    del workspace, arguments
    return {"team": {"id": TEAM_ID, "name": TEAM_NAME, "domain": TEAM_DOMAIN}}


def users_info(workspace: Workspace, arguments: Arguments) -> Json:
    """users.info."""
    person = workspace.directory.people.get(arguments.text("user"))
    if person is None:
        raise SlackError("user_not_found")
    return {"user": _wire(person)}


def users_list(workspace: Workspace, arguments: Arguments) -> Json:
    """users.list, in one page."""
    del arguments
    people = [_wire(person) for person in workspace.directory.people.values() if not person.is_external]
    return {"members": people, "response_metadata": {"next_cursor": ""}}


def users_lookup_by_email(workspace: Workspace, arguments: Arguments) -> Json:
    """users.lookupByEmail."""
    email = arguments.require("email").lower()
    for person in workspace.directory.people.values():
        if person.email == email and not person.is_bot and not person.is_external:
            return {"user": _wire(person)}
    raise SlackError("users_not_found")


def usergroups_list(workspace: Workspace, arguments: Arguments) -> Json:
    """usergroups.list."""
    with_users = arguments.flag("include_users")
    return {"usergroups": [_wire_group(group, with_users=with_users) for group in workspace.directory.groups.values()]}


def usergroups_users_list(workspace: Workspace, arguments: Arguments) -> Json:
    """usergroups.users.list."""
    group = workspace.directory.groups.get(arguments.text("usergroup"))
    if group is None:
        raise SlackError("no_such_subteam")
    return {"users": list(group.members)}


def _wire(person: Person) -> Json:
    """Return a user object. For a person of another workspace Slack returns few fields, and `is_stranger`."""
    profile = {"real_name": person.real_name, "display_name": person.name, "team": person.team_id}
    if person.is_external:
        return {
            "id": person.id,
            "team_id": person.team_id,
            "name": person.name,
            "real_name": person.real_name,
            "deleted": person.is_deactivated,
            "profile": profile,
            "is_bot": person.is_bot,
            "is_app_user": False,
            "is_stranger": person.is_stranger,
            "updated": 0,
            **_enterprise_user(person),
        }
    profile["title"] = person.real_name
    if not person.is_bot:
        profile["email"] = person.email
    return {
        "id": person.id,
        "team_id": person.team_id,
        **_enterprise_user(person),
        "name": person.name,
        "real_name": person.real_name,
        "deleted": person.is_deactivated,
        "tz": "Etc/UTC",
        "tz_label": "Coordinated Universal Time",
        "tz_offset": 0,
        "profile": profile,
        "is_bot": person.is_bot,
        "is_app_user": False,
        "is_admin": False,
        "is_owner": False,
        "is_restricted": person.is_guest or person.is_single_channel_guest,
        "is_ultra_restricted": person.is_single_channel_guest,
        "updated": 0,
    }


def _enterprise_user(person: Person) -> Json:
    """Return the user object's fields of a member of an Enterprise Grid organization."""
    if person.enterprise_id is None:
        return {}
    membership = {
        "id": person.id,
        "enterprise_id": person.enterprise_id,
        "enterprise_name": f"Organization {person.enterprise_id}",
        "is_admin": False,
        "is_owner": False,
        "is_primary_owner": False,
        "teams": list(person.teams or (person.team_id,)),
    }
    return {"enterprise_user": membership}


def _wire_group(group: Group, *, with_users: bool) -> Json:
    wire: Json = {
        "id": group.id,
        "team_id": TEAM_ID,
        "is_usergroup": True,
        "name": group.name,
        "handle": group.handle,
        "description": "",
        "user_count": len(group.members),
        "date_delete": 0,
    }
    if with_users:
        wire["users"] = list(group.members)
    return wire
