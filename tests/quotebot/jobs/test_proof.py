"""Tests of the proof bundle: its contents, and that its script refuses every altered bundle, also when run as people run it."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import io
import json
import subprocess
import sys
import zipfile
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from ledger.audit.anchors import write_anchor
from ledger.audit.proof import KEY_NAME, MANIFEST, SIGNATURE, canonical, load_signer, public_pem, seal_bundle
from ledger.audit.verification import verify
from ledger.database import DatabaseError
from quotebot.cli.audit import SCRIPT, export_proof
from quotebot.commands.payloads import CloneQuote, DecideApproval, SubmitQuote
from quotebot.execution.executor import Executor
from quotebot.store import quotes as store
from quotebot.store.columns import TABLES
from quotebot.store.history import BrokenChainError
from tests.quotebot.history_parts import everything
from tests.quotebot.parts import MATRIX, RULES, bench_at, create_command, request_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from quotebot.commands.registry import Payload
    from tests.quotebot.parts import Bench

QUOTE = "Q-2026-0001"
REQUEST = "A-2026-0001-v1-1"
PDF = b"%PDF-1.7 the document"
PDF_SHA256 = hashlib.sha256(PDF).hexdigest()


def loaded_script() -> ModuleType:
    """Import the stand-alone script from its path."""
    with as_file(files("quotebot").joinpath("data", SCRIPT)) as path:
        spec = importlib.util.spec_from_file_location("stand_alone_verifier", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


SCRIPT_MODULE = loaded_script()


async def with_quote(bench: Bench, folder: Path) -> None:
    """Create and submit a quote, record its PDF as rendered, and anchor."""
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    for request in (
        request_for(create_command(discount="5"), "r1"),
        request_for(SubmitQuote(), "r2", quote_id=QUOTE, version=1),
    ):
        await bench.ledger.reserve(request)
        assert await executor.step()
        await write_anchor(bench.ledger, folder, bench.clock.now_ms())
    bench.rows(
        "UPDATE effects SET result = json_object('sha256', ?) WHERE class = 'pdf.render'",
        PDF_SHA256,
    )


async def exported(bench: Bench, folder: Path, quote_id: str = QUOTE) -> bytes | None:
    return await export_proof(
        bench.ledger, quote_id, load_signer(folder), actor="ops", stored_pdf=lambda sha256: PDF if sha256 == PDF_SHA256 else None
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Return a bundle and the public key that verifies it."""
    folder = tmp_path_factory.mktemp("proof")

    async def make() -> bytes:
        async with bench_at(folder / "ledger.db") as bench:
            await with_quote(bench, folder)
            bundle = await exported(bench, folder)
        assert bundle is not None
        return bundle

    return asyncio.run(make()), public_pem(load_signer(folder))


