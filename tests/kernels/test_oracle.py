"""The oracle: its files are made again byte for byte, its judge has teeth, and its w8a32 equals a loop in C."""

from __future__ import annotations

import ast
import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.kernels.oracle import fixture_files, generate, mistakes, number_formats, verdicts
from tests.kernels.oracle.fixture_files import FOLDER, MANIFEST, FixtureError, read_manifest, read_tensors, verify_files
from tests.kernels.oracle.problems import BLOCK, SHAPES, make_problem
from tests.kernels.oracle.references import operands
from tests.kernels.receipt.cases import Case, read_cases

ORACLE = Path(fixture_files.__file__).parent
CASES = read_cases(read_manifest(), FOLDER)


def test_the_files_are_made_again_byte_for_byte(tmp_path: Path) -> None:
    generate.write_oracle(tmp_path / "fixtures", tmp_path / "manifest.json")
    assert (tmp_path / "manifest.json").read_bytes() == MANIFEST.read_bytes()
    for path in sorted((tmp_path / "fixtures").iterdir()):
        assert path.read_bytes() == (FOLDER / path.name).read_bytes(), path.name
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000


def test_the_committed_files_are_those_of_the_manifest() -> None:
    assert verify_files(read_manifest()) == len(SHAPES) + 1


def test_every_difference_from_the_manifest_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "fixtures"
    shutil.copytree(FOLDER, folder)
    content = bytearray((folder / "tails.safetensors").read_bytes())
    content[-1] ^= 1
    (folder / "tails.safetensors").write_bytes(content)
    (folder / "slice.safetensors").unlink()
    (folder / "members.safetensors").write_bytes((folder / "members.safetensors").read_bytes()[:-1])
    (folder / "another.safetensors").write_bytes(b"")
    with pytest.raises(FixtureError) as caught:
        verify_files(read_manifest(), folder)
    said = sorted(caught.value.violations)
    assert len(said) == 4
    begins = (
        "another.safetensors: a file",
        "members.safetensors: ",
        "slice.safetensors: the file is missing",
        "tails.safetensors: SHA-256",
    )
    for each, words in zip(said, begins, strict=True):
        assert each.startswith(words)


def test_the_generator_imports_nothing_of_ours() -> None:
    for path in ORACLE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", None) or ""]
            assert not [name for name in names if name.startswith(("tensorhub", "kernels.emulator", "torch"))], path.name


def test_the_cases_tell_apart_what_they_must() -> None:
    assert {name for case in CASES for name in case.facts["known_bad"]} == set(mistakes.MISTAKES)
    for lane in ("w8a32", "w8a16", "w8a8"):
        of_lane = [case.facts for case in CASES if case.lane == lane]
        assert {facts["grid"] for facts in of_lane} == {"block", "row"}
        assert {facts["scale_dtype"] for facts in of_lane} == {"BF16", "F32"}
        assert any(facts["n"] % BLOCK and facts["k"] % BLOCK and facts["n"] != facts["k"] for facts in of_lane)
        assert any(facts["scale_rows"] for facts in of_lane)
        assert any(facts["weight_stride"] > facts["k"] and facts["x_stride"] > facts["k"] for facts in of_lane)
        assert any(facts["k"] % 16 for facts in of_lane) == (lane != "w8a8")
    codes = np.unique(read_tensors(FOLDER / "tile.safetensors")["weight"])
    assert len(codes) == 254, "every finite code is among the weights"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_judge_refuses_known_bad_answers_and_accepts_the_right_one(case: Case) -> None:
    expected = case.tensors[f"{case.lane}.expected"]
    right = mistakes.as_output(case.lane, expected)
    assert case.judge(right).passed, case.judge(right).detail
    assert case.facts["known_bad"]
    for name, wrong in case.known_bad().items():
        judgement = case.judge(wrong)
        assert not judgement.passed, name
        assert judgement.worst > 1.4, (name, judgement.worst)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_judge_sees_one_wrong_element(case: Case) -> None:
    """One bit of F32, or two units in the last place of BF16 where the tolerance of sums is smaller than one."""
    answer = mistakes.as_output(case.lane, case.tensors[f"{case.lane}.expected"])
    element = tuple(size - 1 for size in answer.shape)
    if case.lane == "w8a32":
        answer.view(np.uint32)[element] ^= 1
    else:
        answer[element] += 2 if case.lane == "w8a16" else 64
    judgement = case.judge(answer)
    assert not judgement.passed
    assert f"1 of {answer.size} elements wrong, the first at {element}" in judgement.detail


def test_the_judge_refuses_what_is_no_number_and_another_shape() -> None:
    case = next(case for case in CASES if case.name == "whole-blocks/w8a16")
    answer = mistakes.as_output("w8a16", case.tensors["w8a16.expected"])
    assert not case.judge(answer[:, :-1]).passed
    for bits in (0x7FC0, 0x7F80, 0xFF80):
        broken = answer.copy()
        broken[0, 0] = bits
        assert not case.judge(broken).passed


