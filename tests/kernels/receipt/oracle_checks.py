"""Whether the oracle can be trusted: its files are what the manifest says, and its judge refuses every known-bad answer. Needs no GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.kernels.oracle.fixture_files import FixtureError, verify_files
from tests.kernels.receipt.cases import Case
from tests.kernels.receipt.checks import CheckFailedError, Receipt, require


def check_files(receipt: Receipt, manifest: Mapping[str, Any], folder: Path) -> bool:
    """Compare every file with its digest; return whether all are right, without which nothing else is worth checking."""

    def verify() -> str:
        try:
            count = verify_files(manifest, folder)
        except FixtureError as error:
            raise CheckFailedError(str(error)) from error
        return f"{count} files have the bytes and digests of the manifest, generator version {manifest['generator']}"

    return receipt.check("fixtures", verify)


def check_judge(receipt: Receipt, cases: list[Case]) -> None:
    """For every case: each known-bad answer must fail."""
    for case in cases:

        def refuses_all(case: Case = case) -> str:
            wrong = case.known_bad()
            require(bool(wrong), "no known-bad answer")
            accepted = [name for name, answer in wrong.items() if case.judge(answer).passed]
            require(not accepted, f"known-bad answers are accepted: {', '.join(accepted)}")
            return f"refuses {', '.join(wrong)}"

        receipt.check(f"judge: {case.name}", refuses_all)
