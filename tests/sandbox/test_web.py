"""Tests of the page's files: the served ones, their types and their policy. The page's behaviour is tested in a browser."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientSession, web
from yarl import URL

from quotebot.sandbox.web import routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

STATIC = Path(__file__).resolve().parents[2] / "quotebot" / "sandbox" / "web" / "static"
OWN_SOURCES = sorted(path for path in STATIC.rglob("*") if path.suffix in {".js", ".html", ".css"} and "vendor" not in path.parts)


@pytest.fixture
async def site() -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes(routes())
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.fixture
async def http() -> AsyncIterator[ClientSession]:
    async with ClientSession() as session:
        yield session


async def test_the_page_stands_at_the_root_and_lets_nothing_foreign_load(site: str, http: ClientSession) -> None:
    async with http.get(f"{site}/") as response:
        policy = response.headers["Content-Security-Policy"]

        assert (response.status, response.content_type, response.charset) == (200, "text/html", "utf-8")
        assert "default-src 'self'; img-src 'self' data:" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


async def test_every_file_of_the_page_is_served_as_what_it_is(site: str, http: ClientSession) -> None:
    types = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert files

    for path in files:
        async with http.get(f"{site}/static/{path.relative_to(STATIC).as_posix()}") as response:
            assert (response.status, response.content_type) == (200, types[path.suffix]), path.name
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert await response.read() == path.read_bytes()


@pytest.mark.parametrize(
    "path",
    ["", "missing.js", "vendor", "vendor/", "../__init__.py", "%2e%2e/__init__.py", "..%2f__init__.py", "//etc/passwd", "%00"],
)
async def test_what_is_not_a_file_of_the_page_is_not_found(site: str, http: ClientSession, path: str) -> None:
    async with http.get(URL(f"{site}/static/{path}", encoded=True)) as response:
        assert response.status == 404


async def test_a_file_the_browser_already_holds_is_not_sent_again(site: str, http: ClientSession) -> None:
    async with http.get(f"{site}/static/app.js") as response:
        tag = response.headers["ETag"]
    async with http.get(f"{site}/static/app.js", headers={"If-None-Match": tag}) as again:
        assert (again.status, await again.read()) == (304, b"")


def test_the_files_are_found_inside_a_zipped_package_too(tmp_path: Path) -> None:
    package = STATIC.parent
    archive = tmp_path / "quotebot.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("quotebot/__init__.py", "")
        zipped.writestr("quotebot/sandbox/__init__.py", "")
        for path in package.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                zipped.write(path, Path("quotebot/sandbox/web") / path.relative_to(package))
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import quotebot.sandbox.web as page; "
        "print(page.__file__); print([route.path for route in page.routes()])"
    )

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert str(archive) in run.stdout
    assert "'/', '/static/{path:.+}'" in run.stdout


def test_every_file_the_page_refers_to_exists() -> None:
    references = re.compile(r"""(?:from |src=|href=)"(\.?/[^"$]+\.(?:js|css|svg))\"""")
    found = 0
    for source in OWN_SOURCES:
        for reference in references.findall(source.read_text(encoding="utf-8")):
            folder = source.parent if reference.startswith(".") else STATIC
            target = folder / reference.removeprefix("./").removeprefix("/static/")
            assert target.is_file(), f"{source.name} refers to {reference}"
            found += 1

    assert found > 20


def test_the_page_never_parses_text_as_html_and_names_no_other_host() -> None:
    for source in OWN_SOURCES:
        text = source.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), source.name
        assert not re.search(r"https?://[a-z]", text.replace("http://www.w3.org/2000/svg", "")), source.name


def test_what_others_wrote_comes_with_its_licence() -> None:
    vendored = {path.name for path in (STATIC / "vendor").iterdir()}

    assert vendored == {"standalone.module.js", "LICENSE-htm.txt", "LICENSE-preact.txt"}
    assert "Apache License" in (STATIC / "vendor" / "LICENSE-htm.txt").read_text(encoding="utf-8")
    assert "MIT License" in (STATIC / "vendor" / "LICENSE-preact.txt").read_text(encoding="utf-8")


PAIRS = [
    *[("ink", paper) for paper in ("paper", "raised", "hover", "soft", "only-you")],
    *[("muted", paper) for paper in ("paper", "raised", "hover", "soft", "only-you")],
    *[("link", paper) for paper in ("paper", "hover", "pill", "raised")],
    *[("red", "paper"), ("red", "raised"), ("amber", "amber-soft"), ("amber", "paper"), ("pill-me-text", "pill-me")],
    *[("code", "code-paper"), ("rail-text", "frame"), ("rail-muted", "frame"), ("rail-here-text", "rail-here")],
    *[("white", "green"), ("white", "green-deep")],
    *[(f"{tone}-ink", f"{tone}-soft") for tone in ("good", "busy", "warn", "bad")],
]


def colours(scheme: str) -> dict[str, str]:
    """Return every colour token of the page as six digits, for the light or the dark scheme."""
    found = {"white": "ffffff"}
    for sheet in ("style.css", "backstage.css"):
        light, _, dark = (STATIC / sheet).read_text(encoding="utf-8").partition("@media (prefers-color-scheme: dark)")
        dark = dark.partition("\n}\n")[0]
        for text in (light, dark) if scheme == "dark" else (light,):
            for name, digits in re.findall(r"--([a-z-]+): #([0-9a-f]{3}|[0-9a-f]{6});", text):
                found[name] = digits if len(digits) == 6 else "".join(each * 2 for each in digits)
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_that_wcag_aa_asks_for(scheme: str) -> None:
    known = colours(scheme)
    ratios = {}
    for ink, paper in PAIRS:
        darker, lighter = sorted((luminance(known[ink]), luminance(known[paper])))
        ratios[f"{ink} on {paper}"] = round((lighter + 0.05) / (darker + 0.05), 2)
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 4.5} == {}


# Blocks 2300 and 2700, and those of pictures; arrows and triangles are in every font.
PICTURES = re.compile("[\u231a-\u23ff\u2600-\u27bf\U0001f000-\U0001faff]")


def test_every_emoji_that_the_bot_writes_is_drawn_by_the_page() -> None:
    package = STATIC.parents[2]
    written = {found for path in package.rglob("*.py") for found in PICTURES.findall(path.read_text("utf-8"))}
    names = re.findall(r'(\w+): "([^"\ufe0f]+)\ufe0f?"', (STATIC / "emoji.js").read_text("utf-8"))
    drawn = set(re.findall(r"^  (\w+): ", (STATIC / "drawn.js").read_text("utf-8"), re.MULTILINE))
    assert written - {found for name, found in names if name in drawn} == set()
