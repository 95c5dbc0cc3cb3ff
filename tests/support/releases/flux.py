"""FLUX: flux1-dev-fp8 with its text encoders and decoder of images in one file, FLUX.1 as ComfyUI scales it, and FLUX.2 with its notes.

All of FLUX.1's file is known: readers of its header published the number of its tensors and the bytes of each dtype, and these shapes come
to them. FLUX.2's are derived from its configuration, and from the one matrix that is published.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from tests.support.releases.facts import Account, Damage, Release
from tests.support.releases.sparse_shards import Tensor

_MODEL = "model.diffusion_model"
_T5 = "text_encoders.t5xxl"
_CLIP = "text_encoders.clip_l.transformer"
#: Name and shape of a weight, without its dtype.
_Shapes = Iterable[tuple[str, tuple[int, ...]]]


def _linear(module: str, rows: int, columns: int) -> _Shapes:
    yield f"{module}.weight", (rows, columns)
    yield f"{module}.bias", (rows,)


# FLUX.1: 19 blocks of two streams and 38 of one, 3,072 wide.


def _flux1() -> _Shapes:
    yield from _linear("img_in", 3072, 64)
    yield from _linear("txt_in", 3072, 4096)
    for name, columns in (("time_in", 256), ("vector_in", 768), ("guidance_in", 256)):
        yield from _linear(f"{name}.in_layer", 3072, columns)
        yield from _linear(f"{name}.out_layer", 3072, 3072)
    for block in range(19):
        for stream in ("img", "txt"):
            prefix = f"double_blocks.{block}.{stream}"
            yield from _linear(f"{prefix}_mod.lin", 18432, 3072)
            yield from _linear(f"{prefix}_attn.qkv", 9216, 3072)
            yield from _linear(f"{prefix}_attn.proj", 3072, 3072)
            yield from _linear(f"{prefix}_mlp.0", 12288, 3072)
            yield from _linear(f"{prefix}_mlp.2", 3072, 12288)
            yield from _norms(f"{prefix}_attn.norm")
    for block in range(38):
        yield from _linear(f"single_blocks.{block}.modulation.lin", 9216, 3072)
        yield from _linear(f"single_blocks.{block}.linear1", 21504, 3072)
        yield from _linear(f"single_blocks.{block}.linear2", 3072, 15360)
        yield from _norms(f"single_blocks.{block}.norm")
    yield from _linear("final_layer.adaLN_modulation.1", 6144, 3072)
    yield from _linear("final_layer.linear", 64, 3072)


def _norms(prefix: str) -> _Shapes:
    yield f"{prefix}.query_norm.scale", (128,)
    yield f"{prefix}.key_norm.scale", (128,)


def t5() -> _Shapes:
    """Yield T5-XXL's encoder of 24 blocks, without its embedding."""
    for block in range(24):
        attention, feed_forward = (f"encoder.block.{block}.layer.{layer}" for layer in (0, 1))
        for name in "qkvo":
            yield f"{attention}.SelfAttention.{name}.weight", (4096, 4096)
        if block == 0:
            yield f"{attention}.SelfAttention.relative_attention_bias.weight", (32, 64)
        for name, shape in (("wi_0", (10240, 4096)), ("wi_1", (10240, 4096)), ("wo", (4096, 10240))):
            yield f"{feed_forward}.DenseReluDense.{name}.weight", shape
        yield f"{attention}.layer_norm.weight", (4096,)
        yield f"{feed_forward}.layer_norm.weight", (4096,)
    yield "encoder.final_layer_norm.weight", (4096,)


def _clip() -> _Shapes:
    yield "text_model.embeddings.token_embedding.weight", (49408, 768)
    yield "text_model.embeddings.position_embedding.weight", (77, 768)
    for layer in range(12):
        prefix = f"text_model.encoder.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from _linear(f"{prefix}.self_attn.{name}", 768, 768)
        yield from _linear(f"{prefix}.mlp.fc1", 3072, 768)
        yield from _linear(f"{prefix}.mlp.fc2", 768, 3072)
        for norm in ("layer_norm1", "layer_norm2"):
            yield f"{prefix}.{norm}.weight", (768,)
            yield f"{prefix}.{norm}.bias", (768,)
    yield "text_model.final_layer_norm.weight", (768,)
    yield "text_model.final_layer_norm.bias", (768,)
    yield "text_projection.weight", (768, 768)


