"""A property over 10,000 generated trees of every contract: the account adds up, and nothing is accepted that the contract's page refuses.

The trees are made from the pages of docs/contracts/, changed in one thing or two, and judged twice: by `inspect`, and by an oracle
that was written from the pages and shares no code with the product.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorhub_contracts import Inspection, inspect
from tests.support.checkpoint_files import header_bytes, payload_size, size_in_bytes, write_raw
from tests.support.contract_pages import read_pages
from tests.support.generated_trees import generate
from tests.support.page_oracle import Tree, judge_tree
from tests.support.refusals import well_formed
from tests.support.tree_mutations import mutate

PAGES = read_pages()
TREES = 10_000
OF_EACH = -(-TREES // len(PAGES))

#: One tree in so many is left as it was made, one has two changes, and one is judged in two shards as well.
UNCHANGED, CHANGED_TWICE, IN_TWO_SHARDS = 8, 4, 20


def cases(handle: str) -> Iterator[tuple[int, Tree, str]]:
    """Yield the trees of one contract, the same on every machine, each with what was changed."""
    for number in range(OF_EACH):
        chance = random.Random(f"{handle} {number}")
        tree, changes = generate(PAGES[handle], chance), []
        for _ in range(0 if number % UNCHANGED == 0 else 2 if number % CHANGED_TWICE == 1 else 1):
            tree, what = mutate(tree, chance)
            changes.append(what)
        yield number, tree, ", ".join(changes)


@pytest.mark.parametrize("handle", PAGES)
def test_nothing_is_accepted_that_the_page_refuses(handle: str, tmp_path: Path, record_property: pytest.RecordProperty) -> None:
    counts: Counter[str] = Counter()
    faults = []
    for number, tree, changes in cases(handle):
        inspection = inspect(write(tmp_path / "tree", tree))
        found = [*judged_faults(tree, inspection, handle if not changes else "", counts), *account_faults(tree, inspection)]
        if number % IN_TWO_SHARDS == 0 and len(tree.tensors) > 1 and len(tree.metadata) == 0:
            again = inspect(write(tmp_path / "shards", tree, shards=2))
            counts["in two shards"] += 1
            if (again.contract, set(again.codes)) != (inspection.contract, set(inspection.codes)):
                found.append(f"in two shards: {again.contract or again.codes}, in one {inspection.contract or inspection.codes}")
        if not inspection.accepted:
            well_formed(inspection.violations)
        counts["trees"] += 1
        faults += [f"{number}: {each}; {changes or 'unchanged'}: {tree}" for each in found]
    record_property("generated trees", dict(counts))
    print(f"{handle}: {dict(counts)}")
    assert not faults, "\n".join([f"{len(faults)} faults", *sorted(faults, key=len)[:12]])


def write(folder: Path, tree: Tree, shards: int = 1) -> Path:
    """Write a tree into a folder that is used again, with a hole for a payload."""
    folder.mkdir(exist_ok=True)
    for each in folder.iterdir():
        each.unlink()
    metadata = {key: json.dumps(value) for key, value in tree.metadata.items()}
    for number in range(shards):
        part = {name: each for place, (name, each) in enumerate(tree.tensors.items()) if place % shards == number}
        name = "model.safetensors" if shards == 1 else f"model-{number + 1:05}-of-{shards:05}.safetensors"
        write_raw(folder / name, header_bytes(part, metadata or None), payload_size(part))
    for name, content in tree.files.items():
        (folder / name).write_text(json.dumps(content), "utf-8")
    return folder


def judged_faults(tree: Tree, inspection: Inspection, unchanged: str, counts: Counter[str]) -> Iterator[str]:
    """Yield what the verdict has against it: an accepted tree must be in the page, one that is as its page says accepted."""
    if inspection.contract is not None:
        counts["accepted"] += 1
        verdict = judge_tree(tree, PAGES[inspection.contract], PAGES)
        if not verdict.accepted:
            yield f"accepted as {inspection.contract}, and its page refuses: {'; '.join(verdict.reasons)}"
        else:
            yield from kind_faults(tree, inspection, verdict.kinds)
    if not unchanged:
        return
    if not judge_tree(tree, PAGES[unchanged], PAGES).accepted:
        yield f"made for {unchanged}, and its page refuses: {judge_tree(tree, PAGES[unchanged], PAGES).reasons}"
    elif inspection.contract is None:
        yield f"made for {unchanged} and refused: {'; '.join(map(str, inspection.violations))}"
    elif inspection.contract != unchanged:
        counts[f"{inspection.contract} accepts it too"] += 1


def kind_faults(tree: Tree, inspection: Inspection, kinds: dict[str, str]) -> Iterator[str]:
    """Yield each row of the account that has other tensors than the oracle counts."""
    assert inspection.account is not None
    for row in inspection.account.rows:
        names = [name for name, kind in kinds.items() if kind == row.kind]
        size = sum(size_in_bytes(*tree.tensors[name]) for name in names)
        if (row.tensors, row.bytes) != (len(names), size):
            yield f"the account has {row.tensors} {row.kind} of {row.bytes} bytes, the oracle {len(names)} of {size}"


def account_faults(tree: Tree, inspection: Inspection) -> Iterator[str]:
    """Yield where the account does not add up, or has a tensor that is refused among the others."""
    account = inspection.account
    if account is None:
        return
    count, size = len(tree.tensors), payload_size(tree.tensors)
    rows = (sum(row.tensors for row in account.rows), sum(row.bytes for row in account.rows))
    if not (rows == (account.tensors, account.bytes) == (count, size)):
        yield f"the account has {rows}, the tree {count} tensors of {size} bytes"
    if min(min(row.tensors, row.bytes) for row in account.rows) < 0:
        yield "the account has less than nothing"
    named = {each.object for each in inspection.violations} & tree.tensors.keys()
    refused = account.of("refused")
    if refused.tensors < len(named) or refused.bytes < sum(size_in_bytes(*tree.tensors[name]) for name in named):
        yield f"violations name {len(named)} tensors, and the account refuses {refused.tensors}"
    if inspection.accepted and refused.tensors:
        yield f"accepted, and {refused.tensors} tensors are refused"
