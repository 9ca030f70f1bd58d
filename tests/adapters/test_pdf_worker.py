"""Tests of the renderer's child alone: frames, limits, fetcher."""

from __future__ import annotations

import contextlib
import ctypes.util
import http.server
import json
import os
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jinja2
import pytest
from fontTools.ttLib import TTFont

import adapters
from adapters.pdf.renderer import canonical_model
from adapters.pdf.worker import (
    INSTALL_NATIVE_LIBRARIES,
    PNG_SIZE,
    PNG_SIZE_AT,
    RefusedError,
    Renderer,
    compress_once,
    environment_of,
    fixed_fetcher,
    logo_width,
    longer_than,
    text_width,
)
from tests.adapters.test_pdf import DOCUMENT

ROOT = str(Path(adapters.__file__).parent.parent)
needs_pango = pytest.mark.skipif(ctypes.util.find_library("pango-1.0") is None, reason="Pango is not installed")


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def run_worker(stdin: bytes, *, python_path: str = ROOT, cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "adapters.pdf.worker", str(1 << 30), "20"],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        cwd=cwd,
        env={"PYTHONPATH": python_path, "PATH": os.defpath, "LC_ALL": "C.UTF-8"},
    )


def only_answer(stdout: bytes) -> dict[str, Any]:
    (length,) = struct.unpack(">I", stdout[:4])
    assert len(stdout) == 4 + length  # only the frame
    answer: dict[str, Any] = json.loads(stdout[4:])
    return answer


def test_it_ends_quietly_when_stdin_ends_even_within_a_frame() -> None:
    for stdin in (b"", b"\0\0", frame(b"{}")[:-1]):
        finished = run_worker(stdin)
        assert (finished.returncode, finished.stdout) == (0, b"")


@needs_pango
def test_a_missing_field_is_answered_as_a_template_error_naming_it() -> None:
    answer = only_answer(
        run_worker(frame(b'{"document":{"page":"A4","texts":{},"template":"detailed"},"variant":"pdf/a-3a"}')).stdout
    )

    assert answer["error"] == "template_error"
    assert "has no attribute" in answer["message"]
    assert answer["alive"] is True


def test_malformed_template_is_a_template_error_without_any_text_of_the_quote() -> None:
    renderer = object.__new__(Renderer)  # without the libraries
    renderer._template_error = jinja2.TemplateError
    renderer._environment = jinja2.Environment(loader=jinja2.DictLoader({"detailed.html": "<p>{{ document.account }}<br></p>"}))  # noqa: S701

    with pytest.raises(RefusedError) as caught:
        renderer._page({"document": {"account": "Northwind", "page": "A4", "texts": {}, "template": "detailed"}})

    assert caught.value.code == "template_error"
    assert caught.value.alive
    assert "Northwind" not in str(caught.value)


def test_whatever_a_document_says_is_text_in_the_xml_of_its_page() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))  # including NUL and halves of surrogate pairs
    account = canonical_model(replace(DOCUMENT, account=f"{every}]]><b>&nbsp;"))["account"]
    template = jinja2.Environment(autoescape=True).from_string('<p title="{{ text }}">{{ text }}</p>')

    page = ET.fromstring(template.render(text=account))  # noqa: S314 -- what is written here

    assert list(page) == []
    assert page.text == page.get("title") == account
    assert len(account) > sys.maxunicode - 3000, "so much is dropped that nothing is left to escape"


def test_missing_native_library_names_the_install_command_and_keeps_frames_clean(tmp_path: Path) -> None:
    package = tmp_path / "weasyprint"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os\nprint('WeasyPrint could not import some external libraries', flush=True)\nos.write(1, b'banner')\n"
        "raise OSError(\"cannot load library 'libpango-1.0-0'\")\n"
    )

    finished = run_worker(frame(b"{}"), python_path=os.pathsep.join((str(tmp_path), ROOT)))

    answer = only_answer(finished.stdout)
    assert answer == {"error": "missing_native_library", "message": INSTALL_NATIVE_LIBRARIES, "alive": False}
    assert b"banner" in finished.stderr
    assert "apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0" in answer["message"]
    assert "brew install pango" in answer["message"]


