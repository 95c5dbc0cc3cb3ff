"""Which unquantized matrices are going to be quantized: what the caller's patterns say, and nothing by default."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from tensorhub_contracts.checkpoints.geometry import Geometry, write_shape
from tensorhub_contracts.errors import Refusal, Violation
from tensorhub_contracts.inspection.result import Inspection
from tensorhub_contracts.registry.contract import Contract

#: Last names of modules that look tokens up, or give each its score.
_VOCABULARY: Final = re.compile(r"(.*\.)?(lm_head|embed\w*|\w*embeddings?|wte|wpe)\.weight\Z|(output|head|shared)\.weight\Z")


def choose_matrices(inspection: Inspection, contract: Contract, skip: Sequence[str], only: Sequence[str]) -> dict[str, Geometry]:
    """Return the unquantized tensors that become units of `contract`, in the order of the headers.

    Candidates are the matrices `*.weight` of rank 2 and, for a contract that scales blocks, stacks of rank 3 with a
    bare name. Of these, the names that match one of `only`, if there is any, and none of `skip`. Raises `Refusal`:
    `pattern-unmatched` for each pattern that matches nothing, `weight-alignment` for each chosen matrix that the
    contract does not admit, and `nothing-to-convert`.
    """
    groups = inspection.require().groups
    assert groups is not None  # a proved contract has them
    stacks = contract.block is not None
    candidates = {name: geometry for name, geometry in groups.unquantized.items() if _is_candidate(name, geometry, stacks)}
    every = inspection.checkpoint.shard_of if inspection.checkpoint is not None else {}
    _require_matches("--only", only, candidates, "a matrix that can be quantized")
    _require_matches("--skip", skip, every, "a tensor of the checkpoint")
    chosen = {name: geometry for name, geometry in candidates.items() if (not only or _matches(name, only)) and not _matches(name, skip)}
    if not chosen:
        found = (
            f"{len(candidates):,} that could be, none of them chosen"
            if candidates
            else "no unquantized matrix that is not quantized already"
        )
        remedy = "Choose some with other patterns; there is nothing to write."
        raise Refusal(
            [Violation(code="nothing-to-convert", object=inspection.path, expected="a matrix to quantize", found=found, remedy=remedy)],
            nearest=contract.handle,
        )
    _require_alignment(chosen, contract)
    return chosen


def vocabulary_matrices(chosen: Mapping[str, Geometry], inspection: Inspection) -> tuple[str, ...]:
    """Return the chosen matrices that look like an embedding or an output head, by name or by having a row for each token."""
    config = inspection.checkpoint.config if inspection.checkpoint is not None else {}
    text_config = config.get("text_config")
    places = (config, text_config if isinstance(text_config, Mapping) else {})
    sizes = {size for place in places if type(size := place.get("vocab_size")) is int}
    return tuple(name for name, geometry in chosen.items() if _VOCABULARY.match(name) or geometry.shape[0] in sizes)


def _is_candidate(name: str, geometry: Geometry, stacks: bool) -> bool:
    if 0 in geometry.shape:
        return False
    if name.endswith(".weight"):
        return len(geometry.shape) == 2
    return stacks and len(geometry.shape) == 3


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _require_matches(option: str, patterns: Sequence[str], names: Mapping[str, object], what: str) -> None:
    """A pattern that matches nothing is a slip, and the model that comes of it is not the one that was meant."""
    remedy = "Correct the pattern; it is matched against whole names of tensors, as in model.layers.*.mlp.*.weight."
    unmatched = [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)]
    if unmatched:
        raise Refusal(
            [
                Violation(code="pattern-unmatched", object=f"{option} {each}", expected=what, found="no such name", remedy=remedy)
                for each in unmatched
            ]
        )


def _require_alignment(chosen: Mapping[str, Geometry], contract: Contract) -> None:
    multiple = contract.multiple_of.get("in", 1)
    violations = [
        Violation(
            code="weight-alignment",
            object=name,
            expected=f"in a multiple of {multiple}",
            found=f"in = {geometry.shape[-1]} of {write_shape(geometry.shape)}",
            remedy=f"Leave it unquantized with --skip {name}, or with a pattern that matches it.",
        )
        for name, geometry in chosen.items()
        if geometry.shape[-1] % multiple
    ]
    if violations:
        raise Refusal(violations, nearest=contract.handle)
