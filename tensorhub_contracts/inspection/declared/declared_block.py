"""The block that is declared, against the scale grids that are stored."""

from __future__ import annotations

from collections.abc import Iterator

from tensorhub_contracts.checkpoints.config_files import DeclarationSource
from tensorhub_contracts.checkpoints.geometry import write_shape
from tensorhub_contracts.errors import Violation
from tensorhub_contracts.inspection.candidates import Candidates
from tensorhub_contracts.inspection.declared.declarations import is_block
from tensorhub_contracts.inspection.units.scale_shapes import block_grid


def declared_block(sources: tuple[DeclarationSource, ...]) -> tuple[int, int] | None:
    """Return the `weight_block_size` that the sources agree on, if it is two positive whole numbers."""
    declared = [source.content.get("weight_block_size") for source in sources]
    blocks = {(block[0], block[1]) for block in declared if block is not None and is_block(block)}
    return blocks.pop() if len(blocks) == 1 else None


def block_contradictions(candidates: Candidates) -> Iterator[Violation]:
    """Yield what a declared block asks for and what is there, for one unit of each shape whose grid is another."""
    declared = declared_block(candidates.checkpoint.declarations)
    if declared is None:
        return
    for geometry, names in candidates.groups.quantized.items():
        scale = next((each for each in geometry.sidecars if candidates.judge.role(each.name) == "weight-scale"), None)
        if scale is None or len(geometry.shape) < 2 or scale.name.startswith("{module}"):
            continue
        needed = block_grid(geometry.shape, declared)
        if needed != write_shape(scale.shape):
            yield Violation(
                code="declaration-contradicts-grid",
                object=names[0] + scale.name,
                expected=f"grid {needed} for weight {write_shape(geometry.shape)} under the declared block {write_shape(declared)}",
                found=write_shape(scale.shape),
                shard=candidates.checkpoint.shard_of[names[0]],
            )