@needs_pango
def test_a_module_lying_in_the_current_directory_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "weasyprint.py").write_text("raise OSError('planted')\n")

    answer = only_answer(run_worker(frame(b'{"document":{}}'), cwd=tmp_path).stdout)

    assert answer["error"] == "template_error"


@needs_pango
def test_the_fetcher_serves_its_dictionary_and_ends_the_render_at_anything_else(tmp_path: Path) -> None:
    from weasyprint import HTML  # noqa: PLC0415 -- needs native libraries
    from weasyprint.urls import FatalURLFetchingError  # noqa: PLC0415

    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    fetcher = fixed_fetcher({"quotebot:a.css": ("text/css", b"p { color: red }")})

    response = fetcher("quotebot:a.css")
    assert (response.read(), response.content_type) == (b"p { color: red }", "text/css")
    refused = (secret.as_uri(), "http://127.0.0.1:9/", "https://127.0.0.1/", "ftp://127.0.0.1/", "data:text/plain,x", "quotebot:b")
    for url in refused:
        with pytest.raises(FatalURLFetchingError):
            fetcher(url)
        with pytest.raises(FatalURLFetchingError):
            fetcher.open(url)
        with pytest.raises(FatalURLFetchingError):
            HTML(string=f'<img src="{url}"><link rel="attachment" href="{url}">', base_url=None, url_fetcher=fetcher).write_pdf()


PLANTED = {
    "image": '<img src="{url}">',
    "style sheet": '<link rel="stylesheet" href="{url}">',
    "import": '<style>@import "{url}";</style>',
    "background": '<p style="background: url({url})">x</p>',
    "font": "<style>@font-face {{ font-family: F; src: url({url}) }} p {{ font-family: F }}</style><p>x</p>",
    "attachment": '<link rel="attachment" href="{url}">',
    "picture in an svg": '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><image href="{url}" width="9"/></svg>',
}


@needs_pango
def test_restricted_fetcher_never_fetches_the_seven_urls_the_library_would_fetch() -> None:
    from weasyprint import HTML  # noqa: PLC0415 -- needs native libraries
    from weasyprint.urls import FatalURLFetchingError, URLFetcher  # noqa: PLC0415

    visits: list[str] = []

    class Counting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visits.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        base = f"http://127.0.0.1:{server.server_port}/"
        for number, html in enumerate(PLANTED.values()):
            page = html.format(url=f"{base}{number}")
            with contextlib.suppress(FatalURLFetchingError):  # the render ends there, or goes on without
                HTML(string=page, base_url=None, url_fetcher=fixed_fetcher({})).write_pdf()
        assert visits == []
        for number, html in enumerate(PLANTED.values()):
            HTML(string=html.format(url=f"{base}{number}"), base_url=None, url_fetcher=URLFetcher()).write_pdf()
        server.shutdown()
        serving.join()
    assert {int(path[1:]) for path in visits} == set(range(7))  # all of these are requested without the limit


@needs_pango
@pytest.mark.parametrize("place", ["file:///etc/hostname", "file:///proc/self/environ"])
def test_no_file_of_the_machine_gets_into_a_document(place: str) -> None:
    from weasyprint import HTML  # noqa: PLC0415 -- needs native libraries
    from weasyprint.urls import FatalURLFetchingError  # noqa: PLC0415

    for html in PLANTED.values():
        with contextlib.suppress(FatalURLFetchingError):
            content = HTML(string=html.format(url=place), base_url=None, url_fetcher=fixed_fetcher({})).write_pdf()
            assert b"/EmbeddedFile" not in content