def members(bundle: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(content: dict[str, bytes]) -> bytes:
    bundle = io.BytesIO()
    with zipfile.ZipFile(bundle, "w") as archive:
        for name, body in content.items():
            archive.writestr(name, body)
    return bundle.getvalue()


def refusal(bundle: bytes, public_pem: bytes, folder: Path) -> str:
    """Return the script's reason for refusing the bundle."""
    path = folder / "bundle.zip"
    path.write_bytes(bundle)
    with pytest.raises(SCRIPT_MODULE.RefusedError) as refused:
        SCRIPT_MODULE.verify_bundle(path, public_pem)
    return str(refused.value)


def run_script(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the script outside this checkout: isolated, without site packages."""
    command = [sys.executable, "-I", "-S", str(script), *map(str, arguments)]
    return subprocess.run(command, cwd=script.parent, capture_output=True, text=True, timeout=60, check=False)


def test_the_script_of_the_bundle_accepts_it_with_the_public_key_alone(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    bundle, public_pem = made
    (tmp_path / "bundle.zip").write_bytes(bundle)
    (tmp_path / "key.pem").write_bytes(public_pem)
    (tmp_path / SCRIPT).write_bytes(members(bundle)[SCRIPT])
    done = run_script(tmp_path / SCRIPT, "bundle.zip", "key.pem")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"GENUINE: {QUOTE} v1, ")


def test_the_script_knows_every_table_of_a_bundle() -> None:
    assert {name: table.keys for name, table in TABLES.items() if table.of_chain} == SCRIPT_MODULE.KEYS


async def test_the_bundle_of_a_clone_whose_card_has_moved_is_accepted(bench: Bench, tmp_path: Path) -> None:
    """The makers that a clone inherits and the place of a moved card are each in their own table."""
    await with_quote(bench, tmp_path)
    await bench.ledger.reserve(request_for(CloneQuote(QUOTE, "C0SALES", account="Globex"), "r3", actor="U0OTHER"))
    assert await Executor(bench.ledger, RULES, lambda low, _: low, MATRIX).step()
    clone = "Q-2026-0002"
    await bench.ledger.database.write("move", lambda tx: store.move_card(tx, clone, "D0OTHER", bench.clock.now_ms()))
    bundle = await exported(bench, tmp_path, clone)
    assert bundle is not None
    rows = json.loads(members(bundle)["rows.json"])
    assert (len(rows["inherited_makers"]), len(rows["quote_places"])) == (1, 1)
    (tmp_path / "bundle.zip").write_bytes(bundle)
    assert SCRIPT_MODULE.verify_bundle(tmp_path / "bundle.zip", public_pem(load_signer(tmp_path)))["quote_id"] == clone


async def test_the_proof_holds_the_note_of_a_version_submitted_again(bench: Bench, tmp_path: Path) -> None:
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    back = DecideApproval(REQUEST, "request_changes", "Drop SSO.")
    later: tuple[tuple[Payload, str], ...] = (
        (SubmitQuote(), "U0REP"),
        (back, "U0MANAGER"),
        (SubmitQuote("They need SSO.", REQUEST), "U0REP"),
    )
    for request in (
        request_for(create_command(), "r1"),
        *(request_for(each, f"n{number}", quote_id=QUOTE, version=1, actor=who) for number, (each, who) in enumerate(later)),
    ):
        await bench.ledger.reserve(request)
        assert await executor.step()
    await write_anchor(bench.ledger, tmp_path, bench.clock.now_ms())
    bundle = await exported(bench, tmp_path)
    assert bundle is not None
    (tmp_path / "bundle.zip").write_bytes(bundle)
    assert SCRIPT_MODULE.verify_bundle(tmp_path / "bundle.zip", public_pem(load_signer(tmp_path)))["quote_id"] == QUOTE
    (approval,) = json.loads(members(bundle)["approvals.json"])
    assert approval["note"] == {"approval_id": "A-2026-0001-v1-2", "note": "They need SSO."}


def test_the_script_says_refused_and_wrong_usage_by_its_exit_status(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    bundle, public_pem = made
    (tmp_path / SCRIPT).write_bytes(members(bundle)[SCRIPT])
    (tmp_path / "key.pem").write_bytes(public_pem)
    (tmp_path / "bundle.zip").write_bytes(packed({**members(bundle), "quote.pdf": b"another"}))
    done = run_script(tmp_path / SCRIPT, "bundle.zip", "key.pem")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "REFUSED: quote.pdf was changed.\n")
    assert run_script(tmp_path / SCRIPT).returncode == 2
    assert run_script(tmp_path / SCRIPT, "bundle.zip", "no-such.pem").returncode == 2


def test_a_bundle_holds_the_quote_and_all_that_was_done_about_it(made: tuple[bytes, bytes]) -> None:
    found = members(made[0])
    quote, manifest = json.loads(found["quote.json"]), json.loads(found[MANIFEST])
    assert (quote["quote_id"], quote["version"], quote["account"], quote["pdf_sha256"]) == (QUOTE, 1, "Acme", PDF_SHA256)
    assert hashlib.sha256(found["pricing.json"]).hexdigest() == quote["pricing_hash"]
    assert json.loads(found["trace.json"])[-1].startswith("Total: ")
    assert [approval["state"] for approval in json.loads(found["approvals.json"])] == ["approved"]
    assert {"slack.post", "pdf.render"} <= {effect["effect_class"] for effect in json.loads(found["effects.json"])}
    events = json.loads(found["chain.json"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {"quote.created", "quote.submitted", "approval.automatic"} <= {event["event_type"] for event in events}
    assert [anchor["id"] for anchor in json.loads(found["anchors.json"])] == [1, 2]
    assert found["quote.pdf"] == PDF
    assert set(manifest["files"]) == set(found) - {MANIFEST, SIGNATURE}
    assert b"PRIVATE KEY" not in made[0]


async def test_a_bundle_without_a_stored_pdf_still_names_its_hash(bench: Bench, tmp_path: Path) -> None:
    await with_quote(bench, tmp_path)
    bundle = await export_proof(bench.ledger, QUOTE, load_signer(tmp_path), actor="ops", stored_pdf=lambda _: None)
    assert bundle is not None
    assert "quote.pdf" not in members(bundle)
    assert json.loads(members(bundle)["quote.json"])["pdf_sha256"] == PDF_SHA256
    (tmp_path / "bundle.zip").write_bytes(bundle)
    SCRIPT_MODULE.verify_bundle(tmp_path / "bundle.zip", public_pem(load_signer(tmp_path)))


async def test_an_export_is_audited_in_the_quotes_own_chain(bench: Bench, tmp_path: Path) -> None:
    await with_quote(bench, tmp_path)
    bundle = await exported(bench, tmp_path)
    assert bundle is not None
    event = bench.row("SELECT * FROM audit_events ORDER BY id DESC LIMIT 1")
    assert (event["event_type"], event["aggregate_id"], event["actor"]) == ("audit.exported", QUOTE, "ops")
    assert json.loads(event["after"])["sha256"] == hashlib.sha256(bundle).hexdigest()
    second = await exported(bench, tmp_path)
    assert second is not None
    assert json.loads(members(second)["chain.json"])[-1]["event_type"] == "audit.exported"
    assert (await verify(bench.ledger.database, bench.ledger.audit.keyring)).sound


async def test_there_is_no_bundle_of_a_quote_that_is_not_there(bench: Bench, tmp_path: Path) -> None:
    assert await exported(bench, tmp_path, "Q-2026-0099") is None
    assert bench.counts()["audit_events"] == 0


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit_events SET actor = 'nobody' WHERE seq = 2",
        "DELETE FROM audit_events WHERE seq = 2",
        "UPDATE audit_heads SET seq = seq - 1",
        "DELETE FROM audit_heads",
        "UPDATE quote_versions SET pricing = replace(pricing, '12', '13')",
    ],
)
async def test_what_was_tampered_with_is_never_signed(tampering: str, bench: Bench, tmp_path: Path) -> None:
    await with_quote(bench, tmp_path)
    for row in bench.rows("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
        bench.rows(f"DROP TRIGGER {row['name']}")
    bench.rows(tampering)
    with pytest.raises(BrokenChainError):
        await exported(bench, tmp_path)


def test_equal_content_gives_equal_bytes(made: tuple[bytes, bytes]) -> None:
    signer = Ed25519PrivateKey.generate()
    content = {name: body for name, body in members(made[0]).items() if name not in (MANIFEST, SIGNATURE)}
    assert seal_bundle(signer, {"a": 1}, content) == seal_bundle(signer, {"a": 1}, dict(reversed(content.items())))


# -------------------------------------------------------------------------------------------------------- tampering


@given(data=st.data())
def test_any_changed_byte_of_any_member_is_refused(
    data: st.DataObject, made: tuple[bytes, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    bundle, public_pem = made
    content = members(bundle)
    name = data.draw(st.sampled_from(sorted(content)))
    at = data.draw(st.integers(0, len(content[name]) - 1))
    flip = data.draw(st.integers(1, 255))
    body = bytearray(content[name])
    body[at] ^= flip
    content[name] = bytes(body)
    assert refusal(packed(content), public_pem, tmp_path_factory.getbasetemp())


def test_every_member_in_every_place_of_a_few_is_refused(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    bundle, public_pem = made
    for name, body in members(bundle).items():
        for at in (0, len(body) // 2, len(body) - 1):
            changed = body[:at] + bytes([body[at] ^ 0x20]) + body[at + 1 :]
            assert refusal(packed({**members(bundle), name: changed}), public_pem, tmp_path)
        assert refusal(packed({**members(bundle), name: body + b"\n"}), public_pem, tmp_path)
        assert refusal(packed({**members(bundle), name: b""}), public_pem, tmp_path)


def test_a_missing_an_added_and_a_doubled_file_are_refused(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    bundle, public_pem = made
    for name in members(bundle):
        rest = {other: body for other, body in members(bundle).items() if other != name}
        assert refusal(packed(rest), public_pem, tmp_path) == f"{name} is missing"
    assert refusal(packed({**members(bundle), "x.txt": b""}), public_pem, tmp_path) == "x.txt was added"
    doubled = io.BytesIO(bundle)
    with zipfile.ZipFile(doubled, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("quote.pdf", b"another")
    assert refusal(doubled.getvalue(), public_pem, tmp_path) == "a file is in the bundle twice"


@pytest.mark.parametrize("bundle", [b"", b"PK", b"no zip at all"])
def test_what_is_no_zip_is_refused(bundle: bytes, made: tuple[bytes, bytes], tmp_path: Path) -> None:
    assert "cannot be read as a zip file" in refusal(bundle, made[1], tmp_path)
    assert refusal(made[0][:-40], made[1], tmp_path)


def test_a_foreign_public_key_is_refused(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    bundle, _ = made
    stranger = Ed25519PrivateKey.generate()
    assert "not by this public key" in refusal(bundle, public_pem(stranger), tmp_path)
    assert "no PEM file" in refusal(bundle, b"ssh-ed25519 AAAA", tmp_path)


def resealed(bundle: bytes, **changes: Any) -> tuple[bytes, bytes]:
    """Return the bundle with other content, validly signed, as a bug or a dishonest seller could make it."""
    content = members(bundle)
    manifest = json.loads(content[MANIFEST])
    about = {name: value for name, value in manifest.items() if name != "files"}
    for name, change in changes.items():
        file = f"{name}.json"
        value = json.loads(content[file])
        content[file] = canonical(change(value))
    files_only = {name: body for name, body in content.items() if name not in (MANIFEST, SIGNATURE, "public_key.pem")}
    signer = Ed25519PrivateKey.generate()
    return seal_bundle(signer, about, files_only), public_pem(signer)


def edited_row(table: str, **changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a change of the first row of a table."""
    return lambda rows: {**rows, table: [{**rows[table][0], **changes}, *rows[table][1:]]}


def without_second(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["seq"] != 2]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"pricing": lambda price: {**price, "net_total": "1.00"}}, "pricing.json is not the price"),
        ({"quote": lambda quote: {**quote, "quote_id": "Q-2026-0002"}}, "quote.json is about Q-2026-0002"),
        ({"quote": lambda quote: {**quote, "pdf_sha256": "0" * 64}}, "quote.pdf is not the one"),
        ({"chain": without_second}, "event 2 of the chain is missing"),
        ({"chain": lambda events: [*events[1::-1], *events[2:]]}, "event 1 of the chain is missing"),
        ({"chain": lambda events: events[:-1]}, "does not end where"),
        ({"chain": lambda events: [{**event, "aggregate_id": "Q-2"} for event in events]}, "belongs to another chain"),
        ({"chain": lambda events: [{**event, "previous_id": None} for event in events]}, "does not follow"),
        ({"anchors": lambda anchors: anchors[::-1]}, "is out of order"),
        ({"quote": lambda quote: {**quote, "state": "rejected"}}, f"quote.json: state of {QUOTE} is 'rejected'"),
        ({"quote": lambda quote: {**quote, "account": "Beta"}}, f"quote.json: account of {QUOTE} is 'Beta'; the events"),
        ({"quote": lambda quote: {**quote, "sent": {"recipient": "me"}}}, f"quote.json: sent of {QUOTE}"),
        ({"approvals": lambda found: [{**found[0], "decided_by": "U0CFO"}]}, f"approvals.json: decided_by of {REQUEST} is 'U0CFO'"),
        ({"approvals": lambda found: [{**found[0], "reasons": ["none"]}]}, f"approvals.json: reasons of {REQUEST}"),
        ({"approvals": lambda found: [{**found[0], "slots": [{}]}]}, f"approvals.json: slots of {REQUEST}"),
        ({"approvals": lambda _: []}, f"approvals.json has no {REQUEST}"),
        ({"rows": edited_row("quotes", account="Beta")}, f"quotes {QUOTE}: it is not the row that event"),
        ({"rows": edited_row("quote_versions", pricing_hash="0" * 64)}, f'quote_versions ["{QUOTE}",1]: it is not the row'),
        ({"rows": lambda rows: {**rows, "approvals": []}}, f"approvals {REQUEST}: event"),
        ({"rows": lambda rows: {**rows, "quotes": rows["quotes"] * 2}}, "no event of the chain wrote this row"),
    ],
    ids=[
        *("price", "quote", "pdf", "gap", "order", "end", "foreign", "links", "anchors", "state", "account", "sending", "decider"),
        *("reasons", "slots", "no request", "row", "version row", "missing row", "added row"),
    ],
)
def test_a_signed_bundle_that_contradicts_itself_is_refused(
    changes: dict[str, Any], why: str, made: tuple[bytes, bytes], tmp_path: Path
) -> None:
    assert why in refusal(*resealed(made[0], **changes), tmp_path)
    honest, public_pem = resealed(made[0])
    (tmp_path / "honest.zip").write_bytes(honest)
    SCRIPT_MODULE.verify_bundle(tmp_path / "honest.zip", public_pem)


