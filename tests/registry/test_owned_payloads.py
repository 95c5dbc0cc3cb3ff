"""Names by which a plugin's packed weights are known without a sidecar: given by its forms, and never those of ordinary parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorhub_contracts import inspect
from tensorhub_contracts.registry.registry import load_registry
from tests.registry.test_owned_contracts import INT8, decoding, example, merged, read, refused
from tests.support.checkpoint_files import Tensors
from tests.support.registry_texts import Table
from tests.support.trees import assert_accepted, judge


def with_payload(suffix: str, *, of_a_form: bool = True, sidecars: bool = False) -> Table:
    """Return the example with a payload, whose name its form's weight has, alone or with the scale."""
    tables = example()
    tensors = tables["contract"][0]["form"][0]["tensors"]
    if of_a_form:
        tensors["weight"]["name"] = "{module}" + suffix
        tables["sidecar"] = [{"suffix": ".acme_factor", "role": "weight-scale", "beside": [suffix], "used_by": INT8}] if sidecars else []
        tensors["scale"]["name"] = "{module}.acme_factor"
        if not sidecars:
            del tensors["scale"]
    tables["payload"] = [{"suffix": suffix, "used_by": INT8}]
    return tables


def test_a_weight_that_its_name_alone_tells_from_integers_may_be_owned(tmp_path: Path) -> None:
    """A format that keeps its scales among the bytes of the weight has no sidecar."""
    tree: Tensors = {"a.acme_bytes": ("I8", (64, 32)), "b.acme_bytes": ("I8", (8, 64)), "norm.weight": ("BF16", (32,))}
    registry = decoding(merged(with_payload(".acme_bytes")))
    assert_accepted(inspect(judge(tmp_path, tree).path, registry=registry), INT8, 2)


@pytest.mark.parametrize("suffix", ["", "t", "weight", ".weight", "s", ".bias"])
@pytest.mark.parametrize("sidecars", [False, True])
def test_a_payload_may_not_end_as_names_of_ordinary_parameters_do(suffix: str, sidecars: bool) -> None:
    found = refused(lambda: read(with_payload(suffix, sidecars=sidecars)))
    assert found == (f"contracts.toml: payload ({suffix}).suffix: ordinary parameters have this name",)


@pytest.mark.parametrize("suffix", ["s", "ias", ".bias"])
def test_a_leaf_may_not_end_as_names_of_ordinary_parameters_do(suffix: str) -> None:
    tables = example()
    tables["sidecar"] = [{"suffix": suffix, "role": "weight-scale", "beside": [".weight"], "used_by": INT8}]
    tables["contract"][0]["form"][0]["tensors"]["scale"]["name"] = "{module}.weight" + suffix
    found = refused(lambda: read(tables))
    assert f"contracts.toml: sidecar ({suffix}).suffix: ordinary parameters have this name" in found


def test_a_payload_is_the_name_of_a_weight_and_not_of_its_scale() -> None:
    tables = with_payload(".acme_bytes", sidecars=True)
    tables["payload"] = [{"suffix": ".acme_factor", "used_by": INT8}]
    assert refused(lambda: read(tables)) == ("contracts.toml: payload (.acme_factor).suffix: no form of these contracts has such a weight",)


def test_a_sidecar_that_is_shipped_hides_no_fault_of_those_after_it() -> None:
    tables = example()
    shipped = next(each for each in load_registry().sidecars if each.suffix == ".weight_scale")
    repeated = {"suffix": shipped.suffix, "role": shipped.role, "beside": list(shipped.beside), "used_by": shipped.used_by}
    unused = {"suffix": ".acme_unused", "role": "weight-scale", "beside": [".weight"], "used_by": INT8}
    tables["sidecar"] = [repeated, *tables.get("sidecar", []), unused]
    assert any(
        "sidecar (.acme_unused).suffix: no form of these contracts has such a sidecar" in each for each in refused(lambda: read(tables))
    )


def test_integers_under_a_name_of_their_own_are_packed_weights_only_beside_a_scale(tmp_path: Path) -> None:
    """Any parameter may be called like one that stands alone; what ends in `.weight` is a weight, and its scale is missed."""
    tables = example()
    registries = {}
    for weight, scale in (("{param}", "{param}_scale"), ("{module}.weight", "{module}.weight_scale")):
        tables["contract"][0]["form"][0]["tensors"]["weight"]["name"] = weight
        tables["contract"][0]["form"][0]["tensors"]["scale"]["name"] = scale
        registries[weight] = decoding(merged(tables))
    bare: Tensors = {"a": ("I8", (64, 32)), "a_scale": ("F32", (64, 1)), "mask": ("I8", (8, 64))}
    assert_accepted(inspect(judge(tmp_path, bare).path, registry=registries["{param}"]), INT8, 1)
    named: Tensors = {
        "a.weight": ("I8", (64, 32)),
        "a.weight_scale": ("F32", (64, 1)),
        "b.weight": ("I8", (8, 64)),
        "b.counts": ("I8", (8, 64)),
    }
    refusal = inspect(judge(tmp_path, named).path, registry=registries["{module}.weight"])
    (missing,) = (each for each in refusal.violations if each.code == "scale-missing")
    assert (refusal.contract, missing.object, missing.expected) == (None, "b.weight", "b.weight_scale F32 [out, 1]")


def test_a_payload_that_is_shipped_hides_no_fault_of_those_after_it() -> None:
    tables = with_payload(".acme_bytes")
    shipped = next(each for each in load_registry().payloads if each.suffix == "_blocks")
    repeated = {"suffix": shipped.suffix, "dtypes": list(shipped.dtypes), "used_by": shipped.used_by}
    tables["payload"] = [repeated, *tables["payload"], {"suffix": ".acme_unused", "used_by": INT8}]
    assert refused(lambda: read(tables)) == ("contracts.toml: payload (.acme_unused).suffix: no form of these contracts has such a weight",)


def test_what_is_shipped_may_be_repeated_in_the_same_words_without_a_use() -> None:
    tables = example()
    sidecar = next(each for each in load_registry().sidecars if each.suffix == "_scale_inv")
    payload = next(each for each in load_registry().payloads if each.suffix == "_weight_qdata")
    tables["sidecar"] = [{"suffix": sidecar.suffix, "role": sidecar.role, "beside": list(sidecar.beside), "used_by": sidecar.used_by}]
    tables["payload"] = [{"suffix": payload.suffix, "used_by": payload.used_by}]
    assert list(read(tables).contracts) == [INT8]
