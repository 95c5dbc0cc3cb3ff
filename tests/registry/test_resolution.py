"""Handles and how they are resolved: exactly, or through a recorded digest, and never by likeness."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorhub_contracts import Refusal, Registry, resolve
from tensorhub_contracts.registry.names import parse_handle
from tensorhub_contracts.registry.registry import load_registry, parse_registry
from tests.support.registry_texts import Table, changed, contract, small, to_toml
from tests.support.trees import fp8_config, judge, unit

BLOCKWISE = "hf.fp8-blockwise@1"
RECORDED = "sha256:" + "5" * 64

MALFORMED = {
    "upper-case": "HF.fp8-blockwise@1",
    "upper-case-format": "hf.FP8-blockwise@1",
    "underscore": "hf.fp8_blockwise@1",
    "leading-hyphen-producer": "-hf.fp8@1",
    "leading-hyphen-format": "hf.-fp8@1",
    "trailing-hyphen": "hf.fp8-@1",
    "double-hyphen": "hf.fp8--block@1",
    "no-producer": "fp8-blockwise@1",
    "three-segments": "hf.fp8.blockwise@1",
    "no-major": "hf.fp8-blockwise",
    "empty-major": "hf.fp8-blockwise@",
    "major-0": "hf.fp8-blockwise@0",
    "major-01": "hf.fp8-blockwise@01",
    "major-negative": "hf.fp8-blockwise@-1",
    "major-plus": "hf.fp8-blockwise@+1",
    "major-float": "hf.fp8-blockwise@1.0",
    "minor": "hf.fp8-blockwise@1.2",
    "huge-major": "hf.fp8-blockwise@" + "9" * 5000,
    "unicode-digits": "hf.fp8-blockwise@\N{ARABIC-INDIC DIGIT ONE}",
    "fullwidth-digits": "hf.fp8-blockwise@\N{FULLWIDTH DIGIT ONE}",
    "superscript": "hf.fp8-blockwise@\N{SUPERSCRIPT ONE}",
    "unicode-letters": "hf.fp\N{FULLWIDTH DIGIT EIGHT}@1",
    "cyrillic": "hf.fp8-bl\N{CYRILLIC SMALL LETTER O}ckwise@1",
    "trailing-newline": "hf.fp8-blockwise@1\n",
    "leading-space": " hf.fp8-blockwise@1",
    "trailing-space": "hf.fp8-blockwise@1 ",
    "inner-space": "hf.fp8 blockwise@1",
    "nul": "hf.fp8-blockwise@1\0",
    "empty": "",
    "slash": "hf/fp8-blockwise@1",
    "two-ats": "hf.fp8@1@1",
    "surrogate": "hf.fp8-\udc80@1",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_handle_is_refused_and_nothing_is_folded(text: str, tmp_path: Path) -> None:
    for call in (parse_handle, lambda each: resolve(each, load_registry())):
        with pytest.raises(Refusal) as caught:
            call(text)
        assert caught.value.codes == ("handle-malformed",)
        assert "hf.fp8-blockwise@1" in caught.value.violations[0].remedy
        str(caught.value).encode()  # fit to be printed, whatever the caller typed


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (BLOCKWISE, ("hf", "fp8-blockwise", 1)),
        ("compressed-tensors.fp8-block@1", ("compressed-tensors", "fp8-block", 1)),
        ("a-b-c.d-e-f@12", ("a-b-c", "d-e-f", 12)),
        ("3m.4bit@3", ("3m", "4bit", 3)),
        ("a.b@999999999", ("a", "b", 999999999)),
    ],
)
def test_segments_admit_hyphens_inside(text: str, parts: tuple[str, str, int]) -> None:
    handle = parse_handle(text)
    assert (handle.producer, handle.format, handle.major) == parts
    assert str(handle) == text
    assert handle.name == f"{parts[0]}.{parts[1]}"


SEGMENT = st.from_regex(r"[a-z0-9]+(-[a-z0-9]+){0,3}", fullmatch=True)


@given(SEGMENT, SEGMENT, st.integers(1, 999_999_999))
def test_every_well_formed_handle_comes_back_byte_for_byte(producer: str, layout: str, major: int) -> None:
    assert str(parse_handle(f"{producer}.{layout}@{major}")) == f"{producer}.{layout}@{major}"


@given(st.text(max_size=30))
def test_no_text_breaks_the_reader(text: str) -> None:
    with contextlib.suppress(Refusal):  # and no other error
        assert str(parse_handle(text)) == text


@pytest.mark.parametrize("handle", load_registry().contracts)
def test_every_contract_resolves_to_itself(handle: str) -> None:
    registry = load_registry()
    assert resolve(handle, registry).handle == handle
    assert resolve(handle, registry, digest=registry.digest(handle)).handle == handle


def test_a_wrong_digest_is_refused_with_both() -> None:
    registry = load_registry()
    for digest in (RECORDED, registry.digest("cozy.fp8-rowwise@1"), "", registry.digest(BLOCKWISE).upper()):
        with pytest.raises(Refusal) as caught:
            resolve(BLOCKWISE, registry, digest=digest)
        (violation,) = caught.value.violations
        assert violation.code == "contract-digest"
        assert violation.found == registry.digest(BLOCKWISE)
        assert caught.value.nearest == BLOCKWISE


def with_a_superseded_major() -> Registry:
    """A registry whose second major of the blockwise layout replaces a first one that it no longer lists."""

    def change(tables: Table) -> None:
        contract(tables, BLOCKWISE)["handle"] = "hf.fp8-blockwise@2"
        tables["superseded"] = [{"handle": BLOCKWISE, "digest": RECORDED, "by": "hf.fp8-blockwise@2"}]

    return parse_registry(to_toml(changed(small(), change)))


def test_a_superseded_major_resolves_by_its_recorded_digest_alone() -> None:
    registry = with_a_superseded_major()
    assert resolve(BLOCKWISE, registry, digest=RECORDED).handle == "hf.fp8-blockwise@2"
    for digest in (None, "", "sha256:" + "6" * 64, registry.digest("hf.fp8-blockwise@2")):
        with pytest.raises(Refusal) as caught:
            resolve(BLOCKWISE, registry, digest=digest)
        (violation,) = caught.value.violations
        assert violation.code == "contract-superseded"
        assert RECORDED in violation.expected
        assert violation.found == (digest or "no digest")
        assert caught.value.nearest == "hf.fp8-blockwise@2"


@pytest.mark.parametrize("major", [2, 3, 999])
def test_a_major_ahead_of_the_registry_is_a_refusal_of_its_own(major: int) -> None:
    with pytest.raises(Refusal) as caught:
        resolve(f"hf.fp8-blockwise@{major}", load_registry())
    (violation,) = caught.value.violations
    assert violation.code == "contract-ahead"
    assert BLOCKWISE in violation.expected
    assert "Update" in violation.remedy
    assert caught.value.nearest == BLOCKWISE


@pytest.mark.parametrize("digest", [None, RECORDED])
def test_a_major_ahead_resolves_by_no_digest(digest: str | None) -> None:
    registry = load_registry()
    with pytest.raises(Refusal) as caught:
        resolve("hf.fp8-blockwise@2", registry, digest=digest or registry.digest(BLOCKWISE))
    assert caught.value.codes == ("contract-ahead",)


def test_a_gap_below_the_listed_majors_is_unknown_and_not_ahead() -> None:
    def change(tables: Table) -> None:
        contract(tables, BLOCKWISE)["handle"] = "hf.fp8-blockwise@3"

    with pytest.raises(Refusal) as caught:
        resolve("hf.fp8-blockwise@2", parse_registry(to_toml(changed(small(), change))))
    assert caught.value.codes == ("contract-unknown",)
    assert caught.value.nearest == "hf.fp8-blockwise@3"


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("hf.fp8-blokwise@1", BLOCKWISE),
        ("cozy.fp8-row-wise@1", "cozy.fp8-rowwise@1"),
        ("cosy.fp8-storage@1", "cozy.fp8-storage@1"),
        ("plain.bfloat16@1", "plain.bf16@1"),
        ("compressed-tensor.fp8-channel@1", "compressed-tensors.fp8-channel@1"),
    ],
)
def test_an_unknown_handle_is_refused_and_the_nearest_suggested(text: str, nearest: str) -> None:
    with pytest.raises(Refusal) as caught:
        resolve(text, load_registry())
    (violation,) = caught.value.violations
    assert (violation.code, violation.object) == ("contract-unknown", text)
    assert nearest in violation.remedy
    assert caught.value.nearest == nearest
    assert caught.value.retryable is False


@pytest.mark.parametrize(
    ("asked", "code"), [("hf.fp8@01", "handle-malformed"), ("hf.fp8-blockwise@2", "contract-ahead"), ("acme.fp8@1", "contract-unknown")]
)
def test_an_inspection_for_a_contract_that_does_not_resolve_raises(asked: str, code: str, tmp_path: Path) -> None:
    """A mistake of the caller is no verdict on the checkpoint."""
    with pytest.raises(Refusal) as caught:
        judge(tmp_path, unit("w", 256, 384), fp8_config(), contract=asked)
    assert caught.value.codes == (code,)
