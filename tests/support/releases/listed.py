"""All releases in their true geometry, in the order of the page that is written from them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.releases.comfy import LTX2_FP8, LTX25_NVFP4, T5_SCALED
from tests.support.releases.facts import Release
from tests.support.releases.flux import FLUX1_DEV_FP8, FLUX1_SCALED, FLUX2_NOTED, FLUX2_NVFP4
from tests.support.releases.language import DEEPSEEK_V32, GLM_45_AIR_FP8, GPT_OSS_20B, MINIMAX_M2
from tests.support.releases.multimodal import LLAMA_4_SCOUT_NVFP4, MINISTRAL_3, MINISTRAL_3_NATIVE
from tests.support.releases.qwen import QWEN38_FLASH_NEXT_FP8

RELEASES: Sequence[Release] = (
    DEEPSEEK_V32,
    MINIMAX_M2,
    QWEN38_FLASH_NEXT_FP8,
    GLM_45_AIR_FP8,
    GPT_OSS_20B,
    MINISTRAL_3,
    MINISTRAL_3_NATIVE,
    LLAMA_4_SCOUT_NVFP4,
    FLUX1_DEV_FP8,
    FLUX1_SCALED,
    T5_SCALED,
    FLUX2_NOTED,
    FLUX2_NVFP4,
    LTX2_FP8,
    LTX25_NVFP4,
)
