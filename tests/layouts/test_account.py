"""The account: a unit one of whose tensors a violation names is refused as a whole."""

from __future__ import annotations

from pathlib import Path

from tensorhub_contracts.inspection.account import KINDS
from tests.support.trees import BLOCKWISE, bf16, fp8_config, judge, unit


def test_a_sidecar_that_a_violation_names_is_refused_with_its_weight(tmp_path: Path) -> None:
    """The unit is in the contract; the declaration asks for another grid, and it is the scale that is named."""
    tensors = {**unit("x", 256, 128), **unit("y", 64, 64), **bf16("norm.weight", 64)}
    inspection = judge(tmp_path, tensors, fp8_config(weight_block_size=[64, 64]), contract=BLOCKWISE)
    assert ("declaration-contradicts-grid", "x.weight_scale_inv") in {(each.code, each.object) for each in inspection.violations}
    assert inspection.account is not None
    assert {kind: inspection.account.of(kind).tensors for kind in KINDS if inspection.account.of(kind).tensors} == {
        "weight": 1,
        "sidecar": 1,
        "unquantized": 1,
        "refused": 2,
    }
    assert inspection.account.of("refused").bytes == 256 * 128 + 2 * 1 * 4