def _autoencoder() -> _Shapes:
    yield from _convolution("encoder.conv_in", 128, 3)
    for level, (inner, outer) in enumerate(((128, 128), (128, 256), (256, 512), (512, 512))):
        for block in range(2):
            yield from _residual(f"encoder.down.{level}.block.{block}", outer if block else inner, outer)
        if level < 3:
            yield from _convolution(f"encoder.down.{level}.downsample.conv", outer, outer)
    yield from _middle("encoder", 32)
    yield from _convolution("decoder.conv_in", 512, 16)
    for level, (inner, outer) in enumerate(((256, 128), (512, 256), (512, 512), (512, 512))):
        for block in range(3):
            yield from _residual(f"decoder.up.{level}.block.{block}", outer if block else inner, outer)
        if level:
            yield from _convolution(f"decoder.up.{level}.upsample.conv", outer, outer)
    yield from _middle("decoder", 3)


def _middle(prefix: str, out: int) -> _Shapes:
    """Yield the blocks between the two halves, and the end, which is 512 wide in the encoder and 128 in the decoder."""
    yield from _residual(f"{prefix}.mid.block_1", 512, 512)
    yield from _scale_and_shift(f"{prefix}.mid.attn_1.norm", 512)
    for name in ("q", "k", "v", "proj_out"):
        yield from _convolution(f"{prefix}.mid.attn_1.{name}", 512, 512, 1)
    yield from _residual(f"{prefix}.mid.block_2", 512, 512)
    width = 512 if prefix == "encoder" else 128
    yield from _scale_and_shift(f"{prefix}.norm_out", width)
    yield from _convolution(f"{prefix}.conv_out", out, width)


def _residual(prefix: str, inner: int, outer: int) -> _Shapes:
    yield from _scale_and_shift(f"{prefix}.norm1", inner)
    yield from _convolution(f"{prefix}.conv1", outer, inner)
    yield from _scale_and_shift(f"{prefix}.norm2", outer)
    yield from _convolution(f"{prefix}.conv2", outer, outer)
    if inner != outer:
        yield from _convolution(f"{prefix}.nin_shortcut", outer, inner, 1)


def _convolution(module: str, out: int, channels: int, size: int = 3) -> _Shapes:
    yield f"{module}.weight", (out, channels, size, size)
    yield f"{module}.bias", (out,)


def _scale_and_shift(module: str, width: int) -> _Shapes:
    yield f"{module}.weight", (width,)
    yield f"{module}.bias", (width,)


def _flux1_dev_fp8() -> Iterator[Tensor]:
    for name, shape in _flux1():
        yield f"{_MODEL}.{name}", "F8_E4M3", shape
    yield f"{_CLIP.removesuffix('.transformer')}.logit_scale", "F32", ()
    for name, shape in _clip():
        yield f"{_CLIP}.{name}", "F16", shape
    yield f"{_T5}.logit_scale", "F32", ()
    for name, shape in (("shared.weight", (32128, 4096)), *t5()):
        yield f"{_T5}.transformer.{name}", "F8_E4M3", shape
    for name, shape in _autoencoder():
        yield f"vae.{name}", "F32", shape


FLUX1_DEV_FP8 = Release(
    name="flux1-dev-fp8",
    title="flux1-dev-fp8",
    tensors=_flux1_dev_fp8,
    shards=("flux1-dev-fp8.safetensors",),
    contract="cozy.fp8-storage@1",
    # 780 in the diffusion model; 168 matrices of T5, its 49 norms, its embedding and its table of positions.
    account=Account(weights=780 + 219, sidecars=0, unquantized=443),
    payload_bytes=17_246_298_324,
    published="1,442 tensors, 17,246,298,324 bytes, and the bytes of each dtype: F8_E4M3 16,663,718,976, F16 247,300,608, F32 335,278,740.",
    derived="Names and shapes, from the models' code; they come to these numbers.",
    notes=(),
    damage=Damage(f"{_MODEL}.double_blocks.0.img_attn.qkv.weight", ("F8_E5M2", (9216, 3072)), "weight-dtype"),
)


# FLUX.1 as ComfyUI scales it: the marker of two elements asks for multiplication in full precision.


def _flux1_scaled() -> Iterator[Tensor]:
    yield "scaled_fp8", "F8_E4M3", (2,)
    for name, shape in _flux1():
        if len(shape) == 2 and "_blocks." in name:
            yield name, "F8_E4M3", shape
            yield name.removesuffix("weight") + "scale_weight", "F32", ()
        else:
            yield name, "BF16", shape


FLUX1_SCALED = Release(
    name="flux1-fp8-scaled",
    title="FLUX.1 in ComfyUI's scaled FP8, marker of two elements",
    tensors=_flux1_scaled,
    shards=("flux1_fp8_scaled.safetensors",),
    contract="comfy.fp8-scaled@1",
    account=Account(weights=190 + 114, sidecars=304, unquantized=780 - 304, bookkeeping=1),
    payload_bytes=11_968_589_122,
    published="The form: scaled_fp8 [2] in the file, scale_weight beside each weight; the model's shapes.",
    derived="Which matrices are scaled: those of the blocks.",
    notes=("no decoder installed here reads comfy.fp8-scaled@1",),
    damage=Damage("single_blocks.37.linear2.scale_weight", ("F32", (3072,)), "scale-rank"),
)


