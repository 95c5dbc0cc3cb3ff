"""The operator in torch: its schema, its fake results, compiled graphs, and no gradient. On CPU tensors, by a stand-in where none is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config
from tensorhub_cuda.errors import KernelArgumentError
from tensorhub_cuda.launch.torch_op import NAME, block_fp8_linear, fake_block_fp8_linear
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.kernels.mock_driver.operands import Operands, exact_y, operands

LAYOUTS = (("block", "plain"), ("row", "padded"), ("block", "three dimensions"), ("block", "not collapsible"), ("row", "vector"))
CASES = [
    pytest.param(compute, grid, layout, id=f"{compute}-{grid}-{layout}")
    for compute in ("w8a16", "w8a32", "w8a8")
    for grid, layout in LAYOUTS
]


def in_float64(
    x: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    scale_rows: torch.Tensor | None,
    bias: torch.Tensor | None,
    compute: str,
    grid: str,
) -> torch.Tensor:
    return exact_y(Operands(x, weight, scale, scale_rows, bias, compute, grid)).to(x.dtype)


@pytest.fixture(autouse=True)
def cpu_implementation() -> Iterator[None]:
    """Have one for CPU tensors: another package's where it is registered, else float64's."""
    if torch._C._dispatch_has_kernel_for_dispatch_key(NAME, "CPU"):
        yield
        return
    library = torch.library.Library("tensorhub", "IMPL")  # type: ignore[no-untyped-call]  # torch does not annotate it
    library.impl("block_fp8_linear", in_float64, "CPU")
    yield
    library._destroy()  # type: ignore[no-untyped-call]  # as above


@pytest.mark.parametrize(
    ("compute", "grid", "layout"), [*(("w8a16", *each) for each in LAYOUTS), ("w8a32", "block", "plain"), ("w8a8", "row", "padded")]
)
def test_opcheck(compute: str, grid: str, layout: str) -> None:
    case = operands(6, 200, 272, compute, grid, biased=True, layout=layout)
    results = torch.library.opcheck(block_fp8_linear, case.call)
    assert set(results.values()) == {"SUCCESS"}
    assert "test_aot_dispatch_dynamic" in results


@pytest.mark.parametrize("members", [(), (130, 1, 69)])
def test_opcheck_of_optional_operands(members: tuple[int, ...]) -> None:
    case = operands(6, 200, 272, "w8a16", "block", members=members)
    assert set(torch.library.opcheck(block_fp8_linear, case.call).values()) == {"SUCCESS"}


@pytest.mark.parametrize(("compute", "grid", "layout"), CASES)
def test_fake_and_meta_results_are_those_of_the_real(compute: str, grid: str, layout: str) -> None:
    for m in (6, 2, 0):
        if m == 0 and layout == "vector":
            continue
        case = operands(m, 200, 272, compute, grid, layout=layout)
        real = block_fp8_linear(*case.call)
        meta = block_fp8_linear(*case.on("meta").call)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fake = block_fp8_linear(*[mode.from_tensor(each) if isinstance(each, torch.Tensor) else each for each in case.call])
        for other in (meta, fake):
            assert (other.shape, other.dtype, other.stride()) == (real.shape, real.dtype, real.stride())
        assert (meta.device.type, fake.device.type) == ("meta", "cpu")


def test_fake_tensors_are_refused_as_real_ones_are() -> None:
    case = operands(6, 200, 272, "w8a16", "block").on("meta")
    with pytest.raises(KernelArgumentError, match="scale: "):
        fake_block_fp8_linear(case.x, case.weight, case.scale.t().contiguous(), None, None, "w8a16", "block")


#: Inductor compiles the multiplication before the operator with g++, which is what takes its time: without vectors it takes less.
QUICK = {"compile_threads": 1, "cpp.simdlen": 1, "cpp_cache_precompile_headers": False}


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_as_one_graph_for_any_number_of_rows(backend: str) -> None:
    torch._dynamo.reset()
    case = operands(6, 200, 272, "w8a16", "block", biased=True)
    graphs = 0

    def model(x: torch.Tensor) -> torch.Tensor:
        return block_fp8_linear(x * 2, *case.call[1:])

    def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        nonlocal graphs
        graphs += 1
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=counting)
    with warnings.catch_warnings(), torch.no_grad(), torch._inductor.config.patch(QUICK):
        warnings.simplefilter("ignore")  # of torch's own modules
        for rows in (6, 3, 17, 64):
            x = torch.randn(rows, 272).to(torch.bfloat16)
            torch.testing.assert_close(compiled(x), model(x), rtol=2**-7, atol=1e-3)
    assert graphs == 1, "one graph for all numbers of rows"


def test_a_backward_is_refused_by_name() -> None:
    case = operands(6, 200, 272, "w8a16", "block")
    x = case.x.clone().requires_grad_()
    y = block_fp8_linear(x, *case.call[1:])
    with pytest.raises(NotImplementedError, match=f"{NAME} computes no gradient: it is for inference"):
        y.sum().backward()
    with torch.inference_mode():
        assert torch.equal(block_fp8_linear(x, *case.call[1:]), y.detach())
    with torch.no_grad():
        assert not block_fp8_linear(x, *case.call[1:]).requires_grad


def test_the_schema_is_the_contract() -> None:
    operands_of = "Tensor x, Tensor weight, Tensor scale, Tensor? scale_rows, Tensor? bias, str compute, str grid"
    assert str(block_fp8_linear._schema) == f"{NAME}({operands_of}) -> Tensor"
    assert torch.Tag.pt2_compliant_tag in block_fp8_linear.tags
    assert torch._C._dispatch_has_kernel_for_dispatch_key(NAME, "CUDA")
