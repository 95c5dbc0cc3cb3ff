"""What transformers and tensorhub do with sixteen block-FP8 trees: two good, two unusual and valid, twelve malformed.

Prints the table of the README. Each tree is a two-layer Llama with real bytes; `wrong` counts the tensors that were
loaded with other values than the checkpoint that the tree was made from means.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch
from safetensors.torch import save_file

from tensorhub_contracts import Inspection, inspect

Tensors = dict[str, torch.Tensor]
HIDDEN, VOCABULARY, LAYERS = 256, 256, 2
WEIGHT = "model.layers.1.mlp.down_proj.weight"
SCALE = WEIGHT + "_scale_inv"


class Tree(NamedTuple):
    """A tree to judge: what was done to a good one, and whether the result is still in the layout."""

    name: str
    valid: bool
    change: Callable[[Tensors, dict[str, Any]], None]
    intermediate: int = 512


def _config(intermediate: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": intermediate,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head"],
        },
    }


def _good(intermediate: int) -> Tensors:
    """A Llama with random codes (no NaN) and scales that are all different and no powers of two."""
    generator = torch.Generator().manual_seed(7)

    def dense(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * 0.02).bfloat16()

    tensors = {
        "model.embed_tokens.weight": dense(VOCABULARY, HIDDEN),
        "lm_head.weight": dense(VOCABULARY, HIDDEN),
        "model.norm.weight": dense(HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}{norm}.weight"] = dense(HIDDEN)
        for name, rows, columns in (
            ("self_attn.q_proj", 256, HIDDEN),
            ("self_attn.k_proj", 128, HIDDEN),
            ("self_attn.v_proj", 128, HIDDEN),
            ("self_attn.o_proj", HIDDEN, 256),
            ("mlp.gate_proj", intermediate, HIDDEN),
            ("mlp.up_proj", intermediate, HIDDEN),
            ("mlp.down_proj", HIDDEN, intermediate),
        ):
            codes = torch.randint(0, 127, (rows, columns), dtype=torch.uint8, generator=generator)
            codes |= torch.randint(0, 2, (rows, columns), dtype=torch.uint8, generator=generator) << 7
            tensors[f"{prefix}{name}.weight"] = codes.view(torch.float8_e4m3fn)
            grid = (-(-rows // 128), -(-columns // 128))
            tensors[f"{prefix}{name}.weight_scale_inv"] = torch.rand(grid, generator=generator) * 1e-3 + 1e-5
    return tensors


def _meaning(tensors: Tensors) -> Tensors:
    """Dequantize with ml_dtypes and NumPy: the F32 product, rounded to BF16. The block is 128, whatever the shapes."""
    meaning = {}
    for name, tensor in tensors.items():
        if name.endswith("_scale_inv"):
            continue
        scale = tensors.get(name + "_scale_inv")
        if scale is not None:
            values = tensor.view(torch.uint8).numpy().view(ml_dtypes.float8_e4m3fn).astype(np.float32)
            spread = scale.float().numpy().repeat(128, 0).repeat(128, 1)[: values.shape[0], : values.shape[1]]
            tensor = torch.from_numpy((values * spread).astype(ml_dtypes.bfloat16).view(np.int16)).view(torch.bfloat16)
        meaning[name] = tensor
    return meaning


def _rowwise(tensors: Tensors, config: dict[str, Any]) -> None:
    for name in [name for name in tensors if name.endswith("_scale_inv")]:
        rows = tensors[name.removesuffix("_scale_inv")].shape[0]
        tensors[name.removesuffix("_inv")] = torch.rand(rows) * 1e-3
        del tensors[name]


def _set(name: str, make: Callable[[Tensors], torch.Tensor]) -> Callable[[Tensors, dict[str, Any]], None]:
    return lambda tensors, config: tensors.update({name: make(tensors)})


TREES = (
    Tree("F32 grids", True, lambda tensors, config: None),
    Tree(
        "BF16 grids",
        True,
        lambda tensors, config: tensors.update({k: v.bfloat16() for k, v in tensors.items() if k.endswith("_scale_inv")}),
    ),
    Tree("448 rows: the last block is half full", True, lambda tensors, config: None, 448),
    Tree("576 rows, as in DeepSeek's kv_a projection", True, lambda tensors, config: None, 576),
    Tree("one grid transposed", False, _set(SCALE, lambda tensors: tensors[SCALE].t().contiguous())),
    Tree("one scale [out, 1] in place of its grid", False, _set(SCALE, lambda tensors: torch.rand(HIDDEN, 1) * 1e-3)),
    Tree("one scale [out]", False, _set(SCALE, lambda tensors: torch.rand(HIDDEN) * 1e-3)),
    Tree("one grid flattened", False, _set(SCALE, lambda tensors: tensors[SCALE].flatten())),
    Tree("one weight without a scale", False, lambda tensors, config: tensors.__delitem__(SCALE)),
    Tree("a rowwise tree under a blockwise declaration", False, _rowwise),
    Tree("two scales on one weight", False, _set(WEIGHT + "_scale", lambda tensors: torch.rand(HIDDEN))),
    Tree("one grid of 64 x 64 blocks, 128 declared", False, _set(SCALE, lambda tensors: torch.rand(4, 8) * 1e-3)),
    Tree(
        "64 x 64 declared, grids of 128 x 128",
        False,
        lambda tensors, config: config["quantization_config"].update(weight_block_size=[64, 64]),
    ),
    Tree("one weight of E5M2 bytes", False, _set(WEIGHT, lambda tensors: tensors[WEIGHT].view(torch.uint8).view(torch.float8_e5m2))),
    Tree("one weight dense, its scale left over", False, _set(WEIGHT, lambda tensors: torch.randn(HIDDEN, 512).bfloat16())),
    Tree("no quantization declared", False, lambda tensors, config: config.__delitem__("quantization_config")),
)


def load_with_transformers(folder: Path, meaning: Tensors) -> str:
    """Load the tree as users do, and say what came of it."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    except ImportError:
        raise  # that is this machine's fault, not the tree's
    except Exception as error:  # whatever else it raises is the answer
        return f"raises {type(error).__name__}"
    loaded = model.state_dict()
    wrong = sum(not torch.equal(loaded[name].float(), tensor.float()) for name, tensor in meaning.items() if name in loaded)
    return f"loads, **{wrong} tensor{'s' * (wrong > 1)} wrong**" if wrong else "loads, all right"


