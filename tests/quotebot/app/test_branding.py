"""Tests of the seller's branding on documents: colours, terms and a logo as configured, or none."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from adapters.pdf.renderer import LOGO_BYTES_MAX
from quotebot.app.document_folder import load_seller
from quotebot.settings import ConfigurationError, Settings, contrast_on_white, readable_colour
from tests.adapters.test_pdf import LOGO

if TYPE_CHECKING:
    from pathlib import Path


def settings(**values: Any) -> Settings:
    return Settings(_env_file=None, **values)


@pytest.mark.parametrize(("colour", "contrast"), [("#000000", 21.0), ("#ffffff", 1.0), ("#1f4e79", 8.6), ("#767676", 4.5)])
def test_contrast_is_that_of_the_standard(colour: str, contrast: float) -> None:
    assert contrast_on_white(colour) == pytest.approx(contrast, abs=0.1)


@pytest.mark.parametrize("colour", ["#ffff00", "#c0c0c0", "navy", "#12345", "#1f4e79; background: url(x)", "#1f4e79\n"])
def test_a_colour_that_is_none_or_cannot_be_read_is_refused(colour: str) -> None:
    with pytest.raises(ValueError, match=r"colour|too light"):
        readable_colour(colour)
    with pytest.raises(ValidationError, match="seller_accent"):
        settings(seller_accent=colour)


def test_seller_settings_are_loaded_into_the_branding(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(LOGO)
    seller = load_seller(
        settings(
            seller_name="Acme",
            seller_lines='["1 High Street"]',
            seller_logo=tmp_path / "logo.png",
            seller_accent="#102030",
            seller_footer="VAT 1",
            seller_terms='["Payment within 14 days."]',
            document_template="summary",
        )
    )
    assert (seller.name, seller.lines, seller.logo, seller.accent) == ("Acme", ("1 High Street",), LOGO, "#102030")
    assert (seller.footer, seller.terms, seller.template) == ("VAT 1", ("Payment within 14 days.",), "summary")


def test_without_settings_there_is_no_logo_and_the_terms_are_those_that_come_with_it() -> None:
    seller = load_seller(settings())
    assert (seller.logo, seller.terms, seller.template, seller.footer) == (b"", (), "detailed", "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "there is no such file"),
        (b"<svg/>", "not a PNG file"),
        (LOGO + b"\0" * LOGO_BYTES_MAX, "over 512 KiB"),
        (LOGO.replace(b"\x00\x00\x00\x02\x00\x00\x00\x01\x08", b"\x00\x00\xff\xff\x00\x00\xff\xff\x08"), "65535 x 65535 pixels"),
    ],
)
def test_a_logo_that_cannot_be_used_is_said_with_the_setting_and_the_remedy(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "logo.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load_seller(settings(seller_logo=path))
    for said in (reason, str(path), "QUOTEBOT_SELLER_LOGO", "Nothing was started", "Give a PNG file"):
        assert said in str(caught.value)


def test_a_pipe_in_place_of_a_logo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "logo.png")
    with pytest.raises(ConfigurationError, match="no such file"):
        load_seller(settings(seller_logo=tmp_path / "logo.png"))


@pytest.mark.parametrize(
    ("name", "value"), [("seller_footer", "x" * 301), ("seller_terms", ["x"] * 41), ("document_template", "../fancy")]
)
def test_what_would_not_fit_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        settings(**{name: value})
