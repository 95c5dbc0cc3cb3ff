"""Further files as ComfyUI writes them: T5-XXL in scaled FP8, LTX-2 in FP8 and LTX-2.5 in NVFP4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from tests.support.releases.facts import Account, Damage, Release
from tests.support.releases.flux import t5
from tests.support.releases.sparse_shards import Tensor, as_serialized

# T5-XXL: the empty marker, and the embedding twice, as F16.


def _t5_scaled() -> Iterator[Tensor]:
    yield "scaled_fp8", "F8_E4M3", (0,)
    for name in ("shared.weight", "encoder.embed_tokens.weight"):
        yield name, "F16", (32128, 4096)
    for name, shape in t5():
        if len(shape) == 2 and "relative" not in name:
            yield name, "F8_E4M3", shape
            yield name.removesuffix("weight") + "scale_weight", "F32", ()
        else:
            yield name, "F16", shape


T5_SCALED = Release(
    name="t5xxl-fp8-scaled",
    title="t5xxl_fp8_e4m3fn_scaled, the empty marker",
    tensors=lambda: iter(as_serialized(_t5_scaled())),
    metadata=lambda: None,
    shards=("t5xxl_fp8_e4m3fn_scaled.safetensors",),
    contract="comfy.fp8-scaled@1",
    account=Account(weights=168, sidecars=168, unquantized=52, bookkeeping=1),
    payload_bytes=5_157_302_944,
    file_bytes=5_157_348_688,
    published="The file's size, 5,157,348,688 bytes, to which payload and header come; the form: scaled_fp8 [0], scale_weight.",
    derived="Names and shapes, from the model's code; that the embedding lies there twice, from the size.",
    notes=("no decoder installed here reads comfy.fp8-scaled@1",),
    damage=Damage(
        "encoder.block.23.layer.1.DenseReluDense.wo.scale_weight",
        None,
        "scale-missing",
        "encoder.block.23.layer.1.DenseReluDense.wo.weight",
    ),
)


# LTX-2: 48 blocks of a video stream, 4,096 wide, and a stream of sound, 2,048 wide, that look at each other.

_VIDEO, _SOUND, _OUT = 4096, 2048, 128
#: Attention by name: the widths of what asks, of what is asked, and of the heads.
_ATTENTION = (
    ("attn1", _VIDEO, _VIDEO, _VIDEO),
    ("attn2", _VIDEO, _VIDEO, _VIDEO),
    ("audio_attn1", _SOUND, _SOUND, _SOUND),
    ("audio_attn2", _SOUND, _SOUND, _SOUND),
    ("audio_to_video_attn", _VIDEO, _SOUND, _SOUND),
    ("video_to_audio_attn", _SOUND, _VIDEO, _SOUND),
)


def _linears(prefix: str) -> Iterable[tuple[str, int, int]]:
    """Yield the 28 matrices of a block."""
    for name, asks, asked, heads in _ATTENTION:
        yield f"{prefix}.{name}.to_q", heads, asks
        yield f"{prefix}.{name}.to_k", heads, asked
        yield f"{prefix}.{name}.to_v", heads, asked
        yield f"{prefix}.{name}.to_out.0", asks, heads
    for name, width in (("ff", _VIDEO), ("audio_ff", _SOUND)):
        yield f"{prefix}.{name}.net.0.proj", 4 * width, width
        yield f"{prefix}.{name}.net.2", width, 4 * width


def _unscaled(prefix: str) -> Iterable[Tensor]:
    """Yield what a block has beside its matrices and their biases."""
    for name, *_, heads in _ATTENTION:
        yield f"{prefix}.{name}.q_norm.weight", "BF16", (heads,)
        yield f"{prefix}.{name}.k_norm.weight", "BF16", (heads,)
    for name, rows, width in (
        ("scale_shift_table", 6, _VIDEO),
        ("audio_scale_shift_table", 6, _SOUND),
        ("scale_shift_table_a2v_ca_video", 5, _VIDEO),
        ("scale_shift_table_a2v_ca_audio", 5, _SOUND),
    ):
        yield f"{prefix}.{name}", "BF16", (rows, width)


def _around(out: int) -> Iterable[tuple[str, int, int]]:
    """Yield the matrices before and after the blocks; the last is that of the output."""
    for stream, width in (("", _VIDEO), ("audio_", _SOUND)):
        yield f"{stream}patchify_proj", width, _OUT
        yield f"{stream}caption_projection.linear_1", width, 3840
        yield f"{stream}caption_projection.linear_2", width, width
        yield f"{stream}adaln_single.linear", 6 * width, width
        yield f"{stream}adaln_single.emb.timestep_embedder.linear_1", width, 256
        yield f"{stream}adaln_single.emb.timestep_embedder.linear_2", width, width
    yield "audio_proj_out", _OUT, _SOUND
    yield "proj_out", out, _VIDEO


_MODEL = "model.diffusion_model"


def _ltx2() -> Iterator[Tensor]:
    for module, rows, columns in _around(_OUT):
        yield f"{_MODEL}.{module}.weight", "BF16", (rows, columns)
        yield f"{_MODEL}.{module}.bias", "BF16", (rows,)
    for block in range(48):
        prefix = f"{_MODEL}.transformer_blocks.{block}"
        for module, rows, columns in _linears(prefix):
            yield f"{module}.weight", "F8_E4M3", (rows, columns)
            yield f"{module}.weight_scale", "F32", ()
            yield f"{module}.input_scale", "F32", ()
            yield f"{module}.bias", "BF16", (rows,)
        yield from _unscaled(prefix)


def _ltx2_metadata() -> Mapping[str, str]:
    modules = [name.removesuffix(".weight") for name, dtype, _ in _ltx2() if dtype == "F8_E4M3"]
    layers = {module: {"format": "float8_e4m3fn"} for module in modules}
    return {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})}


LTX2_FP8 = Release(
    name="ltx-2-fp8",
    title="LTX-2 in FP8, declared in the header",
    tensors=_ltx2,
    metadata=_ltx2_metadata,
    shards=("ltx-2-19b-dev-fp8.safetensors",),
    contract="comfy.fp8-declared@1",
    account=Account(weights=48 * 28, sidecars=48 * 56, unquantized=48 * (28 + 16) + 28),
    payload_bytes=18_930_285_568,
    published="The declaration in the header, scalar weight_scale and input_scale; the configuration and the names in the model's code.",
    derived="All shapes, from the configuration. Which matrices are scaled is inferred: those of the blocks.",
    notes=("no decoder installed here reads comfy.fp8-declared@1",),
    damage=Damage(
        f"{_MODEL}.transformer_blocks.47.audio_ff.net.2.weight_scale",
        None,
        "scale-missing",
        f"{_MODEL}.transformer_blocks.47.audio_ff.net.2.weight",
    ),
)


# LTX-2.5: nothing declares it; the padded grid of proj_out, of 64 rows, tells that scales are swizzled.


def _ltx25() -> Iterator[Tensor]:
    for module, rows, columns in _around(64):
        if module == "proj_out":
            yield from _packed(module, rows, columns)
        else:
            yield f"{module}.weight", "BF16", (rows, columns)
        yield f"{module}.bias", "BF16", (rows,)
    for block in range(48):
        prefix = f"transformer_blocks.{block}"
        for module, rows, columns in _linears(prefix):
            yield from _packed(module, rows, columns)
            yield f"{module}.bias", "BF16", (rows,)
        yield from _unscaled(prefix)


def _packed(module: str, rows: int, columns: int) -> Iterator[Tensor]:
    yield f"{module}.weight", "U8", (rows, columns // 2)
    yield f"{module}.weight_scale", "F8_E4M3", (-(-rows // 128) * 128, columns // 16)
    yield f"{module}.weight_scale_2", "F32", ()
    yield f"{module}.input_scale", "F32", ()


LTX25_NVFP4 = Release(
    name="ltx-2.5-nvfp4",
    title="LTX-2.5 in NVFP4, with a padded grid",
    tensors=_ltx25,
    shards=("ltx-2.5-nvfp4.safetensors",),
    contract="comfy.nvfp4-swizzled@1",
    account=Account(weights=48 * 28 + 1, sidecars=3 * (48 * 28 + 1), unquantized=48 * (28 + 16) + 27),
    payload_bytes=10_826_005_384,
    published="to_q U8 [4096, 2048] with [4096, 256], proj_out U8 [64, 2048] with [128, 256], two scalars each; nothing declares it.",
    derived="The other names and shapes, from the configuration of LTX-2. Which matrices are scaled is inferred.",
    notes=("no decoder installed here reads comfy.nvfp4-swizzled@1",),
    damage=Damage("transformer_blocks.0.attn1.to_q.weight_scale", ("F8_E4M3", (4096, 260)), "scale-grid"),
)
