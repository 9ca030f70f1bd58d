"""Salesforce Files: the fields and records that the platform adds when a version of a file is published.

A ContentVersion contains the bytes of one version. The first version of a file creates its ContentDocument; a link
(ContentDocumentLink) shows the document on a record.
"""

from __future__ import annotations

import hashlib
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_TYPES: Mapping[str, str] = MappingProxyType({"pdf": "PDF", "txt": "TEXT", "png": "PNG", "csv": "CSV", "json": "JSON"})


def described(content: bytes, path: str, title: str | None) -> dict[str, object]:
    """Return the fields that the platform derives from a version's bytes and the name of its file."""
    extension = PurePath(path).suffix.removeprefix(".").lower()
    return {
        "Title": title or PurePath(path).stem,
        "FileExtension": extension or None,
        "FileType": FILE_TYPES.get(extension, "UNKNOWN"),
        "ContentSize": len(content),
        "Checksum": hashlib.md5(content, usedforsecurity=False).hexdigest(),
    }


def document_of(version: Mapping[str, object], version_id: str) -> dict[str, object]:
    """Return the fields of the document whose latest version this is."""
    shared = ("Title", "Description", "FileExtension", "FileType", "ContentSize", "OwnerId")
    return {**{name: version.get(name) for name in shared}, "LatestPublishedVersionId": version_id}