# ---- w8a32's order, against C. --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scalar(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("scalar") / "scalar_loop.so"
    options = ["-O2", "-std=c11", "-ffp-contract=off", "-fno-builtin-fmaf", "-fPIC", "-shared"]
    subprocess.run(["gcc", *options, str(ORACLE / "scalar_loop.c"), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def _pointer(array: NDArray[Any] | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def _fmaf(scalar: ctypes.CDLL, *abc: NDArray[np.float32]) -> NDArray[np.float32]:
    result = np.empty_like(abc[0])
    scalar.fused_each(*(_pointer(np.ascontiguousarray(each)) for each in abc), _pointer(result), result.size)
    return result


@pytest.mark.parametrize(("smallest", "largest"), [(64, 190), (20, 100)], ids=["ordinary", "to zero and subnormals"])
def test_fused_multiply_add_is_that_of_c(scalar: ctypes.CDLL, smallest: int, largest: int) -> None:
    random = np.random.Generator(np.random.PCG64(largest))
    bits = random.integers(0, 2**32, (3, 200_000), dtype=np.uint32) & 0x807FFFFF
    a, b, c = (bits | random.integers(smallest, largest, bits.shape, dtype=np.uint32) << 23).view(np.float32)
    near = (-a.astype(np.float64) * b * random.uniform(0.9, 1.1, a.size)).astype(np.float32)  # sums that cancel
    for addend in (c, near, np.zeros_like(c)):
        found = number_formats.fused_multiply_add(a, b, addend)
        assert np.array_equal(found.view(np.uint32), _fmaf(scalar, a, b, addend).view(np.uint32))


def test_fused_multiply_add_rounds_once(scalar: ctypes.CDLL) -> None:
    """The product is 2⁻²⁴ less a hair that F64 loses beside 1 + 2⁻²³: rounding to F64 first makes a tie, and goes the other way."""
    a, b, c = (np.array([value], np.float32) for value in (2.0**-12 * (1 + 2.0**-23), 2.0**-12 * (1 - 2.0**-23), 1 + 2.0**-23))
    twice_rounded = (a.astype(np.float64) * b + c).astype(np.float32)
    assert _fmaf(scalar, a, b, c) == number_formats.fused_multiply_add(a, b, c) == c != twice_rounded


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if "w8a32" in shape.lanes], ids=lambda shape: shape.name)
def test_w8a32_equals_a_scalar_loop(scalar: ctypes.CDLL, shape: Any) -> None:
    of = operands("w8a32", make_problem(shape))
    inputs = [None if each is None else np.ascontiguousarray(each) for each in (of.x, of.weight, of.scales, of.bias)]
    y = np.empty((shape.m, shape.n), np.float32)
    scalar.linear(*map(_pointer, inputs), _pointer(y), shape.m, shape.n, shape.k)
    expected = read_tensors(FOLDER / f"{shape.name}.safetensors")["w8a32.expected"]
    assert verdicts.same_bits(y, expected).passed, verdicts.same_bits(y, expected).detail


# ---- Numbers, against torch's casts. --------------------------------------------------------------------------------------


def test_conversions_are_those_of_torch() -> None:
    tables = read_tensors(FOLDER / "conversions.safetensors")
    codes = torch.from_numpy(tables["codes"]).view(torch.float8_e4m3fn).float().numpy()
    assert np.array_equal(codes, tables["codes.f32"], equal_nan=True)
    bf16 = torch.from_numpy(tables["f32_to_bf16.inputs"]).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(bf16, tables["f32_to_bf16.bits"])
    clamped = torch.from_numpy(tables["f32_to_e4m3.inputs"]).clamp(-448, 448)
    assert np.array_equal(clamped.to(torch.float8_e4m3fn).view(torch.uint8).numpy(), tables["f32_to_e4m3.codes"])


def test_quantized_activations_are_those_of_torch() -> None:
    tables = read_tensors(FOLDER / "conversions.safetensors")
    x = torch.from_numpy(tables["quantize.x"].view(np.int16)).view(torch.bfloat16).float()
    for group, start in enumerate(range(0, x.shape[1], BLOCK)):
        part = x[:, start : start + BLOCK]
        scale = part.abs().amax(dim=1).clamp(min=1e-12) / 448
        assert np.array_equal(scale.numpy(), tables["quantize.scale"][:, group])
        codes = (part / scale[:, None]).to(torch.float8_e4m3fn).view(torch.uint8)
        assert np.array_equal(codes.numpy(), tables["quantize.codes"][:, start : start + BLOCK])


def test_the_manifest_says_what_the_judge_tolerates() -> None:
    assert json.loads(MANIFEST.read_text(encoding="utf-8"))["tolerances"] == verdicts.TOLERANCES