@pytest.mark.parametrize("font", ["Regular", "Medium", "SemiBold"])
def test_a_text_that_is_said_to_fit_on_one_line_does_in_every_font_of_ours(font: str) -> None:
    inter = TTFont(Path(__file__).parents[2] / "adapters" / "pdf" / "templates" / "fonts" / f"Inter-{font}.otf")
    glyphs, metrics, em = inter.getBestCmap(), inter["hmtx"], inter["head"].unitsPerEm
    for text in (
        "WWWW",
        "mmmm",
        "0000",
        "rrrr",
        "BBBB",
        "iiii",
        "sku-001 · Volume tier 100+ · per month",
        "AVAVAV %% @@",
        "Gültig bis",
        "Bestellnummer",
    ):
        needed = sum(metrics[glyphs[ord(character)]][0] for character in text) / em * 9 * 25.4 / 72
        assert longer_than(text, needed * 0.99, 9)
        assert text_width(text, 9) >= needed
    assert not longer_than("sku-001 · Volume tier 100+ · per month", 67, 7.5), "so wide an estimate spares nothing"


@pytest.mark.parametrize("text", ["日本語", "مراجعة", "Größe", "\ufdfd"])
def test_a_text_in_letters_of_unknown_width_may_always_need_a_second_line(text: str) -> None:
    assert longer_than(text, 1000, 9)


TEXTS = """<h1 style="letter-spacing: -0.02em; text-transform: uppercase">Quote</h1>
<p style="width: 50mm; overflow-wrap: break-word">Volume tier 100+, per month, and Donaudampfschifffahrtsgesellschaft</p>
<p style="text-align: right; white-space: nowrap">  9,180.00   USD </p>
<p style="width: 9mm">\u0395\u03bb\u03bb \u05e9\u05dc\u05d5\u05dd A\u00a0A</p>
<ol><li>Prices are net.<li style="white-space: pre-line">Of\ntwo lines.</ol>"""


@needs_pango
def test_a_file_that_is_compressed_once_is_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    from weasyprint import HTML  # noqa: PLC0415 -- needs native libraries

    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    compressed: list[str] = []

    def counted(document: Any, pdf: Any) -> None:
        compress_once(document, pdf)
        compressed.extend(type(part).__name__ for part in pdf.objects)

    once = HTML(string=TEXTS).write_pdf(finisher=counted, pdf_identifier=True)

    assert once == HTML(string=TEXTS).write_pdf(pdf_identifier=True)
    assert "Compressed" in compressed
    assert "Stream" not in compressed


OWN = {"own.html": '<p>{{ document.account }}{% include "_part.html" %}</p>', "_part.html": "<b>{{ 1 + 1 }}</b>"}


def test_own_template_is_escaped_and_includes_parts() -> None:
    page = environment_of(OWN, own=True).get_template("own.html").render(document={"account": "<i>A & B"})
    assert page == "<p>&lt;i&gt;A &amp; B<b>2</b></p>"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ document.__class__ }}",
        "{{ document.update({'account': 'x'}) }}",
        "{{ longer_than.__globals__ }}",
        "{{ '%s'.format.__self__ }}",
        "{{ '{0.__class__}'.format(document) }}",
        "{% include '/etc/passwd' %}",
        "{% include '../worker.py' %}",
        "{{ range(10**9) | list }}",
        "{{ open('/etc/passwd') }}",
        "{{ document.no_such }}",
    ],
)
def test_own_template_reaches_nothing_but_the_document(source: str) -> None:
    environment = environment_of({**OWN, "evil.html": source}, own=True)
    with pytest.raises((jinja2.TemplateError, OverflowError)):
        environment.get_template("evil.html").render(document={"account": "x"}, texts={})


def test_the_documentation_says_the_size_at_which_a_logo_is_drawn(checkout: Path) -> None:
    style = (checkout / "adapters/pdf/templates/quote.css").read_text("utf-8")
    assert ".logo { display: block; max-width: 50mm; max-height: 16mm; }" in style
    assert "shown 50 x 16 mm at most" in (checkout / "docs/documents.md").read_text("utf-8")
    sizes = {(1000, 10): 50.0, (100, 100): 16.0}
    assert {size: logo_width(b"\0" * PNG_SIZE_AT + PNG_SIZE.pack(*size)) for size in sizes} == sizes
