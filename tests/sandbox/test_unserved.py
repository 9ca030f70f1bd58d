"""Tests of the world called in its own process: no sockets, no files, with injected time and randomness."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from quotebot.sandbox.chance import Tokens
from quotebot.sandbox.salesforce.login import CLIENT_ID, CLIENT_SECRET
from quotebot.sandbox.slack.courier import Ack
from quotebot.sandbox.slack.directory import BOT_TOKEN
from quotebot.sandbox.wire import Answer, Cut, Received, multipart
from quotebot.sandbox.world import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Json = dict[str, Any]
START = 1_800_000_000.0
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
BEARER = {"authorization": f"Bearer {BOT_TOKEN}"}
PDF = b"%PDF-1.7\r\n--fence\r\n" + bytes(range(256))


class Ticking:
    """A clock that advances by a second at each read."""

    def __init__(self) -> None:
        self.seconds = START

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


class StraightLine:
    """A bot at the other end of the line: it records the envelopes and acks with `answer`."""

    def __init__(self, answer: Json | None) -> None:
        self.answer = answer
        self.told: list[Json] = []

    async def deliver(self, text: str, envelope_id: str, kind: str) -> Ack:
        self.told.append(json.loads(text))
        assert (self.told[-1]["envelope_id"], self.told[-1]["type"]) == (envelope_id, kind)
        return Ack(None, None, "operation_timeout") if self.answer is None else Ack(self.answer, 1.0)


def in_memory(**more: Any) -> World:
    return World(None, now=Ticking(), monotonic=lambda: 0.0, tokens=Tokens.seeded(7), **more).unserved()


def call(world: World, method: str, **arguments: object) -> Json:
    headers = {**BEARER, "content-type": "application/json; charset=utf-8"}
    body = json.dumps(arguments).encode()
    answer: Json = json.loads(world.receive(Received("POST", f"{world.url}/api/{method}", headers, body)).body)
    return answer


def log_in(world: World) -> dict[str, str]:
    fields = {"grant_type": "client_credentials", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    url = f"{world.salesforce.url}/services/oauth2/token"
    answer = json.loads(world.receive(Received("POST", url, FORM, urlencode(fields).encode())).body)
    assert answer["instance_url"] == world.salesforce.url
    return {"Authorization": f"Bearer {answer['access_token']}"}


def write_quote(world: World, token: dict[str, str], key: str) -> Answer:
    body = {"Name": "First", "Quotebot_Key__c": key}
    url = f"{world.salesforce.url}/services/data/v65.0/sobjects/Quote/"
    return world.receive(Received("POST", url, token, json.dumps(body).encode()))


def upload(world: World) -> Answer:
    ticket = call(world, "files.getUploadURLExternal", filename="quote.pdf", length=len(PDF))
    assert world.receive(Received("POST", ticket["upload_url"], {}, PDF)).status == 200
    call(world, "files.completeUploadExternal", files=[{"id": ticket["file_id"]}], channel_id="C0DEALS")
    (file,) = world.seen().files
    return world.receive(Received("GET", file["url"], {}, b""))


async def day(world: World) -> None:
    """Do a little of everything that uses time or randomness."""
    await world.gestures.slash("U0REP", "C0DEALS", "/quote", "help")
    root = call(world, "chat.postMessage", channel="C0DEALS", text="card", blocks=[{"type": "divider"}])
    call(world, "chat.update", channel="C0DEALS", ts=root["ts"], text="card 2")
    await world.gestures.write("U0REP", "C0DEALS", "hello @quotebot", root["ts"])
    await world.gestures.open_home("U0REP")
    upload(world)
    write_quote(world, log_in(world), "k1")


def test_slack_and_salesforce_answer_without_being_served() -> None:
    world = in_memory()
    posted = call(world, "chat.postMessage", channel="C0DEALS", text="hello", metadata=metadata("k1"))
    created = write_quote(world, log_in(world), "k2")
    assert (posted["ok"], created.status) == (True, 201)
    seen = world.seen()
    assert [message["text"] for message in seen.messages] == ["hello"]
    assert [record["Quotebot_Key__c"] for record in seen.crm["Quote"]] == ["k2"]
    assert [(sighting.system, sighting.key, sighting.applied) for sighting in seen.sightings] == [
        ("slack", "k1", True),
        ("salesforce", None, False),
        ("salesforce", "k2", True),
    ]


def metadata(key: str) -> Json:
    return {"event_type": "quotebot_delivery", "event_payload": {"key": key}}


def test_a_file_without_a_folder_stays_in_memory_and_comes_back_whole() -> None:
    world = in_memory()
    download = upload(world)
    assert (download.status, download.body, download.headers["Content-Type"]) == (200, PDF, "application/pdf")
    (file,) = world.seen().files
    call(world, "files.delete", file=file["id"])
    assert world.receive(Received("GET", file["url"], {}, b"")).status == 404


@pytest.mark.parametrize(("effect", "status"), [("429", 429), ("5xx", 503), ("auth_expired", 200), ("malformed", 200)], ids=str)
def test_a_fault_shows_on_an_unserved_request(effect: str, status: int) -> None:
    world = in_memory()
    world.weather.arm("slack", effect, method="chat.postMessage", retry_after=7)
    message = Received("POST", f"{world.url}/api/chat.postMessage", {**BEARER, **FORM}, b"channel=C0DEALS&text=hello")
    struck = world.receive(message)
    assert struck.status == status
    assert struck.headers.get("Retry-After") == ("7" if effect == "429" else None)
    assert json.loads(world.receive(message).body)["ok"]
    assert len(world.seen().messages) == (2 if effect == "malformed" else 1)


@pytest.mark.parametrize(("effect", "applied"), [("reset_before", False), ("reset_after", True)])
def test_cut_connection_raises_and_the_request_log_records_if_it_was_applied(effect: str, *, applied: bool) -> None:
    world = in_memory()
    token = log_in(world)
    world.weather.arm("salesforce", effect, method="sobjects/Quote")
    with pytest.raises(Cut):
        write_quote(world, token, "k1")
    last = world.witness.since()[-1]
    assert (last.key, last.applied, last.status) == ("k1", applied, None)
    assert len(world.seen().crm["Quote"]) == applied


def test_a_delayed_request_is_struck_by_nothing_else() -> None:
    world = in_memory()
    world.weather.arm("slack", "slow", method="auth.test", delay=2.5)
    world.weather.arm("slack", "5xx", method="auth.test")
    asked = Received("POST", f"{world.url}/api/auth.test", BEARER, b"")
    assert world.delay(asked) == 2.5
    assert world.receive(asked, waited=True).status == 200
    assert world.delay(asked) == 0
    assert world.receive(asked).status == 503


async def test_gestures_reach_the_bot_over_the_line_that_was_given() -> None:
    line = StraightLine({"text": "*pong*"})
    world = in_memory(line=line)
    given = await world.gestures.slash("U0REP", "C0DEALS", "/quote", "ping")
    again = await world.courier.redeliver(given["request_id"], "resend", 2)
    assert [envelope["payload"]["text"] for envelope in line.told] == ["ping"] * 3
    assert [ack.payload for ack in again] == [{"text": "*pong*"}] * 2
    assert [message["text"] for message in world.seen().messages] == ["*pong*"]


async def test_without_an_ack_the_person_sees_slacks_notice() -> None:
    world = in_memory(line=StraightLine(None))
    given = await world.gestures.slash("U0REP", "C0DEALS", "/quote", "ping")
    assert (given["ack"], given["error"]) == (None, "operation_timeout")
    assert ["operation_timeout" in message["text"] for message in world.seen().messages] == [True]


async def test_the_same_clock_and_seed_give_the_same_day_to_the_byte(tmp_path: Path) -> None:
    logs, told = [], []
    for name in ("first", "second"):
        line = StraightLine({})
        world = World(tmp_path / name, now=Ticking(), monotonic=lambda: 0.0, tokens=Tokens.seeded(7), line=line).unserved()
        await day(world)
        logs.append((tmp_path / name / "witness.jsonl").read_bytes())
        told.append((line.told, world.seen()))
    assert logs[0] == logs[1]
    assert len(logs[0].splitlines()) > 5
    assert told[0] == told[1]


async def test_another_seed_gives_other_ids() -> None:
    ids = []
    for seed in (1, 2):
        line = StraightLine({})
        world = World(None, now=Ticking(), tokens=Tokens.seeded(seed), line=line).unserved()
        await day(world)
        ids.append({envelope["envelope_id"] for envelope in line.told})
    assert ids[0].isdisjoint(ids[1])


def test_a_repeated_argument_counts_once_the_first_time() -> None:
    world = in_memory()
    asked = Received("GET", f"{world.url}/api/users.info?user=U0REP&user=U0VP", BEARER, b"")
    assert json.loads(world.receive(asked).body)["user"]["id"] == "U0REP"


@pytest.mark.parametrize(
    ("url", "status"),
    [("http://127.0.0.1:1/nowhere", 404), ("https://127.0.0.1:2/services/nowhere", 401), ("http://127.0.0.1:1/v1/models", 401)],
)
def test_an_address_leads_to_the_service_it_belongs_to(url: str, status: int) -> None:
    assert in_memory().receive(Received("GET", url, {}, b"")).status == status


async def test_a_world_in_memory_cannot_be_served() -> None:
    world = World(None)
    with pytest.raises(RuntimeError, match="certificate"):
        await world.start()
    with pytest.raises(RuntimeError, match="served once"):
        await in_memory().start()


def field(name: str, content: bytes, *, filename: str | None = None) -> bytes:
    given = "" if filename is None else f'; filename="{filename}"'
    return f'--fence\r\ncontent-disposition: form-data; name="{name}"{given}\r\n\r\n'.encode() + content + b"\r\n"


def test_a_multipart_body_is_taken_apart_at_its_own_boundaries_only() -> None:
    body = field("text", "Größe".encode()) + field("file", b"a\r\n--fenc\n\r\n", filename="a b.pdf") + b"--fence--\r\n"
    text, file = multipart("multipart/form-data; boundary=fence", body)
    assert (text.name, text.filename, text.text()) == ("text", None, "Größe")
    assert (file.name, file.filename, file.content) == ("file", "a b.pdf", b"a\r\n--fenc\n\r\n")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", field("a", b"b") + b"--fence--"),
        ("multipart/form-data; boundary=fence", field("a", b"b")),
        ("multipart/form-data; boundary=fence", b"--fence\r\nno headers--fence--"),
        ("multipart/form-data; boundary=fence", b"--fence\r\nx-y: z\r\n\r\nb\r\n--fence--"),
    ],
    ids=["no boundary", "no end", "no headers", "no name"],
)
def test_what_is_no_multipart_body_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"part|boundary"):
        multipart(content_type, body)


def calls_of(tree: ast.AST, banned: Callable[[str], bool]) -> list[str]:
    return [name for node in ast.walk(tree) if isinstance(node, ast.Call) and banned(name := ast.unparse(node.func))]


def test_the_sandbox_asks_only_what_it_was_given_for_time_and_chance(checkout: Path) -> None:
    sources = {"time.", "secrets.", "uuid.", "random.", "datetime.now", "dt.datetime.now", "os.urandom"}
    own = {"chance.py", "tls.py", "cluster.py"}  # the source itself; real certificates and servers take real time
    found = {
        module.name: names
        for module in (checkout / "quotebot" / "sandbox").rglob("*.py")
        if module.name not in own
        and (names := calls_of(ast.parse(module.read_text(encoding="utf-8")), lambda name: name.startswith(tuple(sources))))
    }
    assert found == {}
