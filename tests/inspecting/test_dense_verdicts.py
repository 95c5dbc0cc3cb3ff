"""An unquantized checkpoint has no scales, and its report speaks of none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.trees import BLOCKWISE, assert_accepted, fp8_config, judge, unit


@pytest.mark.parametrize(("dtype", "contract"), [("BF16", "plain.bf16@1"), ("F16", "plain.f16@1"), ("F32", "plain.f32@1")])
def test_what_headers_do_not_show_of_dense_weights(dtype: str, contract: str, tmp_path: Path) -> None:
    inspection = judge(tmp_path, {"a.weight": (dtype, (4, 4))})
    assert_accepted(inspection, contract)
    assert inspection.not_provable == (("the values: whether some are NaN or infinite is seen only when bytes are read", ()),)


def test_of_quantized_ones_the_scales_are_named(tmp_path: Path) -> None:
    inspection = judge(tmp_path, unit("a", 256, 384), fp8_config())
    assert_accepted(inspection, BLOCKWISE)
    assert any("scales that are zero" in statement for statement, _ in inspection.not_provable)
