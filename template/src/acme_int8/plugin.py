"""What the entry point names: the contracts that this plugin owns, and the decoder that reads them.

The module is imported wherever lanes are derived and checkpoints inspected, without torch: import torch inside the
function that computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tensorhub_decoders.decoding import decode_units

from tensorhub_contracts import DecodedTensor, Inspection, OwnedContracts, hookimpl, implements_contract, read_contracts

if TYPE_CHECKING:
    import torch

#: The version of the plugin interface that this module was written for.
TENSORHUB_PLUGIN_API = 1

OWNED = read_contracts(files(__package__).joinpath("contracts.toml").read_text("utf-8"), name="acme_int8/contracts.toml")


@implements_contract(
    contract=OWNED["acme.int8-channel@1"],
    serves=("int8-w8a16",),
    composes_lora=True,
    requires=("torch",),
    why="Acme's checkpoints are in this layout; weights are upcast ahead of time, on any device.",
)
def decode_int8_channel(inspection: Inspection, *, lane: str, dtype: str) -> Iterator[DecodedTensor]:
    """Yield every tensor of a proved checkpoint by its name: weights decoded to `dtype`, the rest as it is stored."""

    def dequantize(unit: Mapping[str, torch.Tensor], out_dtype: torch.dtype) -> torch.Tensor:
        import torch

        return (unit["weight"].to(torch.float32) * unit["scale"][:, None]).to(out_dtype)

    return decode_units(inspection, dequantize, contract="acme.int8-channel@1", lane=lane, dtype=dtype, compute_path="cpu.int8_upcast")


@hookimpl
def provide_contracts() -> OwnedContracts:
    """The contracts that this plugin owns."""
    return OWNED


@hookimpl
def provide_decoders() -> tuple[Callable[..., Any], ...]:
    """The decoders of this plugin."""
    return (decode_int8_channel,)