IDS_WITH_GAPS = (4, 9, 27)  # as an engine with several writers gives them: only growing


def chain_of(*ids: int, **changes: Any) -> list[dict[str, Any]]:
    """Return the events of a chain with these ids, and with changes to the last one."""
    events = [
        {"id": number, "seq": seq, "aggregate_id": QUOTE, "previous_id": previous, "mac": f"{number:064x}", "schema_version": 2}
        for seq, (previous, number) in enumerate(zip((None, *ids), ids, strict=False), 1)
    ]
    return [*events[:-1], {**events[-1], **changes}]


@pytest.mark.parametrize(
    ("events", "why"),
    [
        (chain_of(*IDS_WITH_GAPS), None),
        (chain_of(*IDS_WITH_GAPS)[1:], "event 1 of the chain is missing"),
        (chain_of(*IDS_WITH_GAPS)[::2], "event 2 of the chain is missing"),
        (chain_of(*IDS_WITH_GAPS)[:-1], "does not end where the manifest says"),
        (chain_of(*IDS_WITH_GAPS, previous_id=4), "event 3 does not follow the one before it"),
        (chain_of(*IDS_WITH_GAPS, seq=2), "event 3 of the chain is missing"),
        (chain_of(4, 27, 9), "event 3 is older than the one before it"),
    ],
)
def test_the_script_needs_no_consecutive_ids_but_every_place(events: list[dict[str, Any]], why: str | None) -> None:
    end = chain_of(*IDS_WITH_GAPS)[-1]
    manifest = {"quote_id": QUOTE, "chain": {"event_id": end["id"], "seq": end["seq"], "mac": end["mac"]}}
    if why is None:
        SCRIPT_MODULE.verify_chain(manifest, events)
        return
    with pytest.raises(SCRIPT_MODULE.RefusedError, match=why):
        SCRIPT_MODULE.verify_chain(manifest, events)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a bundle whose quote has a row in every table except one; it was revised, sent and cancelled."""
    folder = tmp_path_factory.mktemp("full")

    async def make() -> bytes:
        await everything(folder / "ledger.db")
        async with bench_at(folder / "ledger.db") as bench:
            bundle = await exported(bench, folder)
        assert bundle is not None
        return bundle

    return asyncio.run(make())


def other(value: Any) -> Any:
    """Return another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case list():
            return [*value, "x"]
        case dict():
            return {name: other(each) for name, each in value.items()}
        case _:
            return f"{value or ''}x"


