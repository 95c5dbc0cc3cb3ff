"""What the tables of a report group by: the name up to its first number, and whether a unit predicts further tokens."""

from __future__ import annotations

import pytest

from tensorhub_contracts.inspection.prefixes import is_multi_token_prediction, layer_count, prefix_of


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("model.layers.3.mlp.down_proj.weight", "model.layers"),
        ("model.layers.3", "model.layers"),
        ("lm_head.weight", "lm_head"),
        ("weight", "weight"),
        ("h.0.1.weight", "h"),
        ("model.3d.weight", "model.3d"),
    ],
)
def test_a_prefix_ends_before_the_first_number(name: str, prefix: str) -> None:
    assert prefix_of(name) == prefix


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"num_hidden_layers": 61}, 61),
        ({"text_config": {"num_hidden_layers": 64}}, 64),
        ({"num_hidden_layers": 2, "text_config": {"num_hidden_layers": 64}}, 2),
        ({"num_hidden_layers": "61", "text_config": [1]}, None),
        ({"num_hidden_layers": True}, None),
        ({}, None),
    ],
)
def test_layers_are_counted_as_the_configuration_says(config: dict[str, object], layers: int | None) -> None:
    assert layer_count(config) == layers


@pytest.mark.parametrize(
    ("name", "predicts"),
    [
        ("mtp.fc.weight", True),
        ("mtp.weight", True),
        ("model.mtp.layers.0.fc.weight", True),
        ("model.mtp", False),
        ("model.layers.61.eh_proj.weight", True),
        ("model.layers.60.mlp.weight", False),
        ("model.layers.weight", False),
        ("model.layers.x.weight", False),
        ("model.layers.61", False),
    ],
)
def test_three_spellings_of_further_tokens(name: str, predicts: bool) -> None:
    assert is_multi_token_prediction(name, 61) is predicts
    assert is_multi_token_prediction("model.layers.61.eh_proj.weight", None) is False
