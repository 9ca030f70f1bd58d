"""Tests of command payloads in the ledger, by schema version. The vectors were hashed from the text beside them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from ledger import keys
from ledger.records import DedupeResult
from quotebot.commands.payloads import (
    AcceptQuote,
    ActOnCommand,
    ActOnEffect,
    AnnounceDeadLetter,
    AnswerMessage,
    CancelQuote,
    CloneQuote,
    CreateAnother,
    CreateByForm,
    CreateQuote,
    DecideApproval,
    DelegateApprovals,
    DiscardDeadLetter,
    EscalateApproval,
    ExpireApproval,
    ExpireQuote,
    FinalizeQuote,
    LinkedQuote,
    LoseQuote,
    MarkSent,
    NeedsNewerBuild,
    NoteStaleDraft,
    PreviewLinks,
    ProposeQuote,
    ReadMessage,
    ReassignApproval,
    ReconcileCrm,
    RefreshCard,
    RemindApprover,
    ReplayCause,
    ResubmitDeadCommand,
    RetryDeadLetter,
    ReviseQuote,
    SendDigest,
    SetDigest,
    ShowHome,
    ShowOpsCard,
    SubmitQuote,
    SyncCrm,
)
from quotebot.commands.registry import REGISTRY, Payload, parse_stored
from quotebot.domain.pricing.commercial_terms import CommercialTerms
from quotebot.domain.pricing.engine import LineRequest, PriceRequest
from quotebot.domain.pricing.price_requests import Changes, LineChange
from quotebot.domain.quotes.quote import ChosenOpportunity
from tests.quotebot.parts import create_command, request_for
from tests.quotebot.views.quote_examples import MORNING

if TYPE_CHECKING:
    from tests.quotebot.parts import Bench

LINES = '[{"quantity":150,"sku":"pro"},{"quantity":150,"sku":"sso"},{"quantity":1,"sku":"support"}]'
CREATE_1 = f'{{"account":"Acme","channel":"C0SALES","discount_percent":"15","lines":{LINES},"term_months":12,"v":1}}'
CREATE_2 = f'{{"account":"Acme","channel":"C0SALES","lines":{LINES},"requested_discount_percent":"15","term_months":12,"v":2}}'
CREATE_3 = CREATE_2.replace('"v":2', '"v":3')
CREATE_4 = CREATE_2.replace('"v":2', '"v":4')
CREATE_5 = CREATE_2.replace('"v":2', '"v":5')
TOKEN = "ab" * 32
RECORD = "0Q0000000000001AAA"

LIFECYCLE: dict[str, Payload] = {
    "quote.clone": CloneQuote("Q-2026-0042", "C0SALES", 2),
    "quote.revise": ReviseQuote(
        Changes((LineChange("set", "pro", 200), LineChange("remove", "sso")), term_months=24, discount_percent=Decimal("12.5"))
    ),
    "quote.cancel": CancelQuote("not wanted"),
    "quote.finalize": FinalizeQuote(),
    "quote.mark_sent": MarkSent("buyer@acme.example"),
    "quote.accept": AcceptQuote(),
    "quote.lose": LoseQuote("too expensive"),
}

# (kind, schema) -> canonical text, SHA-256 of it, operation key of request T0HOME:1
VECTORS: dict[tuple[str, int], tuple[str, str, str]] = {
    ("quote.create", 1): (
        CREATE_1,
        "67fed88b25dcdd4b473891623c9a4eb87d7e083ca53a14824d50afd2419a30f2",
        "9fae699d802322a5ae0864db5e8e83c63678bfd6412df5c6766e954391873e76",
    ),
    ("quote.create", 2): (
        CREATE_2,
        "87f904a751fcacfffff32fb4227c27669850ff55a1da02c9ef6e4ce2d3f9e29f",
        "d745e82eb0b4920afabf25a32b0cfd13bf9aed88640e4a3ac28335db588ff3f4",
    ),
    ("quote.create", 4): (
        CREATE_4,
        "57344a15e8fbdb2ed427624c5e6e003c713513de8adc7cbaa3459d90872e50ba",
        "886132d2ce4b5fc6f449d26a0965589a2ba466ed5ed8c8997ec26a8a50fe48ec",
    ),
    ("quote.create", 5): (
        CREATE_5,
        "813276af2d3befb866fb35720ff32a8653b868e830d2ca87a9caf89a800b702a",
        "bc546d648066a3a6f977d324d0dc29076b3ac7f847d3889be02163e243b18af5",
    ),
    ("quote.create", 3): (
        CREATE_3,
        "bbf11e6310a52337a5fa031ace24061ccc08faa2c964dffc5700521632947cd7",
        "82512247da68586e1e9ea693cd7cc32fe7ebe666448289676ed4eda8e5e7813c",
    ),
    ("quote.create_another", 1): (
        f'{{"token":"{TOKEN}","v":1}}',
        "66c62645e8c12d3d8b9a51f5d2dc791893b82e64a93d8691fb640fa106cd217a",
        "7276b702bd200475d63267b26e61133d705548da56a82d0d38f2acf0aa892920",
    ),
    ("quote.submit", 1): (
        '{"v":1}',
        "afbf9d0f3560b0fd7795e81c42a0a79ee6b6fc67e064f77826aee642cad28d91",
        "b817424acc7f6a0446e32768836c7043dfef8f5f346ba00433d5707dde03a745",
    ),
    ("approval.delegate", 1): (
        '{"from":"U0VP","to":"U0CFO","until":1795257060000,"v":1}',
        "4867cc842d730abd0cf4b5864046be80f37b4023671dc70444313208e0aaa160",
        "cb16bf52fb94c5aa5c45f976f97c0264257d5e467ddc6cebb234cee921511bb5",
    ),
    ("approval.delegate", 2): (
        '{"from":"U0VP","reason":null,"since":null,"to":"U0CFO","until":1795257060000,"v":2}',
        "db31ecabd35939beb939cdf0973c52b43caaf4b1f85cf616b90f7403a93805b4",
        "3fe69429bd246dd0603dfbc4214ea92838695b807e72674a7ef69a9bb759e129",
    ),
    ("approval.remind", 1): (
        '{"approval_id":"A-2026-0042-v1-1","slot":1,"v":1}',
        "c33f4cc751b5a0c3f63d017902dade9ddceb05497b2918781b4a0087b0e06235",
        "3d456d3519ea64237efa20a3f3bed7d87544b948b73d20e8959188972582aceb",
    ),
    ("approval.escalate", 1): (
        '{"approval_id":"A-2026-0042-v1-1","slot":1,"v":1}',
        "c33f4cc751b5a0c3f63d017902dade9ddceb05497b2918781b4a0087b0e06235",
        "0e82891adc449d5a9680723248a08c7a6daec9227f33e96bb07a1a1b16f93b7c",
    ),
    ("approval.expire", 1): (
        '{"approval_id":"A-2026-0042-v1-1","slot":1,"v":1}',
        "c33f4cc751b5a0c3f63d017902dade9ddceb05497b2918781b4a0087b0e06235",
        "9f549f411f8dd499171628239061cc00b4ebf7a01a1b8cd6f0bb58845c9dc9b3",
    ),
    ("approval.decide", 2): (
        '{"approval_id":"A-2026-0042-v1-1","decision":"approve","reason":null,"v":2}',
        "f0efe427361b4cfccf2d5a0a7d569d4050953419d48720847a2aa06a2b04c675",
        "5914121279dae23f85279690fda5c972ec9978d263ddc79ff1950ea736232a99",
    ),
    ("approval.decide", 1): (
        '{"approval_id":"A-2026-0042-v1-1","decision":"approve","reason":null,"v":1}',
        "9fdb2611ff025998e4feeddda00047553f767cbd8a97a71c5bc694c9c5818269",
        "6a89073bdd99d921152e7c722683b04fb5375d810f29cc40d97afacc765fd140",
    ),
    ("quote.clone", 1): (
        '{"account":null,"channel":"C0SALES","quote_id":"Q-2026-0042","v":1,"version":2}',
        "a8452ebbd8f8ebcfdf0eb0bf2a55381307f6850a80f85f93c07ca332e1b43200",
        "0c4f77f05623cc5cee8ce34f55545dcf1737cbd9e42aa25515e88244def76886",
    ),
    ("quote.revise", 2): (
        '{"changes":{"currency":null,"lines":[{"deed":"set","quantity":200,"sku":"pro"},{"deed":"remove","quantity":0,"sku":"sso"}],"region":null,"requested_discount_percent":"12.5","term_months":24,"terms":null,"with_tax":null},"request":null,"v":2}',
        "7a99da32a73b2572786b4fd51378c4d5759ec4c9e87b48582263b998126dcf39",
        "f7eae2af87368e3b3f2220367347b2be06d0aa794913a18998840ff57362316f",
    ),
    ("quote.revise", 1): (
        '{"changes":{"lines":[{"deed":"set","quantity":200,"sku":"pro"},{"deed":"remove","quantity":0,"sku":"sso"}],"requested_discount_percent":"12.5","term_months":24},"request":null,"v":1}',
        "7b2d8273dc1f3503ca5d76615af87c2bb883433a41a831dac386c8da467321f6",
        "483bac1c88efab5f3f400fdbebd90465cfe796000147afcbcec566dbf3a9cadd",
    ),
    ("quote.cancel", 1): (
        '{"reason":"not wanted","v":1}',
        "a2d10f28f1c71efca2045bd3376f29669eaaea5f4ecb3b4a77d90c43f257e6a0",
        "66bed4911f18dd4e1247c206569680be749380a5c3cff6f023649417a592e46e",
    ),
    ("quote.finalize", 1): (
        '{"v":1}',
        "afbf9d0f3560b0fd7795e81c42a0a79ee6b6fc67e064f77826aee642cad28d91",
        "5229eb6483d108399d7daca281c25e973efd7d96b0f8f2c9ab9435b43bc9a24c",
    ),
    ("quote.mark_sent", 1): (
        '{"recipient":"buyer@acme.example","v":1}',
        "d42fa843755d4ff118d4c844f0ad8c530439a97404053ba379ebe290c3cfebeb",
        "ee632e79f71311c908c1c91ba29ca22a90df8bd71ac50b9385173bd0bf4c2817",
    ),
    ("quote.accept", 1): (
        '{"v":1}',
        "afbf9d0f3560b0fd7795e81c42a0a79ee6b6fc67e064f77826aee642cad28d91",
        "baca02f34f3d0336d0238616539d972ffcc6320521c5e374cf0750caa8351f64",
    ),
    ("quote.lose", 1): (
        '{"reason":"too expensive","v":1}',
        "48b0049681c8c7f8d5cb3af46bd819833c4f0536bb1fc86d9574991bf8bb1437",
        "d69b7c1f43a3c0b09ad9ab2d3b0d1552ebc3ba9ffc20b298d138379fac7e239d",
    ),
    ("quote.expire", 1): (
        '{"v":1,"valid_until":1795257060000}',
        "92d57d791818aab3627151b78cc019422950f9e8d90f1644148fd6c795b2d420",
        "52462f6bf556d8e59a17165019669a2bc6f8a4018ed7e8460cfaef5bdeda2e05",
    ),
    ("quote.note_stale", 1): (
        '{"untouched_since":1795257060000,"v":1}',
        "483e318af82f2c08907dd656b4aee16009dfd79ddcf09c92fd65e57cc33e1761",
        "1d55e5f5ac204702c26e5ae3cbd4555a9564d6fb53c7adabe67fe7883dfdc796",
    ),
    ("quote.create_by_form", 1): (
        f'{{"quote":{CREATE_5},"token":"V0FORM","v":1}}',
        "9cdd6bb25985a28053a9d9fed60dadf581fa414318b6e2fbc031354b3b5c9706",
        "256e823154e78ea7749ab97107bb659c8513d2fe18337d14c8880324d4c03eb9",
    ),
    ("quote.refresh", 1): (
        '{"v":1}',
        "afbf9d0f3560b0fd7795e81c42a0a79ee6b6fc67e064f77826aee642cad28d91",
        "7d75f43f85a5fbe0202471010bf2e063f32fcf5de185a87b6839787fb3b5c598",
    ),
    ("home.show", 1): (
        '{"after_ms":0,"user":"U0REP","v":1}',
        "68eaedbffae444c785a2eeac922ae5f9963f99cc6168cf031f0034923cda9a12",
        "fe507f17c6f9e763cf7a070322d363b2d24cb3ecf475f3916bb71e88fd27772b",
    ),
    ("home.show", 2): (
        '{"after_ms":0,"always":false,"page":1,"section":null,"user":"U0REP","v":2}',
        "d2f88dbb68299c335364c9139a4cb809eb44781a342e387e70bab5c37e1aeae1",
        "fe148312965dd638e4425f1411b941932c5723158ca9d654e1bb7d58f2c68a26",
    ),
    ("link.preview", 1): (
        '{"channel":"C0DEALS","links":[["https://acme.my.salesforce.com/0Q0000000000001AAA","Q-2026-0042"]],"ts":"1700000000.000100","v":1}',
        "d9c41ca6f18869f0c3dbf490b873870a3d0cfe58dbb2a793946a3ab290db52ce",
        "244f3c839383b01a88848be93345fdcba113965ee06a8b3ff79acbf8dcdc8eaf",
    ),
    ("digest.set", 1): (
        '{"at_home":false,"v":1,"wanted":true}',
        "8d03db38046d7b55f2b8fc0c0d3d9a5fcc47a3e86c0642c84bac5735593c810e",
        "7f90cb053cbc4cce743d899302fdd86b0777a51feec63e4f73fedae58985b62c",
    ),
    ("digest.send", 1): (
        '{"due_at":1795257060000,"user":"U0REP","v":1}',
        "3f5a360460276137043d6ef4d17c44e05cdd1a752793d89567391238e4e95514",
        "0e3c86cdbb5d0cd009ea648e3aa1996abd01fa48fbb35cbabdb8571512cb9220",
    ),
    ("approval.reassign", 1): (
        '{"approval_id":"A-2026-0042-v1-1","slot":1,"v":1}',
        "c33f4cc751b5a0c3f63d017902dade9ddceb05497b2918781b4a0087b0e06235",
        "a844e4472b24d51cc8d1afb1a2f15480137235fee772c8e1efd20905c141378c",
    ),
    ("letter.announce", 1): (
        '{"channel":"C0OPS","reference":"118","v":1}',
        "927b770bb66fd68ff28632c85a9c5fa2827af37668a8b621fb34fe9f525b6365",
        "4b2a2fed0ffd0d2f2810cedd7f74c6b28c4ca0082001f9fbdf0cf9936327d889",
    ),
    ("letter.retry", 1): (
        '{"cycle":2,"reference":"118","v":1}',
        "634cd536f22e6b0d106702b29c3dcb3ab36242350111d590430063016f5022da",
        "bdc282993858233343e635dc9ee4c29b3b7473797869510348e1e9c16c86ab45",
    ),
    ("effect.steer", 1): (
        '{"cycle":1,"deed":"retry","effect":118,"v":1}',
        "bd3bb7b904b38f9b1b39c148ca156d2be548c44e0634563c528917f1e1a3494e",
        "76dce61f16d54db03cbb98fabaced31b92b31e67f04eb194c0271c466b874365",
    ),
    ("command.steer", 1): (
        '{"cycle":1,"deed":"retry","operation":12,"quote_id":"Q-2026-0042","v":1}',
        "e6c670e1fa1791ccceab433abf89c8c226a343e24c0c18e2b4ccf85065ce0301",
        "8341d0f3b89936de839b921046d6103e8a22329185ca03ebc38737e538f71ada",
    ),
    ("letter.discard", 1): (
        '{"cycle":2,"reason":"not wanted","reference":"118","v":1}',
        "4ee0914cab67b6f4e995c68934204e10de5752be70e4ad1642b2d1fec48585d3",
        "1bc1bfa4ada777140a682d91c4ee3e735fdf64e0332547f8cc32db47d91dbd0c",
    ),
    ("letter.resubmit", 1): (
        '{"cycle":2,"edited":"{\\"v\\":1}","reason":"wrong customer","reference":"op12","v":1}',
        "c044075148129bd3a6a9618fbc9919d1978c606a56dbcc7829dddfd2eec35926",
        "a5675c76d500abdf85221017f9ac9b301e7dafab33a1494a929c16c3623be9ec",
    ),
    ("letter.replay_all", 1): (
        '{"cause":"crm.create/mapping/INVALID_FIELD","upto":1795257060000,"v":1}',
        "2a24f5d3aedc1335be2f8bf2ead590f473aed0f27921f8f9e28d9bb5bfb5ff78",
        "399ad8b9622c625605673998a01383392578df2c0cd171937e6c1a4fa090fb02",
    ),
    ("ops.card", 1): (
        '{"channel":"C0OPS","subject":"pause:crm","v":1}',
        "9b263b0d59075aa426cafeb72227fc62e0c9a99665bb900605d62e64c4bb7769",
        "b835f64162202a0540e02e908dc6ed17b175df17ec9ddbde3e1f4ee1df555e4f",
    ),
    ("crm.sync", 1): (
        '{"v":1}',
        "afbf9d0f3560b0fd7795e81c42a0a79ee6b6fc67e064f77826aee642cad28d91",
        "920dd4406ce58709a5f18fdb65709bdc381a86897d3706fdafad23f4821d1802",
    ),
    ("crm.sync", 2): (
        '{"mirrors":[],"v":2}',
        "c06cc54a22cb998373f3e436ecb56ebd1aa2cb893e258c82dfa6a0ea086394b9",
        "adaebc8332c31521ff62d0bfd2ce3a8bf3376c048708e84cfd71dc8bdca44273",
    ),
    ("crm.reconcile", 1): (
        '{"conflict":7,"reason":"asked the owner","take":"ours","theirs":"In Review","v":1}',
        "f019eb0384e737b39afde3d77eb0ee98ee77005d57666e9386b1e531df8b7fb8",
        "af96efd98840db45f719f9fffad1c4e75688e390cd8db7e82cbc3daffc846454",
    ),
    ("quote.propose", 1): (
        f'{{"quote":{CREATE_4},"thread_ts":"1700000000.000100","v":1}}',
        "b195b596ab068be33653001d93a75b116f5254c8d5d99bec70981c67ac785d69",
        "28fc6b46fe6ee94d53fa120358de4cf193335f92826f718bdb04bb3eb763a87f",
    ),
    ("quote.propose", 2): (
        f'{{"quote":{CREATE_5},"remarks":[],"thread_ts":"1700000000.000100","v":2}}',
        "7f4b92171f538549c35c0cc73316a79833c018105b7f1bc0d775166f8d768fae",
        "dc0e5db2bb4e84b86d63a9ac33c160ab706241bbbeb12b3c755504612f2372ae",
    ),
    ("message.read", 1): (
        '{"channel":"C0SALES","text":"10 pro for Acme","thread_ts":"1700000000.000100","v":1}',
        "c4a2ccb609c27ab3fe710e60bd8fe3d85942b1039dd55d2c6b83d801a8a77433",
        "8f68f8f7bcc3c73b2b9120a40b643d1a22098fdb901edb478c2f9b8600d349d0",
    ),
    ("message.answer", 1): (
        '{"reading":"abababababababababababababababababababababababababababababababab","v":1}',
        "6ad364e40ef59d71d9410f1265888ab07711c5610b0cb9b1061bde697e422b8b",
        "512e6c3b6f143cd13776fccee0bb71cb2637db545704ec9d70b4a7a3dc9f8f0a",
    ),
}
# Typed commands on the newest version, whatever it is; the others are clicks or creations.
TYPED = frozenset(LIFECYCLE) - {"quote.clone"}
CURRENT: dict[str, Payload] = {
    "quote.create": create_command(),
    "quote.create_another": CreateAnother(TOKEN),
    "quote.create_by_form": CreateByForm("V0FORM", create_command()),
    "quote.submit": SubmitQuote(),
    "quote.propose": ProposeQuote(create_command(), "1700000000.000100"),
    "message.read": ReadMessage("10 pro for Acme", "C0SALES", "1700000000.000100"),
    "message.answer": AnswerMessage(TOKEN),
    "quote.refresh": RefreshCard(),
    "home.show": ShowHome("U0REP"),
    "link.preview": PreviewLinks(
        "C0DEALS", "1700000000.000100", (LinkedQuote(f"https://acme.my.salesforce.com/{RECORD}", "Q-2026-0042"),)
    ),
    "digest.set": SetDigest(wanted=True),
    "digest.send": SendDigest("U0REP", 1_795_257_060_000),
    "letter.announce": AnnounceDeadLetter("118", "C0OPS"),
    "letter.retry": RetryDeadLetter("118", 2),
    "letter.discard": DiscardDeadLetter("118", 2, "not wanted"),
    "letter.resubmit": ResubmitDeadCommand("op12", 2, '{"v":1}', "wrong customer"),
    "letter.replay_all": ReplayCause("crm.create/mapping/INVALID_FIELD", 1_795_257_060_000),
    "ops.card": ShowOpsCard("pause:crm", "C0OPS"),
    "effect.steer": ActOnEffect("retry", 118, 1),
    "command.steer": ActOnCommand("retry", "Q-2026-0042", 12, 1),
    "crm.sync": SyncCrm(),
    "crm.reconcile": ReconcileCrm(7, "ours", "In Review", "asked the owner"),
    "approval.decide": DecideApproval("A-2026-0042-v1-1", "approve"),
    **LIFECYCLE,
    "quote.expire": ExpireQuote(MORNING),
    "quote.note_stale": NoteStaleDraft(MORNING),
    "approval.delegate": DelegateApprovals("U0VP", "U0CFO", 1_795_257_060_000),
    "approval.remind": RemindApprover("A-2026-0042-v1-1", 1),
    "approval.escalate": EscalateApproval("A-2026-0042-v1-1", 1),
    "approval.expire": ExpireApproval("A-2026-0042-v1-1", 1),
    "approval.reassign": ReassignApproval("A-2026-0042-v1-1", 1),
}


def stored(kind: str, schema: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(VECTORS[(kind, schema)][0])
    return found


@pytest.mark.parametrize(("kind", "schema"), VECTORS)
def test_the_bytes_the_hash_and_the_key_of_every_schema_are_pinned(kind: str, schema: int) -> None:
    text, payload_hash, key = VECTORS[(kind, schema)]
    creates = kind.startswith(("quote.create", "quote.clone"))
    assert keys.canonical_json(stored(kind, schema)).decode() == text
    assert hashlib.sha256(text.encode()).hexdigest() == keys.digest(stored(kind, schema)) == payload_hash
    assert key == keys.operation_key(
        source="slack_slash" if kind == "quote.create" or kind in LIFECYCLE else "slack_interactive",
        source_request_id="T0HOME:1",
        action_kind=kind,
        aggregate_id="new" if creates else "Q-2026-0042",
        aggregate_version=0 if creates else None if kind in TYPED else 1,
        payload_hash=payload_hash,
    )


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_this_build_writes_the_newest_pinned_schema(kind: str) -> None:
    newest = max(schema for known, schema in VECTORS if known == kind)
    assert REGISTRY[kind].schema == newest
    assert CURRENT[kind].canonical() == stored(kind, newest)


@pytest.mark.parametrize(("kind", "schema"), VECTORS)
def test_every_pinned_schema_is_read_as_the_same_command(kind: str, schema: int) -> None:
    assert parse_stored(kind, stored(kind, schema)) == CURRENT[kind]


def test_every_schema_below_the_current_one_has_an_upcaster_to_the_next() -> None:
    for kind, payload in REGISTRY.items():
        assert set(payload.upcasters) == set(range(1, payload.schema))
        for version, upcast in payload.upcasters.items():
            assert upcast(stored(kind, version)) == stored(kind, version + 1)


def test_an_upcast_leaves_what_was_stored_as_it_is() -> None:
    old = stored("quote.create", 1)
    parse_stored("quote.create", old)
    assert old == stored("quote.create", 1)


@pytest.mark.parametrize(
    ("kind", "payload", "version"),
    [
        ("quote.create", {**json.loads(CREATE_5), "v": 6}, 6),
        ("quote.submit", {"v": 2}, 2),
        ("quote.submit", {}, None),
        ("quote.submit", {"v": "1"}, "1"),
        ("quote.unheard_of", {"v": 1}, 1),
    ],
)
def test_what_a_newer_build_wrote_needs_that_build(kind: str, payload: dict[str, Any], version: object) -> None:
    with pytest.raises(NeedsNewerBuild, match=f"{kind} with payload schema {version} was recorded by a newer build") as needed:
        parse_stored(kind, payload)
    assert (needed.value.kind, needed.value.version) == (kind, version)


def test_a_schema_that_no_upcaster_starts_from_is_refused() -> None:
    with pytest.raises(ValueError, match="payload schema 0 is too old"):
        parse_stored("quote.create", {"v": 0})


@pytest.mark.parametrize("discount", ["0", "12.5", "100", "1E+1"])
def test_a_creation_comes_back_as_it_was_asked(discount: str) -> None:
    command = CreateQuote("Ünï & Co", PriceRequest((LineRequest("pro", 1),), 36, Decimal(discount)), "C0SALES")
    assert parse_stored("quote.create", json.loads(json.dumps(command.canonical()))) == command


def test_a_creation_for_an_opportunity_comes_back_as_it_was_asked() -> None:
    chosen = ChosenOpportunity("006000000000001AAA", "001000000000001AAA")
    command = replace(create_command(), opportunity=chosen)
    assert parse_stored("quote.create", json.loads(json.dumps(command.canonical()))) == command
    assert keys.digest(json.loads(json.dumps(command.canonical()))) != VECTORS[("quote.create", 5)][1]


def test_a_submission_as_it_is_comes_back_as_it_was_asked() -> None:
    command = SubmitQuote("they need SSO", "A-2026-0042-v1-1")
    stored_text = keys.canonical_json(json.loads(json.dumps(command.canonical()))).decode()
    assert stored_text == '{"approval_id":"A-2026-0042-v1-1","note":"they need SSO","v":1}'
    assert parse_stored("quote.submit", json.loads(stored_text)) == command
    typed = SubmitQuote("they need SSO")
    assert json.loads(json.dumps(typed.canonical())) == {"note": "they need SSO", "v": 1}
    assert parse_stored("quote.submit", typed.canonical()) == typed


def test_a_sync_of_mirrors_comes_back_as_it_was_asked() -> None:
    command = SyncCrm(("accounts", "opportunities"))
    assert parse_stored("crm.sync", json.loads(json.dumps(command.canonical()))) == command


def test_a_revision_with_a_whole_request_comes_back_as_it_was_asked() -> None:
    command = ReviseQuote(request=create_command("7.5").request)
    assert parse_stored("quote.revise", json.loads(json.dumps(command.canonical()))) == command


def test_everything_that_may_be_asked_of_a_price_is_stored() -> None:
    line = LineRequest("pro", 2, Decimal("5.5"), Decimal(3), (("region", "eu"),))
    asked = ((line,), 36, Decimal(10), "JPY", "smb", "JP", date(2026, 11, 21), "monthly", Decimal("7.25"))
    agreed = CommercialTerms(
        *(date(2027, 1, 31), 60, "4711", "Jo", "jo@acme.example", "1 Main St", "DE123", 45, date(2027, 2, 1)),
        *("de", "standard", 'a "note"', "thanks"),
    )
    request = PriceRequest(*asked, with_tax=True, terms=("net_60",), commercial=agreed, account="Acme", segment_value="SMB")
    assert all(getattr(agreed, field.name) is not None for field in fields(CommercialTerms))
    command = CreateQuote("Acme", request, "C0SALES")
    defaults = PriceRequest((LineRequest("pro", 2),), 36, Decimal(10))
    assert [field.name for field in fields(PriceRequest) if getattr(request, field.name) == getattr(defaults, field.name)] == [
        "term_months",
        "discount_percent",
        "accepted",  # read from a snapshot, never asked for
    ]
    assert parse_stored("quote.create", json.loads(json.dumps(command.canonical()))) == command


def test_everything_that_may_be_changed_is_stored() -> None:
    line = LineChange("add", "pro", 1, Decimal(5), (("gb", "10"),))
    changes = Changes(
        *((line,), 24, Decimal(10), "EUR", "DE"),
        with_tax=True,
        terms=("net_60",),
        segment="partner",
        billing_frequency="annual",
        commercial=CommercialTerms(payment_days=0, start_date=date(2027, 1, 31)),
        cleared=("po_number",),
    )
    assert [field.name for field in fields(Changes) if getattr(changes, field.name) == getattr(Changes(), field.name)] == []
    for payload in (ReviseQuote(changes), ReviseQuote(replace(changes, with_tax=False, terms=()))):
        assert parse_stored("quote.revise", json.loads(json.dumps(payload.canonical()))) == payload


async def test_a_redelivery_after_a_deploy_that_changed_the_schema_is_the_first_operation(bench: Bench) -> None:
    """The payload and its hash differ, the raw input does not: the delivery stays bound to the first operation."""
    now = request_for(create_command(), "1")
    first = await bench.ledger.reserve(replace(now, payload=stored("quote.create", 1)))
    again = await bench.ledger.reserve(now)
    assert (first.sighting, again.sighting) == (DedupeResult.NEW, DedupeResult.DUPLICATE)
    assert again.operation.id == first.operation.id
    assert again.operation.operation_key == VECTORS[("quote.create", 1)][2]
    assert len(bench.rows("SELECT 1 FROM operations")) == 1
    assert bench.rows("SELECT 1 FROM audit_events WHERE event_type = 'delivery.conflict'") == []
