"""Published releases in their true geometry: contract, account, notes, and one neighbour of each that is damaged and named.

Where a number is published it stands here as a literal, beside the geometry that must come to it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorhub_contracts import Inspection, inspect
from tests.support.releases.comfy import LTX25_NVFP4, T5_SCALED
from tests.support.releases.facts import Release, write_neighbour, write_release
from tests.support.releases.flux import FLUX1_DEV_FP8, FLUX2_NOTED
from tests.support.releases.language import DEEPSEEK_V32, GLM_45_AIR_FP8, GPT_OSS_20B, MINIMAX_M2
from tests.support.releases.listed import RELEASES
from tests.support.releases.multimodal import LLAMA_4_SCOUT_NVFP4, MINISTRAL_3_NATIVE
from tests.support.releases.qwen import QWEN38_FLASH_NEXT_FP8
from tests.support.releases.sparse_shards import Tensor, size_in_bytes
from tests.support.trees import why


@pytest.fixture(scope="module", params=RELEASES, ids=[each.name for each in RELEASES])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Path, Inspection]:
    release = request.param
    folder = write_release(release, tmp_path_factory.mktemp(release.name))
    return release, folder, inspect(folder)


def test_the_contract_and_its_units(written: tuple[Release, Path, Inspection]) -> None:
    release, _, inspection = written
    assert inspection.contract == release.contract, why(inspection)
    assert not inspection.violations
    assert inspection.checkpoint is not None
    assert len(inspection.checkpoint.shards) == len(release.shards)
    assert inspection.unit_count == release.account.weights
    assert not inspection.exclusions.contradicted


def test_every_tensor_has_its_row_in_the_account(written: tuple[Release, Path, Inspection]) -> None:
    release, _, inspection = written
    assert inspection.account is not None
    expected = release.account
    assert {row.kind: row.tensors for row in inspection.account.rows} == {
        "weight": expected.weights,
        "sidecar": expected.sidecars,
        "unquantized": expected.unquantized,
        "cache-scale": expected.cache_scales,
        "bookkeeping": expected.bookkeeping,
        "refused": 0,
    }
    assert (inspection.account.tensors, inspection.account.bytes) == (expected.tensors, release.payload_bytes)


def test_the_notes_are_these_and_no_others(written: tuple[Release, Path, Inspection]) -> None:
    release, _, inspection = written
    assert len(inspection.notes) == len(release.notes), inspection.notes
    for part, note in zip(release.notes, inspection.notes, strict=True):
        assert part in note


def test_a_damaged_neighbour_is_refused_by_name(written: tuple[Release, Path, Inspection], tmp_path: Path) -> None:
    release, sound, _ = written
    inspection = inspect(write_neighbour(release, sound, tmp_path / "damaged"))
    assert inspection.contract is None
    found = {(each.code, each.object) for each in inspection.violations}
    assert (release.damage.code, release.damage.named) in found, why(inspection)


def test_a_release_takes_no_room_on_disk(written: tuple[Release, Path, Inspection]) -> None:
    release, folder, _ = written
    apparent = sum((folder / shard).stat().st_size for shard in release.shards)
    assert apparent > release.payload_bytes
    assert release.file_bytes in (None, apparent)
    assert sum(path.stat().st_blocks * 512 for path in folder.iterdir()) < 60_000_000


# Numbers that are published.


def named(release: Release, *parts: str) -> Iterator[Tensor]:
    """Yield the tensors whose name has one of the parts."""
    return (tensor for tensor in release.tensors() if any(part in tensor[0] for part in parts))


def shape_of(release: Release, name: str) -> tuple[str, tuple[int, ...]]:
    return next((dtype, shape) for each, dtype, shape in release.tensors() if each == name)


def total(tensors: Iterator[Tensor]) -> tuple[int, int]:
    """Return how many there are, and their bytes."""
    sizes = [size_in_bytes(tensor) for tensor in tensors]
    return len(sizes), sum(sizes)


def bytes_by_dtype(release: Release) -> Counter[str]:
    found: Counter[str] = Counter()
    for tensor in release.tensors():
        found[tensor[1]] += size_in_bytes(tensor)
    return found


def test_deepseek_v32() -> None:
    assert (DEEPSEEK_V32.account.tensors, DEEPSEEK_V32.account.weights, len(DEEPSEEK_V32.shards)) == (92_425, 45_932, 163)
    wk = "model.layers.0.self_attn.indexer.wk.weight"
    assert shape_of(DEEPSEEK_V32, wk) == ("F8_E4M3", (128, 7168))
    assert shape_of(DEEPSEEK_V32, f"{wk}_scale_inv") == ("F32", (1, 56))
    assert total(named(DEEPSEEK_V32, "layers.61.self_attn.indexer"))[0] == 7


def test_minimax_m2() -> None:
    assert (MINIMAX_M2.account.tensors, MINIMAX_M2.account.weights) == (96_103, 47_864)
    assert sum(math.prod(shape) for _, _, shape in MINIMAX_M2.tensors()) == 228_703_644_928
    assert {dtype for _, dtype, _ in named(MINIMAX_M2, "block_sparse_moe.gate.")} == {"F32"}
    assert shape_of(MINIMAX_M2, "model.layers.0.self_attn.q_proj.weight_scale_inv") == ("F32", (48, 24))


def test_glm_45_air_fp8() -> None:
    """The layer for multi-token prediction is quantized too, with its projection of 8,192 inputs."""
    assert GLM_45_AIR_FP8.account.weights == 17_994
    assert sum(dtype == "F8_E4M3" for _, dtype, _ in named(GLM_45_AIR_FP8, "model.layers.46.")) == 1 + 4 + 3 * 129


def test_gpt_oss_20b() -> None:
    assert (GPT_OSS_20B.account.weights, total(GPT_OSS_20B.tensors())[1]) == (48, 13_761_264_768)
    assert GPT_OSS_20B.shards[0] == "model-00000-of-00002.safetensors"


def test_qwen38_flash_next_fp8() -> None:
    """The sums of a census of all headers, by part; 75,567 units were once counted, with attention that was taken for FP8."""
    release = QWEN38_FLASH_NEXT_FP8
    assert total(release.tensors()) == (152_089, 185_502_232_570)
    text = f"{'model.language_model'}.layers."
    experts = [tensor for tensor in named(release, ".mlp.experts.") if tensor[0].startswith(text)]
    assert total(tensor for tensor in experts if tensor[1] == "F8_E4M3") == (73_728, 120_795_955_200)
    assert total(tensor for tensor in experts if tensor[1] == "BF16") == (73_728, 14_745_600)
    assert total(named(release, "ngram_embedding.shard_")) == (128, 51_200_245_760)
    assert total(tensor for tensor in release.tensors() if tensor[1] == "I64") == (3, 280)
    assert total(tensor for tensor in release.tensors() if tensor[0].startswith("mtp.")) == (3_101, 2_698_026_496)
    assert total(named(release, "model.visual.")) == (333, 897_862_112)
    table = "model.language_model.layers.1.ple.ple_embedding.ngram_embedding"
    assert shape_of(release, f"{table}.shard_127.weight") == ("F8_E4M3", (2500012, 160))
    assert shape_of(release, f"{table}.weight_scale") == ("BF16", (1,))


def test_ministral_3() -> None:
    assert shape_of(MINISTRAL_3_NATIVE, "layers.0.attention.wq.weight") == ("F8_E4M3", (4096, 3072))
    for name in ("wq.qscale_weight", "wq.qscale_act", "k_fake_quantizer.qscale_act"):
        assert shape_of(MINISTRAL_3_NATIVE, f"layers.0.attention.{name}") == ("BF16", ())


def test_llama_4_scout() -> None:
    experts = "language_model.model.layers.0.feed_forward.experts"
    assert shape_of(LLAMA_4_SCOUT_NVFP4, f"{experts}.gate_up_proj") == ("U8", (16, 2560, 16384))
    assert shape_of(LLAMA_4_SCOUT_NVFP4, f"{experts}.gate_up_proj_weight_scale") == ("F8_E4M3", (16, 320, 16384))
    assert shape_of(LLAMA_4_SCOUT_NVFP4, f"{experts}.down_proj") == ("U8", (16, 4096, 5120))


def test_flux1_dev_fp8() -> None:
    """A report counted 168 units in the text encoder, its matrices; the header's bytes of FP8 have its norms and embedding too."""
    assert total(FLUX1_DEV_FP8.tensors()) == (1_442, 17_246_298_324)
    assert bytes_by_dtype(FLUX1_DEV_FP8) == {"F8_E4M3": 16_663_718_976, "F16": 247_300_608, "F32": 335_278_740}
    assert sum(dtype == "F8_E4M3" for _, dtype, _ in named(FLUX1_DEV_FP8, "model.diffusion_model.")) == 780
    matrices = [shape for name, _, shape in named(FLUX1_DEV_FP8, "t5xxl.transformer.encoder") if "relative" not in name and len(shape) == 2]
    assert len(matrices) == 168
    assert shape_of(FLUX1_DEV_FP8, "text_encoders.clip_l.logit_scale") == ("F32", ())


def test_comfyui_files() -> None:
    assert T5_SCALED.file_bytes == 5_157_348_688
    assert shape_of(T5_SCALED, "scaled_fp8") == ("F8_E4M3", (0,))
    assert shape_of(FLUX2_NOTED, "double_blocks.0.img_attn.qkv.weight") == ("F8_E4M3", (18432, 6144))
    assert shape_of(FLUX2_NOTED, "double_blocks.0.img_attn.qkv.comfy_quant") == ("U8", (27,))
    assert shape_of(LTX25_NVFP4, "proj_out.weight") == ("U8", (64, 2048))
    assert shape_of(LTX25_NVFP4, "proj_out.weight_scale") == ("F8_E4M3", (128, 256))