def judge(tree: Tree, folder: Path) -> tuple[str, Inspection]:
    """Write a tree, load it with transformers and inspect it."""
    tensors, config = _good(tree.intermediate), _config(tree.intermediate)
    meaning = _meaning(tensors)
    tree.change(tensors, config)
    if tree.valid:
        meaning = _meaning(tensors)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return load_with_transformers(folder, meaning), inspect(folder)


def main() -> None:
    """Print the table, and fail if a verdict is not the right one."""
    import transformers

    print(f"| tree | in the layout? | transformers {transformers.__version__} | tensorhub inspect |\n|---|---|---|---|")
    wrongly_judged = []
    silent = 0
    with tempfile.TemporaryDirectory() as scratch:
        for tree in TREES:
            loaded, inspection = judge(tree, Path(scratch) / "tree")
            verdict = (
                f"`{inspection.contract}`" if inspection.accepted else f"refused: {', '.join(f'`{code}`' for code in inspection.codes)}"
            )
            print(f"| {tree.name} | {'yes' if tree.valid else 'no'} | {loaded} | {verdict} |", flush=True)
            silent += "wrong" in loaded
            if inspection.accepted != tree.valid:
                wrongly_judged.append(tree.name)
    print(f"\ntransformers loads {silent} of {len(TREES)} with wrong values and no error; tensorhub misjudges {len(wrongly_judged)}.")
    if wrongly_judged:
        raise SystemExit(f"misjudged: {wrongly_judged}")


if __name__ == "__main__":
    main()