def with_other(rows: list[Any], number: int, name: str) -> list[Any]:
    return [*rows[:number], {**rows[number], name: other(rows[number][name])}, *rows[number + 1 :]]


def test_every_edited_column_of_a_bundles_rows_is_refused_naming_the_row(full: bytes, tmp_path: Path) -> None:
    rows = json.loads(members(full)["rows.json"])
    assert {name: table.keys for name, table in TABLES.items() if table.of_chain} == SCRIPT_MODULE.KEYS
    assert [name for name, found in rows.items() if not found] == ["quote_opportunities"]
    for table, found in rows.items():
        for number, row in enumerate(found):
            for column in row:
                edited = {**rows, table: with_other(found, number, column)}
                why = refusal(*resealed(full, rows=lambda _, edited=edited: edited), tmp_path)
                assert why.startswith((f"{table} {row[TABLES[table].keys[0]]}", f'{table} ["{row[TABLES[table].keys[0]]}"')) or (
                    column in TABLES[table].keys and why.startswith(f"{table} ")
                ), why


def test_every_edited_field_of_a_bundles_quote_and_approvals_is_refused(full: bytes, tmp_path: Path) -> None:
    quote, approvals = (json.loads(members(full)[f"{name}.json"]) for name in ("quote", "approvals"))
    for name, value in quote.items():
        assert "quote.json" in refusal(*resealed(full, quote=lambda found, n=name, v=value: {**found, n: other(v)}), tmp_path)
        assert refusal(*resealed(full, quote=lambda found, n=name: {k: v for k, v in found.items() if k != n}), tmp_path)
    assert "has the field note" in refusal(*resealed(full, quote=lambda found: {**found, "note": "paid"}), tmp_path)
    for number, approval in enumerate(approvals):
        for name in approval:
            why = refusal(*resealed(full, approvals=lambda found, i=number, n=name: with_other(found, i, n)), tmp_path)
            assert "approvals.json" in why


