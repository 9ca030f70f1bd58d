"""Seller data on documents: settings and a logo file of bounded size, read once from this machine only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.pdf.document import LOGO_BYTES_MAX, check_logo
from quotebot.settings import ConfigurationError
from quotebot.views.document import TERMS, Seller

if TYPE_CHECKING:
    from pathlib import Path

    from quotebot.settings import Settings


def load_seller(settings: Settings) -> Seller:
    """Return the seller data that documents show. Raises ConfigurationError for an unusable logo."""
    return Seller(
        settings.seller_name,
        settings.seller_lines,
        accent=settings.seller_accent,
        footer=settings.seller_footer,
        terms=settings.seller_terms or TERMS,
        logo=b"" if settings.seller_logo is None else _logo(settings.seller_logo),
        template=settings.document_template,
    )


def _logo(path: Path) -> bytes:
    try:
        if not path.is_file():  # rejects a pipe too: a read from it would never end
            raise ConfigurationError(_refused(path, "there is no such file"))
        with path.open("rb") as file:
            content = file.read(LOGO_BYTES_MAX + 1)
        check_logo(content)
    except OSError as error:
        raise ConfigurationError(_refused(path, f"it cannot be read ({error.strerror})")) from error
    except ValueError as error:
        raise ConfigurationError(_refused(path, str(error))) from error
    return content


def _refused(path: Path, reason: str) -> str:
    return (
        f"The logo {path} (QUOTEBOT_SELLER_LOGO) cannot be used: {reason}. Nothing was started. Give a PNG file of at most "
        f"{LOGO_BYTES_MAX >> 10} KiB, or unset it: documents then carry the seller's name alone."
    )
