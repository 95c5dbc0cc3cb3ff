"""Stored weights and what multiplies with them: which values are refused, which rows get which scales, and what else takes an operand."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorhub_decoders.resident.stored_weight as module
import tensorhub_decoders.upcast.cutting as cutting
import torch
from tensorhub_decoders.resident.multiply import ResidentOperand, project
from tensorhub_decoders.resident.stored_weight import BlockStoredWeight, RowStoredWeight, StoredWeight
from torch.nn import functional

DTYPES = [torch.bfloat16, torch.float16, torch.float32]
NUMPY = {torch.bfloat16: ml_dtypes.bfloat16, torch.float16: np.float16, torch.float32: np.float32}


def codes(*shape: int, seed: int = 0) -> torch.Tensor:
    """Every code but NaN."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    stored = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    stored[(stored & 0x7F) == 0x7F] = 0x31
    return stored.view(torch.float8_e4m3fn)


def scales(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.rand(shape, generator=generator) * 1e-2 + 1e-4).to(dtype)


def block(rows: int, columns: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> BlockStoredWeight:
    return BlockStoredWeight(codes(rows, columns, seed=seed), scales(-(-rows // 128), -(-columns // 128), seed=seed, dtype=dtype))


def row(rows: int, columns: int, seed: int = 0) -> RowStoredWeight:
    return RowStoredWeight(codes(rows, columns, seed=seed), scales(rows, seed=seed))


def meant(unit: StoredWeight, dtype: torch.dtype) -> torch.Tensor:
    """The formula in numpy and ml_dtypes: the product in F32, then rounded."""
    values = unit.weight.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    scale = unit.scale.float().numpy()
    if isinstance(unit, BlockStoredWeight):
        rows = (np.arange(values.shape[0]) + (unit.first_row or 0)) // 128
        spread = scale[rows[:, None], (np.arange(values.shape[1]) // 128)[None]]
    else:
        spread = scale[:, None]
    rounded = (values * spread).astype(np.float32).astype(NUMPY[dtype])
    return torch.from_numpy(rounded.view(np.int16 if dtype.itemsize == 2 else np.int32)).view(dtype)


# ------------------------------------------------------------ values


@pytest.mark.parametrize("place", [0, 77, 256 * 3 - 1])
@pytest.mark.parametrize("code", range(256))
def test_each_of_the_256_codes_is_judged(code: int, place: int) -> None:
    stored = torch.zeros(3, 256, dtype=torch.uint8)
    stored.view(-1)[place] = code
    weight = stored.view(torch.float8_e4m3fn)
    expected = ["1 NaN codes"] if bool(weight.float().isnan().any()) else []
    assert module.value_faults(weight, torch.ones(1, 2)) == expected
    assert (code in (0x7F, 0xFF)) == bool(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("value", "good"),
    [(0.0, True), (1.0, True),
     (2.0**-20, True), (-1.0, False), (-(2.0**-14), False), (float("inf"), False), (float("-inf"), False), (float("nan"), False)],
)  # fmt: skip
def test_a_scale_is_finite_and_not_negative(value: float, good: bool, dtype: torch.dtype) -> None:
    scale = torch.ones(40, 50, dtype=dtype)
    scale[3, 4:7] = value
    expected = [] if good else ["3 scales that are negative or not finite"]
    assert module.value_faults(codes(4, 4), scale) == expected


def test_faults_of_codes_and_scales_are_counted_together() -> None:
    weight = codes(130, 300)
    weight.view(torch.uint8).view(-1)[::7] = 0x7F
    weight.view(torch.uint8).view(-1)[1::7] = 0xFF
    count = int(weight.float().isnan().sum())
    assert count > 11_000
    scale = torch.tensor([[float("nan"), 1.0, -1.0], [float("inf"), 1.0, 1.0]])
    faults = [f"{count:,} NaN codes", "3 scales that are negative or not finite"]
    assert module.value_faults(weight, scale) == faults
    with pytest.raises(ValueError, match=", ".join(faults)):
        module.require_values(weight, scale)


def test_other_dtypes_and_shapes_are_refused() -> None:
    for weight in (
        torch.zeros(4, 4),
        codes(4, 4).view(torch.uint8),
        codes(4),
        codes(2, 2, 2, 2),
        codes(4, 4).float().to(torch.float8_e5m2),
    ):
        with pytest.raises(ValueError, match="float8_e4m3fn of two dimensions"):
            BlockStoredWeight(weight, torch.ones(1, 1))
    for scale in (torch.ones(1, 4), torch.ones(4, 1, 1), torch.ones(3), torch.ones(())):
        with pytest.raises(ValueError, match="expected"):
            RowStoredWeight(codes(4, 4), scale)
    for scale in (torch.ones(3, 2), torch.ones(6), torch.ones(1, 2, 3)):
        with pytest.raises(ValueError, match="expected"):
            BlockStoredWeight(codes(130, 257), scale)


def test_rows_have_no_stack() -> None:
    """No contract has stacked rowwise units: three dimensions with one scale for each of the first would be another thing."""
    with pytest.raises(ValueError, match="two dimensions"):
        RowStoredWeight(codes(3, 4, 4), torch.ones(3))


# ------------------------------------------------------------ rows and their scales


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_any_rows_are_upcast_as_the_whole_is(dtype: torch.dtype) -> None:
    units = [block(300, 140), row(300, 140), BlockStoredWeight(codes(300, 140), scales(4, 2, dtype=torch.bfloat16), first_row=70)]
    for unit in units:
        whole = meant(unit, dtype)
        for begin, end in ((0, 300), (0, 1), (127, 129), (58, 59), (128, 256), (299, 300), (5, 5)):
            out = torch.full((end - begin, 140), 7.0, dtype=dtype)
            unit.upcast(begin, end, out)
            assert torch.equal(out, whole[begin:end]), (type(unit), begin, end)


def test_a_matrix_of_a_stack_is_the_same_memory() -> None:
    stack = BlockStoredWeight(codes(3, 130, 200), scales(3, 2, 2))
    for expert in range(3):
        one = stack.matrix(expert)
        assert one.weight.data_ptr() == stack.weight[expert].data_ptr()
        assert one.scale.data_ptr() == stack.scale[expert].data_ptr()
        out = torch.empty(130, 200)
        one.upcast(0, 130, out)
        assert torch.equal(out, meant(one, torch.float32))
    with pytest.raises(IndexError):
        stack.matrix(3)
    assert stack.nbytes == 3 * 130 * 200 + 4 * 12


def test_a_unit_on_its_device_is_itself() -> None:
    unit = BlockStoredWeight(codes(64, 64), scales(4, 1), first_row=300)
    assert unit.to(torch.device("cpu")) is unit
    moved = unit.to(torch.device("meta"))
    assert isinstance(moved, BlockStoredWeight)
    assert (moved.weight.device.type, moved.scale.device.type, moved.first_row) == ("meta", "meta", 300)


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 576, 5000])
@pytest.mark.parametrize("columns", [1, 128, 7168, 18_432])
def test_strips_are_whole_block_rows_and_cover_every_row_once(rows: int, columns: int) -> None:
    strips = list(cutting.strips(rows, columns, least=cutting.BLOCK, join_rest=True))
    assert [row for begin, end in strips for row in range(begin, end)] == list(range(rows))
    assert all(begin % 128 == 0 for begin, _ in strips)
    heights = {end - begin for begin, end in strips[:-1]}
    assert len(heights) <= 1
    assert all((end - begin) * columns <= max(cutting.STRIP_ELEMENTS, 128 * columns) for begin, end in strips)


# ------------------------------------------------------------ products


PARTS: dict[str, Callable[[], list[StoredWeight]]] = {
    "one": lambda: [block(576, 300)],
    "a projection in two": lambda: [block(160, 192, 1), block(160, 192, 2)],
    "three of other heights": lambda: [block(130, 140, 1), block(1, 140, 2), block(300, 140, 3)],
    "rows": lambda: [row(130, 140, 1), row(77, 140, 2)],
    "a slice and a whole": lambda: [BlockStoredWeight(codes(100, 140), scales(3, 2), first_row=200), block(200, 140)],
    "scales of two dtypes": lambda: [block(160, 140, 1, torch.bfloat16), block(160, 140, 2, torch.float16)],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("parts", PARTS)
def test_parts_are_one_matrix(parts: str, dtype: torch.dtype) -> None:
    """In one strip, and bitwise: each part has its own scales and origin."""
    units = PARTS[parts]()
    dense = torch.cat([meant(unit, dtype) for unit in units])
    bias = torch.randn(dense.shape[0]).to(dtype)
    for size in ((3,), (2, 5), (0,), ()):
        x = torch.randn(*size, dense.shape[1]).to(dtype)
        for given in (None, bias):
            y = project(x, units, given, 32 if dtype is torch.float32 else 16)
            assert y.shape == (*size, dense.shape[0])
            # A product of one row is computed by another function than one of a vector: both are given rows.
            expected = functional.linear(x.reshape(-1, x.shape[-1]), dense, given).reshape(y.shape)
            assert torch.equal(y, expected), (size, given is None)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Strips one after the other; threads that wait for each other are seen below, in a process that can be ended."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("parts", PARTS)
def test_strips_that_begin_and_end_in_other_parts_land_on_their_rows(parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "STRIP_ELEMENTS", 20_000)
    units = PARTS[parts]()
    dense = torch.cat([meant(unit, torch.float32) for unit in units])
    assert len(list(cutting.strips(*dense.shape, least=cutting.BLOCK, join_rest=True))) > 1
    x, bias = torch.randn(4, dense.shape[1]), torch.randn(dense.shape[0])
    exact = x.double() @ dense.double().t() + bias.double()
    scale = float((x.double().abs() @ dense.double().abs().t()).max())
    errors = (project(x, units, bias, 32).double() - exact).abs() / scale
    assert float(errors.max()) < 1e-6
    swapped = project(x, [*units[1:], units[0]], bias, 32) if len(units) > 1 else project(x.flip(0), units, bias, 32)
    assert float(((swapped.double() - exact).abs() / scale).max()) > 1e-3, "the control: other rows are seen"


def test_the_bias_is_taken_in_the_dtype_of_the_activations() -> None:
    unit = block(130, 140)
    x, bias = torch.randn(3, 140).half(), torch.randn(130).bfloat16()
    assert torch.equal(project(x, [unit], bias, 16), functional.linear(x, meant(unit, torch.float16), bias.half()))


def test_activations_of_another_width_are_an_error() -> None:
    for x in (torch.randn(4, 70), torch.randn(2, 280), torch.randn(1, 139), torch.randn(140, 1)):
        with pytest.raises(ValueError, match="for weights of 140 columns"):
            project(x, [block(130, 140)], None, 32)


def test_neither_mode_of_torch_spoils_the_memory_that_is_kept() -> None:
    """Memory that is made in inference mode may not be written outside of it: a first call there, and a second one anywhere."""
    unit = block(200, 300)
    x = torch.randn(2, 300)
    found: list[Any] = []

    def calls() -> None:  # in a thread, whose memory is fresh
        try:
            for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode):
                with mode():
                    found.append(project(x, [unit], None, 32).clone())
        except RuntimeError as error:
            found.append(error)

    thread = threading.Thread(target=calls)
    thread.start()
    thread.join()
    assert [type(each) for each in found] == [torch.Tensor] * 4, found
    assert all(torch.equal(each, found[0]) for each in found)


def test_threads_do_not_write_into_each_others_strips() -> None:
    units = [block(300, 200, seed) for seed in range(4)]
    x = torch.randn(3, 200)
    expected = [functional.linear(x, meant(unit, torch.float32)) for unit in units]
    wrong: list[int] = []

    def calls(number: int) -> None:
        for _ in range(50):
            if not torch.equal(project(x, [units[number]], None, 32), expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=calls, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_gradient_of_the_activations_is_an_error_and_never_a_wrong_number() -> None:
    """A strip is written again by the next projection, before a gradient could be computed from it."""
    unit = block(130, 140)
    dense = meant(unit, torch.float32)
    x = torch.randn(2, 140, requires_grad=True)
    for multiply in (
        lambda x: project(x, [unit], None, 32),
        lambda x: functional.linear(x, ResidentOperand([unit], 32)),
        lambda x: functional.linear(x * 2, ResidentOperand([unit], 32)),
    ):
        with pytest.raises(NotImplementedError, match="no gradient"):
            multiply(x)
    wanted = functional.linear(x.detach(), dense)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = project(x, [unit], None, 32)
        assert not y.requires_grad
        assert torch.equal(y, wanted)
    y = project(x.detach(), [unit], None, 32)
    assert torch.is_grad_enabled()
    assert not y.requires_grad
    assert torch.equal(y, wanted)


@pytest.mark.usefixtures("one_thread")
def test_no_more_than_a_strip_is_upcast_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    original = module.upcast_block_scaled

    def counted(weight: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
        rows.append(weight.shape[0])
        return original(weight, *others, **named)

    monkeypatch.setattr(module, "upcast_block_scaled", counted)
    project(torch.randn(1, 2048), [block(1500, 2048)], None, 32)
    assert sorted(rows) == [476, 512, 512]
    assert max(rows) * 2048 <= cutting.STRIP_ELEMENTS


NESTED = """
import torch
from tensorhub_decoders.resident.multiply import project
from tensorhub_decoders.resident.stored_weight import BlockStoredWeight
torch.set_num_threads(2)
codes = torch.zeros(2048, 2048, dtype=torch.uint8).view(torch.float8_e4m3fn)
unit = BlockStoredWeight(codes, torch.ones(17, 16), first_row=64)
for _ in range(20):
    project(torch.randn(1, 2048), [unit], None, 32)
"""


def test_strips_whose_upcast_has_strips_of_its_own_do_not_wait_for_each_other() -> None:
    """Each of them begins inside a block, and every thread is busy: work that they hand to the same threads never begins."""
    done = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


# ------------------------------------------------------------ the operand


@pytest.fixture
def operand() -> ResidentOperand:
    return ResidentOperand([block(160, 192, 1), block(160, 192, 2)], 32)


def test_linear_takes_an_operand_in_every_way_of_writing_it(operand: ResidentOperand) -> None:
    dense = torch.cat([meant(unit, torch.float32) for unit in operand.parts])
    x, bias = torch.randn(3, 192), torch.randn(320)
    assert operand.shape == (320, 192)
    assert torch.equal(functional.linear(x, operand), functional.linear(x, dense))  # type: ignore[arg-type]  # no tensor
    assert torch.equal(functional.linear(x, weight=operand, bias=None), functional.linear(x, dense))  # type: ignore[arg-type]
    for y in (functional.linear(x, operand, bias), functional.linear(input=x, weight=operand, bias=bias)):  # type: ignore[arg-type]
        assert torch.equal(y, functional.linear(x, dense, bias))
    with pytest.raises(ValueError, match="for weights of 192 columns"):
        functional.linear(x[:, :191], operand)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="activations of 32 bits"):
        functional.linear(x.bfloat16(), operand)  # type: ignore[arg-type]


OTHER_USES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "matmul": lambda operand, x: torch.matmul(x, operand),
    "@": lambda operand, x: x @ operand,
    "@ from the left": lambda operand, x: operand @ x,
    "mm": lambda operand, x: torch.mm(x, operand),
    "bmm": lambda operand, x: torch.bmm(x, operand),
    "einsum": lambda operand, x: torch.einsum("bi,oi->bo", x, operand),
    "addmm": lambda operand, x: torch.addmm(x, x, operand),
    "transpose": lambda operand, x: torch.transpose(operand, 0, 1),
    "t": lambda operand, x: torch.t(operand),
    "plus": lambda operand, x: operand + x,
    "plus a tensor": lambda operand, x: x + operand,
    "add": lambda operand, x: torch.add(operand, x),
    "times": lambda operand, x: x * operand,
    "index": lambda operand, x: operand[0],
    "index with a slice": lambda operand, x: operand[:, :3],
    "length": lambda operand, x: len(operand),
    "loop": lambda operand, x: list(operand),
    "clone": lambda operand, x: torch.clone(operand),
    "empty_like": lambda operand, x: torch.empty_like(operand),
    "cat": lambda operand, x: torch.cat([operand, operand]),
    "stack": lambda operand, x: torch.stack([x, operand]),
    "tensor": lambda operand, x: torch.tensor(operand),
    "linear the other way round": lambda operand, x: functional.linear(operand, x),
    "linear of two": lambda operand, x: functional.linear(operand, operand),
    "linear as a bias": lambda operand, x: functional.linear(x, x, operand),
    "bilinear": lambda operand, x: functional.bilinear(x, x, operand),
    "embedding": lambda operand, x: functional.embedding(x.long(), operand),
    "grouped": lambda operand, x: torch._grouped_mm(x.bfloat16(), operand),
    "copy_": lambda operand, x: x.copy_(operand),
    "numpy": lambda operand, x: x + np.asarray(operand, dtype=np.float32),
}


@pytest.mark.parametrize("use", OTHER_USES)
def test_nothing_else_takes_an_operand(use: str, operand: ResidentOperand) -> None:
    with pytest.raises(RuntimeError if use == "tensor" else TypeError):
        OTHER_USES[use](operand, torch.randn(192, 192))


@pytest.mark.parametrize("attribute", ["T", "mT", "data", "dtype", "to", "float", "transpose", "numpy", "dequantize", "clone"])
def test_an_operand_has_nothing_that_makes_a_tensor_of_it(attribute: str, operand: ResidentOperand) -> None:
    assert not hasattr(operand, attribute)