@given(
    content=st.recursive(
        st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_any_json_in_a_signed_bundle_is_refused_and_never_a_crash(
    content: Any, made: tuple[bytes, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in ("quote", "pricing", "approvals", "rows", "chain"):
        assert refusal(*resealed(made[0], **{name: lambda _: content}), tmp_path_factory.getbasetemp())


def test_deeply_nested_json_in_a_signed_bundle_is_refused(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    content = members(made[0]) | {"chain.json": b"[" * 200_000}
    about = {name: value for name, value in json.loads(content[MANIFEST]).items() if name != "files"}
    signer = Ed25519PrivateKey.generate()
    sealed = seal_bundle(signer, about, {n: b for n, b in content.items() if n not in (MANIFEST, SIGNATURE, "public_key.pem")})
    assert "RecursionError" in refusal(sealed, public_pem(signer), tmp_path)


async def test_the_bundle_of_a_clone_is_genuine(bench: Bench, tmp_path: Path) -> None:
    await with_quote(bench, tmp_path)
    executor = Executor(bench.ledger, RULES, lambda low, _: low, MATRIX)
    await bench.ledger.reserve(request_for(CloneQuote(QUOTE, "C0SALES"), "r3", actor="U0OTHER"))
    assert await executor.step()
    bundle = await exported(bench, tmp_path, "Q-2026-0002")
    assert bundle is not None
    assert json.loads(members(bundle)["rows.json"])["inherited_makers"] != []
    (tmp_path / "bundle.zip").write_bytes(bundle)
    assert SCRIPT_MODULE.verify_bundle(tmp_path / "bundle.zip", public_pem(load_signer(tmp_path)))["quote_id"] == "Q-2026-0002"


def test_a_large_bundle_is_refused_before_it_is_unpacked(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    bundle, public_pem = made
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members(bundle).items():
            archive.writestr(name, body)
        for number in range(3):
            archive.writestr(f"{number}.json", bytes(60 << 20))
    assert len(bomb.getvalue()) < 1 << 20
    assert "its files are larger than any bundle's" in refusal(bomb.getvalue(), public_pem, tmp_path)
    many = packed({**members(bundle), **{f"{number:06}.json": b"" for number in range(1000)}})
    assert refusal(many, public_pem, tmp_path) == "it lists more files than any bundle"
    sparse = tmp_path / "sparse.zip"
    with sparse.open("wb") as file:
        file.truncate(SCRIPT_MODULE.BUNDLE_BYTES_MAX + 1)
    with pytest.raises(SCRIPT_MODULE.RefusedError, match="larger than any bundle"):
        SCRIPT_MODULE.verify_bundle(sparse, public_pem)


def test_nothing_but_the_manifest_is_read_of_a_bundle_with_a_foreign_signature(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    bundle, _ = made
    content = {**members(bundle), "chain.json": b"no JSON"}
    stranger = Ed25519PrivateKey.generate()
    assert "not by this public key" in refusal(packed(content), public_pem(stranger), tmp_path)


def test_a_bundle_of_the_first_format_is_held_against_the_words_of_its_events(made: tuple[bytes, bytes], tmp_path: Path) -> None:
    content = {name: body for name, body in members(made[0]).items() if name not in (MANIFEST, SIGNATURE, "rows.json")}
    about = {name: value for name, value in json.loads(members(made[0])[MANIFEST]).items() if name != "files"}
    signer = Ed25519PrivateKey.generate()
    old = {name: body for name, body in content.items() if name != "public_key.pem"}
    (tmp_path / "old.zip").write_bytes(seal_bundle(signer, {**about, "format": "quotebot/proof/1"}, old))
    SCRIPT_MODULE.verify_bundle(tmp_path / "old.zip", public_pem(signer))
    forged = {**old, "quote.json": old["quote.json"].replace(b'"state":"approved"', b'"state":"rejected"')}
    sealed = seal_bundle(signer, {**about, "format": "quotebot/proof/1"}, forged)
    assert f"quote.json: state of {QUOTE} is 'rejected'; the events say 'approved'" in refusal(sealed, public_pem(signer), tmp_path)


# ---------------------------------------------------------------------------------------------------------- Ed25519


PARTS = ("key", "message", "signature")


def library_accepts(key: bytes, message: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@given(
    seed=st.binary(min_size=32, max_size=32),
    message=st.binary(max_size=200),
    flips=st.lists(
        st.tuples(st.sampled_from(["key", "message", "signature"]), st.integers(0, 10**6), st.integers(1, 255)), max_size=1
    ),
)
def test_the_scripts_ed25519_agrees_with_the_library(seed: bytes, message: bytes, flips: list[tuple[str, int, int]]) -> None:
    private = Ed25519PrivateKey.from_private_bytes(seed)
    parts = {"key": private.public_key().public_bytes_raw(), "message": message, "signature": private.sign(message)}
    for name, at, flip in flips:
        body = bytearray(parts[name])
        if body:
            body[at % len(body)] ^= flip
            parts[name] = bytes(body)
    assert SCRIPT_MODULE.is_signed(parts["key"], parts["message"], parts["signature"]) is library_accepts(**parts)


def test_a_signature_with_a_scalar_beyond_the_order_is_refused() -> None:
    private = Ed25519PrivateKey.generate()
    key, signature = private.public_key().public_bytes_raw(), private.sign(b"m")
    twin = signature[:32] + (int.from_bytes(signature[32:], "little") + SCRIPT_MODULE.L).to_bytes(32, "little")
    assert SCRIPT_MODULE.is_signed(key, b"m", signature)
    assert not SCRIPT_MODULE.is_signed(key, b"m", twin)
    assert not SCRIPT_MODULE.is_signed(key, b"m", signature + b"\0")


# -------------------------------------------------------------------------------------------------------------- key


def test_the_signing_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    first, second = load_signer(tmp_path), load_signer(tmp_path)
    assert public_pem(first) == public_pem(second)
    assert (tmp_path / KEY_NAME).stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_NAME]


def test_a_damaged_signing_key_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / KEY_NAME).write_text("nonsense")
    with pytest.raises(DatabaseError, match="Restore it from your backup"):
        load_signer(tmp_path)
    assert (tmp_path / KEY_NAME).read_text() == "nonsense"
