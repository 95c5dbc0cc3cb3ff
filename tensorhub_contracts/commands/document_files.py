"""Reads the documents that a command is given: artifacts, demands, lanes of images."""

from __future__ import annotations

import os

import click

from tensorhub_contracts.checkpoints.files import read_json_file
from tensorhub_contracts.errors import Refusal


def document_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a document; raise a usage error for a pipe, a device, and a file that is larger than any document."""
    try:
        return read_json_file(os.fspath(path))
    except Refusal as refusal:
        (violation,) = refusal.violations
        raise click.UsageError(f"cannot read {path}: expected {violation.expected}; found {violation.found}") from refusal
