"""Writes what the comparison reads: the lanes of an image with their digest, worked out without the product, and two checkpoints."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema

from tensorhub_contracts.registry.registry import load_registry
from tensorhub_contracts.reports.schemas import json_schema
from tests.support.checkpoint_files import Tensors, write_checkpoint

BLOCKWISE, UNQUANTIZED = "hf.fp8-blockwise@1", "plain.bf16@1"
CONFIG = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}
FP8: Tensors = {"blocks.0.to_q.weight": ("F8_E4M3", (256, 384)), "blocks.0.to_q.weight_scale_inv": ("F32", (2, 3))}
TRANSPOSED: Tensors = {**FP8, "blocks.0.to_q.weight_scale_inv": ("F32", (3, 2))}
BF16: Tensors = {"decoder.weight": ("BF16", (8, 16))}


#: What of the lanes here the hub's table has.
OF_TABLE = {f"{body}+{execution}" for body in ("bf16-w16a16", "fp8-w8a16") for execution in ("eager", "compiled")} | {
    "fp8-w8a8-dynamic+compiled"
}


def by_table(lanes: Sequence[str]) -> dict[str, list[str]]:
    """Return lanes as a record has them: those of the hub's table, and those beyond it."""
    return {"lanes": [lane for lane in lanes if lane in OF_TABLE], "lanes_beyond_table": [lane for lane in lanes if lane not in OF_TABLE]}


def entry(contract: str, decoder: str, lanes: Sequence[str], floor: Any = "none", *, composes: bool = True) -> dict[str, Any]:
    """Return what one decoder serves, with the digest that this registry has for the contract."""
    told = {"distribution": "acme", "version": "1.0", "requires": [], "supersedes": [], "why": "declared"}
    floors = {lane.partition("+")[0]: floor for lane in lanes}
    digest = load_registry().digest(contract)
    return {
        "contract": contract,
        "digest": digest,
        "decoder": decoder,
        **by_table(lanes),
        "floors": floors,
        "composes_lora": composes,
        **told,
    }


def lanes_document(*entries: dict[str, Any]) -> dict[str, Any]:
    """Return the lanes of an image, ranked as its entries and their lanes are ordered."""
    ranked = {key: list(dict.fromkeys(lane for each in entries for lane in each[key])) for key in ("lanes", "lanes_beyond_table")}
    facts = {"version": 1, "derivation": "tensorhub.execution-lanes@1", **ranked, "contracts": list(entries), "excluded": []}
    covered = copy.deepcopy(facts)
    for each in covered["contracts"]:
        del each["why"]
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return {**facts, "digest": digest, "scan": {"distributions": 3, "damaged": 0, "plugins": 1}}


def usual_lanes() -> dict[str, Any]:
    """Return an image with a fast decoder, one that runs anywhere, and one for BF16."""
    return lanes_document(
        entry(BLOCKWISE, "acme.fast:Fast", ["fp8-w8a8-dynamic+compiled"], 90, composes=False),
        entry(BLOCKWISE, "acme.store:Store", ["fp8-w8a16+eager", "fp8-w8a16+compiled"]),
        entry(UNQUANTIZED, "acme.unquantized:Unquantized", ["bf16-w16a16+eager"]),
    )


def write_json(path: Path, document: Any) -> Path:
    """Write a document and return its path."""
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_pipeline(root: Path, transformer: Tensors = FP8) -> Path:
    """Write a pipeline of an FP8 transformer and a BF16 VAE; return its root."""
    write_checkpoint(root / "transformer", transformer, config=CONFIG, base="diffusion_pytorch_model")
    write_checkpoint(root / "vae", BF16, config={}, base="diffusion_pytorch_model")
    listed = {"_class_name": "P", "transformer": ["diffusers", "T"], "vae": ["diffusers", "V"], "scheduler": ["diffusers", "S"]}
    (root / "scheduler").mkdir()
    write_json(root / "scheduler" / "scheduler_config.json", {})
    write_json(root / "model_index.json", listed)
    return root


def valid(name: str, text: str) -> Any:
    """Return a document read from JSON that keeps to the schema that this tool prints for it."""
    document = json.loads(text)
    jsonschema.Draft202012Validator(json_schema(name)).validate(document)
    return document
