"""The whole conformance suite, for one class: declaration, headers, numbers, lanes."""

from __future__ import annotations

from tensorhub_contracts.testing import DecoderContractTests, SampleUnit


class TestInt8Channel(DecoderContractTests):
    contract = "acme.int8-channel@1"

    def reference(self, unit: SampleUnit) -> list[float]:
        """The formula of the contract in plain Python: what the decoder is judged by, and not written with it."""
        columns = unit.symbols["in"]
        scales = unit.tensors["scale"].values
        return [code * scales[place // columns] for place, code in enumerate(unit.tensors["weight"].values)]
