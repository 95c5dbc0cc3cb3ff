"""What a conversion was asked for, as names and texts that a rerun compares: the same request has the same result."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from tensorhub_contracts import __version__
from tensorhub_contracts.checkpoint import Checkpoint
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_decoders.companion_files import Others, folder_of
from tensorhub_decoders.conversion_plan import ConversionPlan


def conversion_request(checkpoint: Checkpoint, plan: ConversionPlan, options: Mapping[str, str]) -> dict[str, str]:
    """Return everything that decides on what is written. The values of the source are known by its files' sizes and times of change."""
    layout = hashlib.sha256()
    for shard in plan.shards:
        layout.update(shard.name.encode("utf-8", "surrogatepass") + b"\0" + shard.file.header)
    return {
        "version": __version__,
        "contract": plan.contract,
        "component": plan.component,
        **options,
        "source_headers": checkpoint.headers_digest,
        "source_files": _files_digest(checkpoint, plan.others),
        "written_headers": f"sha256:{layout.hexdigest()}",
    }


def _files_digest(checkpoint: Checkpoint, others: Others) -> str:
    digest = hashlib.sha256()
    for each in (checkpoint, *(other for other in others.values() if other is not None)):
        for name in each.headers:
            path = folder_of(each) / name
            status = path.stat()
            place = name if each is checkpoint else f"{each.component}/{name}"
            digest.update(f"{place}\0{status.st_size}\0{status.st_mtime_ns}\0".encode("utf-8", "surrogatepass"))
    return f"sha256:{digest.hexdigest()}"


def require_unchanged(checkpoint: Checkpoint, plan: ConversionPlan, request: Mapping[str, str]) -> None:
    """Raise `Refusal` (`file-changed`) if a shard of the source was written to since the request was put together."""
    if _files_digest(checkpoint, plan.others) != request["source_files"]:
        remedy = "Convert it again, and do not write to it."
        raise Refusal([Violation("file-changed", checkpoint.path, "shards as they were at the beginning", "shards changed since", remedy)])