# FLUX.2: 8 blocks of two streams and 48 of one, 6,144 wide; modulation is shared by all blocks of a kind.


def _flux2() -> _Shapes:
    yield "img_in.weight", (6144, 128)
    yield "txt_in.weight", (6144, 15360)
    for name in ("time_in", "guidance_in"):
        yield f"{name}.in_layer.weight", (6144, 256)
        yield f"{name}.out_layer.weight", (6144, 6144)
    for name, rows in (
        ("double_stream_modulation_img", 36864),
        ("double_stream_modulation_txt", 36864),
        ("single_stream_modulation", 18432),
    ):
        yield f"{name}.lin.weight", (rows, 6144)
    for block in range(8):
        for stream in ("img", "txt"):
            prefix = f"double_blocks.{block}.{stream}"
            yield f"{prefix}_attn.qkv.weight", (18432, 6144)
            yield f"{prefix}_attn.proj.weight", (6144, 6144)
            yield f"{prefix}_mlp.0.weight", (36864, 6144)
            yield f"{prefix}_mlp.2.weight", (6144, 18432)
            yield from _norms(f"{prefix}_attn.norm")
    for block in range(48):
        yield f"single_blocks.{block}.linear1.weight", (55296, 6144)
        yield f"single_blocks.{block}.linear2.weight", (6144, 24576)
        yield from _norms(f"single_blocks.{block}.norm")
    yield "final_layer.adaLN_modulation.1.weight", (12288, 6144)
    yield "final_layer.linear.weight", (128, 6144)


def _flux2_noted() -> Iterator[Tensor]:
    note = len(json.dumps({"format": "float8_e4m3fn"}))
    for name, shape in _flux2():
        module = name.removesuffix(".weight")
        if "_blocks." in name and len(shape) == 2:
            yield name, "F8_E4M3", shape
            yield f"{module}.weight_scale", "F32", ()
            yield f"{module}.comfy_quant", "U8", (note,)
            yield f"{module}.input_scale", "F32", ()
        else:
            yield name, "BF16", shape


FLUX2_NOTED = Release(
    name="flux2-dev-fp8mixed",
    title="FLUX.2-dev in ComfyUI's FP8, a note beside each weight",
    tensors=_flux2_noted,
    shards=("flux2_dev_fp8mixed.safetensors",),
    contract="comfy.fp8-noted@1",
    account=Account(weights=160, sidecars=480, unquantized=139),
    payload_bytes=33_039_619_552,
    published="qkv [18432, 6144], its scalar weight_scale and input_scale, comfy_quant of 27 bytes; the configuration.",
    derived="The other shapes, from the configuration. Which matrices are scaled is inferred: those of the blocks.",
    notes=("no decoder installed here reads comfy.fp8-noted@1",),
    damage=Damage("double_blocks.0.txt_mlp.2.weight_scale", None, "scale-missing", "double_blocks.0.txt_mlp.2.weight"),
)


def _flux2_nvfp4() -> Iterator[Tensor]:
    for name, shape in _flux2():
        module = name.removesuffix(".weight")
        if "_blocks." in name and len(shape) == 2:
            yield name, "U8", (shape[0], shape[1] // 2)
            yield f"{module}.weight_scale", "F8_E4M3", (shape[0], shape[1] // 16)
            yield f"{module}.weight_scale_2", "F32", ()
            yield f"{module}.input_scale", "F32", ()
        else:
            yield name, "BF16", shape


def _flux2_nvfp4_metadata() -> Mapping[str, str]:
    modules = [name.removesuffix(".weight") for name, dtype, _ in _flux2_nvfp4() if dtype == "U8"]
    layers = {module: {"format": "nvfp4"} for module in modules}
    return {"_quantization_metadata": json.dumps({"format_version": "1.0", "layers": layers})}


FLUX2_NVFP4 = Release(
    name="flux2-dev-nvfp4",
    title="FLUX.2-dev in NVFP4, declared in the header",
    tensors=_flux2_nvfp4,
    metadata=_flux2_nvfp4_metadata,
    shards=("flux2-dev-nvfp4.safetensors",),
    contract="comfy.nvfp4-swizzled@1",
    account=Account(weights=160, sidecars=480, unquantized=139),
    payload_bytes=19_299_075_328,
    published="The form: _quantization_metadata in the header, scales in two dimensions, swizzled; the configuration.",
    derived="All shapes, from the configuration. Which matrices are scaled is inferred: those of the blocks.",
    notes=("no decoder installed here reads comfy.nvfp4-swizzled@1",),
    damage=Damage("single_blocks.0.linear1.weight_scale", ("F8_E4M3", (384, 55296)), "scale-grid-transposed"),
)
