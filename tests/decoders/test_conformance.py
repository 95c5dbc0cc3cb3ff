"""The shipped decoders pass the conformance kit, through the door that everyone's use."""

from __future__ import annotations

from tensorhub_contracts.testing import DecoderContractTests


class TestPlainBF16(DecoderContractTests):
    contract = "plain.bf16@1"


class TestPlainF16(DecoderContractTests):
    contract = "plain.f16@1"


class TestPlainF32(DecoderContractTests):
    contract = "plain.f32@1"


class TestPlainMixed(DecoderContractTests):
    contract = "plain.mixed@1"


class TestBlockwise(DecoderContractTests):
    contract = "hf.fp8-blockwise@1"
    decoder = "tensorhub_decoders.hf_fp8_blockwise:decode_hf_fp8_blockwise"


class TestRowwise(DecoderContractTests):
    contract = "cozy.fp8-rowwise@1"
    decoder = "tensorhub_decoders.cozy_fp8_rowwise:decode_cozy_fp8_rowwise"


class TestStorage(DecoderContractTests):
    contract = "cozy.fp8-storage@1"
