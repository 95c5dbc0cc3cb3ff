"""`tensorhub lanes`: a function of what is installed, the same bytes everywhere, and compared with a record."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import Installer, Site, excluded, metadata_folder, project
from tests.support.plugin_sources import INT8, UNREAD, contracts, decoding, int8, owning, plugin

ONLY_INT8 = "int8,-tensorhub-contracts"

_CANONICAL = """
import sys
from tensorhub_contracts import derive_execution_lanes
from tensorhub_contracts.lanes.image_lanes import canonical_bytes
lanes = derive_execution_lanes()
sys.stdout.buffer.write(canonical_bytes(lanes))
sys.stderr.write(lanes.digest)
"""


def test_without_torch_the_shipped_decoders_are_left_out_and_no_lane_is_left(install: Installer) -> None:
    record = install().lanes(code=1)
    assert (record["lanes"], record["lanes_beyond_table"], record["contracts"]) == ([], [], [])
    assert {each["contract"] for each in excluded(record, "requirement-missing")} == {
        "plain.bf16@1",
        "plain.f16@1",
        "plain.f32@1",
        "plain.mixed@1",
        "hf.fp8-blockwise@1",
        "cozy.fp8-rowwise@1",
        "cozy.fp8-storage@1",
    }
    kernels = [each for each in record["excluded"] if each["module"].endswith("_w8a8")]
    assert {(each["contract"], each["reason"], each["remedy"]) for each in kernels} == {
        (contract, "torch, cuda.core cannot be imported here", "pip install 'tensorhub-contracts[torch,cu13]'")
        for contract in ("hf.fp8-blockwise@1", "cozy.fp8-rowwise@1")
    }
    others = [each for each in record["excluded"] if each not in kernels]
    assert all(each["lanes"] and each["reason"] == "torch cannot be imported here" for each in others)
    assert {each["remedy"] for each in others} == {"pip install 'tensorhub-contracts[torch]'"}
    text = install().tensorhub("lanes")
    assert text.code == 1
    assert "No lane is left: this environment can execute nothing. pip install 'tensorhub-contracts[torch]'" in text.err
    assert "  remedy    pip install 'tensorhub-contracts[torch]'\n" in text.out
    assert "requirement-missing: torch cannot be imported here" in text.out


def test_a_plugin_that_needs_nothing_gives_its_lanes_without_torch(install: Installer) -> None:
    record = install(int8()).lanes()
    assert record["lanes_beyond_table"] == ["int8-w8a16+eager", "int8-w8a16+compiled"]
    (entry,) = record["contracts"]
    assert re.fullmatch("sha256:[0-9a-f]{64}", entry.pop("digest"))
    assert entry == {
        "contract": INT8,
        "decoder": "acme_int8:decode",
        "distribution": "acme-int8",
        "version": "1.0",
        "lanes": [],
        "lanes_beyond_table": ["int8-w8a16+eager", "int8-w8a16+compiled"],
        "floors": {"int8-w8a16": "none"},
        "composes_lora": True,
        "requires": [],
        "supersedes": [],
        "why": "A test needs it.",
    }
    assert len(record["excluded"]) == 9


def test_with_torch_the_lanes_appear_best_first_and_torch_is_not_imported(install: Installer) -> None:
    site = install(torch=True)
    assert site.python("import torch").code == 1
    record = site.lanes()
    assert {(each["module"].rpartition(":")[2], each["reason"]) for each in record["excluded"]} == {
        (f"decode_{contract}_w8a8", "cuda.core cannot be imported here") for contract in ("hf_fp8_blockwise", "cozy_fp8_rowwise")
    }
    bodies = ("bf16-w16a16", "fp8-w8a16")
    assert record["lanes"] == [f"{body}+{execution}" for body in bodies for execution in ("eager", "compiled")]
    assert record["lanes_beyond_table"] == ["fp8-w8a32+eager", "fp8-w8a32+compiled"]
    assert [each["contract"] for each in record["contracts"]] == sorted(each["contract"] for each in record["contracts"])
    assert len(record["contracts"]) == 7
    assert all(each["requires"] == ["torch"] for each in record["contracts"])
    script = "import sys, tensorhub_contracts\ntensorhub_contracts.derive_execution_lanes()\nprint('torch' in sys.modules)\n"
    assert site.python(script).out == "False\n"


#: What torch's wheels say of themselves; the last line that names `cuda` counts.
WITH_CUDA = (
    "from typing import Optional\n__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
)
WITHOUT_CUDA = {
    "a CPU build": WITH_CUDA.replace("'13.0'", "None"),
    "a ROCm build": WITH_CUDA.replace("'13.0'", "None").replace("hip: Optional[str] = None", "hip: Optional[str] = '7.1'"),
    "an empty text": WITH_CUDA.replace("'13.0'", "''"),
    "no word of it": "__version__ = '2.13.0'\n",
    "what is computed": WITH_CUDA.replace("'13.0'", "str(13)"),
    "what is taken back": WITH_CUDA + "cuda = None\n",
    "no Python": "cuda = = '13.0'\n",
    "nothing": "",
}


def with_kernels(folder: Path, version: str | None) -> Path:
    """Write what the kernels import, none of which may be imported, and a torch that says a text of itself."""
    for name in ("cuda/core", "torch"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("raise AssertionError('imported')\n", encoding="utf-8")
    if version is not None:
        (folder / "torch" / "version.py").write_text(version, encoding="utf-8")
    return folder


@pytest.mark.parametrize("said", [*WITHOUT_CUDA, "no file"])
def test_without_a_torch_that_is_built_with_cuda_no_lane_of_kernels_is_claimed(install: Installer, tmp_path: Path, said: str) -> None:
    site = install().and_folder(with_kernels(tmp_path, WITHOUT_CUDA.get(said)))
    record = site.lanes()
    assert not [lane for lane in record["lanes"] + record["lanes_beyond_table"] if "w8a8" in lane]
    assert "fp8-w8a16+eager" in record["lanes"], "the control: what the CPU runs is claimed"
    left_out = excluded(record, "requirement-missing")
    assert [each["module"].rpartition("_")[2] for each in left_out] == ["w8a8", "w8a8"]
    for each in left_out:
        assert each["reason"].startswith("torch built with CUDA: ")
        assert each["remedy"] == "Install a torch that is built with CUDA."
        assert each["lanes"] == ["fp8-w8a8-dynamic+eager", "fp8-w8a8-dynamic+compiled"]
    text = site.tensorhub("lanes").out
    assert "requirement-missing: torch built with CUDA: " in text
    if said == "a CPU build":
        doctor = site.tensorhub("doctor")
        assert "those of kernels are not claimed: torch built with CUDA" in doctor.out
        assert json.loads(site.tensorhub("doctor", "--output", "json").out)["missing_for_lanes"] == ["torch.version.cuda"]


def test_with_the_packages_of_the_kernels_their_lane_comes_first_and_none_is_imported(install: Installer, tmp_path: Path) -> None:
    site = install().and_folder(with_kernels(tmp_path, WITH_CUDA))
    record = site.lanes()
    assert record["excluded"] == []
    assert "those of kernels are claimed" in site.tensorhub("doctor").out
    bodies = ("bf16-w16a16", "fp8-w8a16")
    assert record["lanes"] == [
        "fp8-w8a8-dynamic+compiled",
        *(f"{body}+{execution}" for body in bodies for execution in ("eager", "compiled")),
    ]
    assert record["lanes_beyond_table"] == ["fp8-w8a8-dynamic+eager", "fp8-w8a32+eager", "fp8-w8a32+compiled"]
    (entry,) = (each for each in record["contracts"] if each["decoder"].endswith("decode_hf_fp8_blockwise_w8a8"))
    assert (entry["floors"], entry["requires"]) == ({"fp8-w8a8-dynamic": 89}, ["cuda.core", "torch", "torch.version.cuda"])


def test_the_folder_that_an_uninstalled_torch_left_behind_is_no_torch(install: Installer, tmp_path: Path) -> None:
    (tmp_path / "left" / "torch" / "lib").mkdir(parents=True)
    record = install().and_folder(tmp_path / "left").lanes(code=1)
    assert len(excluded(record, "requirement-missing")) == 9


def test_a_requirement_is_looked_for_below_a_package_without_importing_it(install: Installer) -> None:
    kernels = project("kernels", {}, {"kernels/__init__.py": "raise AssertionError('imported')\n", "kernels/fast.py": "1 / 0\n"})
    fast = plugin("acme", decoding(UNREAD, requires=("kernels.fast",)))
    assert [each["contract"] for each in install(fast, kernels).lanes()["contracts"]] == [UNREAD]
    slow = plugin("acme", decoding(UNREAD, requires=("kernels.slow",)))
    assert excluded(install(slow, kernels).lanes(code=1), "requirement-missing")[0]["reason"].startswith("kernels.slow ")


def test_canonical_bytes_are_the_same_with_torch_and_without(install: Installer) -> None:
    without, present = install(int8()), install(int8(), torch=True)
    first, second = (each.python(_CANONICAL, selection=ONLY_INT8) for each in (without, present))
    assert first.code == 0, first.err
    assert (first.out, first.err) == (second.out, second.err)
    facts = json.loads(first.out)
    assert first.out == json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert "why" not in first.out
    assert str(without.path[0]) not in first.out
    assert without.lanes()["digest"] != present.lanes()["digest"]


def test_b3_14_the_order_of_the_path_and_of_hashes_changes_no_byte(install: Installer, tmp_path: Path) -> None:
    eager = decoding("compressed-tensors.fp8-channel@1").replace("@hookimpl\ndef", "@hookimpl(tryfirst=True)\ndef")
    last = decoding(UNREAD, ("fp8-w8a32", "fp8-w8a16")).replace("@hookimpl\ndef", "@hookimpl(trylast=True)\ndef")
    metadata_folder(tmp_path / "damaged", "ghost", metadata=False)
    projects = (int8(), plugin("eager", eager), plugin("last", last), plugin("failing", "1 / 0\n"))
    site = install(*projects).and_folder(tmp_path / "damaged")
    orders = list(itertools.permutations(range(5)))[::19]
    answers = {
        (each.code, each.out, each.err)
        for seed, order in enumerate(orders)
        for each in [site.ordered(*order).tensorhub("lanes", "--output", "json", env={"PYTHONHASHSEED": str(seed)})]
    }
    ((code, out, _),) = answers
    assert code == 0
    assert len(orders) == 7
    assert [each["contract"] for each in json.loads(out)["contracts"]] == [INT8, UNREAD, "compressed-tensors.fp8-channel@1"]


def test_the_order_of_the_path_changes_no_listing(install: Installer) -> None:
    site = install(int8(), plugin("acme", decoding(UNREAD)), plugin("bravo", decoding(UNREAD)), plugin("failing", "1 / 0\n"))
    orders = ((0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2))
    listings = {
        site.ordered(*order).tensorhub("plugins", "--output", "json", env={"PYTHONHASHSEED": str(order[0])}).out for order in orders
    }
    assert len(listings) == 1


# The digest.


def digest(install: Installer, version: str = "1.0", text: str = "") -> str:
    found: str = install(int8(version, text)).lanes(selection=ONLY_INT8)["digest"]
    return found


def test_free_text_does_not_change_the_digest(install: Installer) -> None:
    assert digest(install, text=owning(contracts(), why="Another reason, with ünïcode.")) == digest(install)
    failing, other = (plugin("failing", text, entry="int8") for text in ("1 / 0\n", "raise ValueError('other')\n"))
    records = [install(each, torch=True).lanes() for each in (failing, other)]
    assert records[0]["digest"] == records[1]["digest"]
    assert records[0]["excluded"] != records[1]["excluded"]


def test_version_lanes_floors_and_adapters_change_the_digest(install: Installer) -> None:
    two = contracts(element="F8_E4M3", floors='"fp8-w8a16" = "none", "fp8-w8a32" = "none"')
    floor = contracts(element="F8_E4M3", floors='"fp8-w8a16" = 80, "fp8-w8a32" = "none"')
    served = ("fp8-w8a16",)
    digests = [
        digest(install),
        digest(install, version="1.1"),
        digest(install, text=owning(two, serves=served)),
        digest(install, text=owning(two, serves=("fp8-w8a16", "fp8-w8a32"))),
        digest(install, text=owning(two, serves=("fp8-w8a32",))),
        digest(install, text=owning(floor, serves=served)),
        digest(install, text=owning(two, serves=served, lora=False)),
    ]
    assert len(set(digests)) == len(digests)


def test_what_is_left_out_changes_the_digest(install: Installer) -> None:
    assert install(int8()).lanes()["digest"] != install(int8(), plugin("failing", "1 / 0\n")).lanes()["digest"]


# TOML.


def test_the_toml_block_has_exactly_the_keys_of_a_hub(install: Installer) -> None:
    odd = plugin("odd", "raise ValueError('a \"quote\", a \\\\ and \\x7f \\x01')\n")
    site = install(int8(), odd)
    done = site.tensorhub("lanes", "--output", "toml")
    assert done.code == 0
    document = tomllib.loads(done.out)
    assert list(document) == ["execution_lanes", "decode_set"]
    block = document["execution_lanes"]
    assert list(block) == ["derivation", "lanes", "lanes_beyond_table", "contracts", "excluded_modules"]
    assert block["derivation"] == "tensorhub.execution-lanes@1"
    record = site.lanes()
    assert (block["lanes"], block["lanes_beyond_table"]) == (record["lanes"], record["lanes_beyond_table"])
    assert block["contracts"] == [
        {
            "contract": INT8,
            "decoder": "acme_int8:decode",
            "lanes": [],
            "lanes_beyond_table": ["int8-w8a16+eager", "int8-w8a16+compiled"],
            "composes_lora": True,
        }
    ]
    assert block["excluded_modules"] == [
        {"module": each["module"], "reason": f"{each['code']}: {each['reason']}"} for each in record["excluded"]
    ]
    rules = document["decode_set"]
    assert list(rules) == ["derivation", "digest", "rules", "contracts", "unregistered", "excluded_modules"]
    assert rules["derivation"] == "tensorhub.decode-set@1"
    assert rules["rules"] == [{"rule": INT8, "decoder": "acme_int8:decode", "serves": [], "composes_lora": True}]
    facts = {"derivation": rules["derivation"], "rules": rules["rules"]}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert rules["digest"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert rules["contracts"] == [{"contract": INT8, "decoder": "acme_int8:decode", "key_topologies": []}]
    assert (rules["unregistered"], rules["excluded_modules"]) == ([], block["excluded_modules"])
    assert '"quote"' in next(each["reason"] for each in block["excluded_modules"] if each["module"] == "odd")


def test_the_rules_serve_the_bodies_of_the_hubs_table(install: Installer) -> None:
    document = tomllib.loads(install(torch=True).tensorhub("lanes", "--output", "toml").out)
    served = {each["rule"]: each["serves"] for each in document["decode_set"]["rules"]}
    assert served["hf.fp8-blockwise@1"] == ["fp8-w8a16"], "fp8-w8a32 is in no lane of the table"
    assert served["plain.f32@1"] == ["bf16-w16a16"]
    both = [{(each["contract"], each["decoder"]) for each in document[key]["contracts"]} for key in ("execution_lanes", "decode_set")]
    assert both[0] == both[1]


def test_an_image_without_lanes_has_a_block_all_the_same(install: Installer) -> None:
    done = install().tensorhub("lanes", "--output", "toml")
    assert done.code == 1
    block = tomllib.loads(done.out)["execution_lanes"]
    assert (block["lanes"], block["contracts"], len(block["excluded_modules"])) == ([], [], 9)


# --check.


def recorded(site: Site, folder: Path, form: str) -> Path:
    """Let the site write its record into a file."""
    path = folder / f"lanes.{form}"
    done = site.tensorhub("lanes", "--output", f"{form}={path}")
    assert done.code == 0, done.err
    return path


@pytest.mark.parametrize("form", ["json", "toml"])
def test_check_accepts_the_same_image(install: Installer, tmp_path: Path, form: str) -> None:
    site = install(int8(), plugin("acme", decoding(UNREAD)))
    path = recorded(site, tmp_path, form)
    for each in (site, site.ordered(1, 0)):
        done = each.tensorhub("lanes", "--check", path)
        assert (done.code, done.out) == (0, "")
        assert f"as recorded in {path}: {site.lanes()['digest']}" in done.err


@pytest.mark.parametrize("form", ["json", "toml"])
def test_check_finds_a_decoder_that_is_missing_and_one_that_was_added(install: Installer, tmp_path: Path, form: str) -> None:
    whole, part = install(int8(), plugin("acme", decoding(UNREAD))), install(int8())
    missing = part.tensorhub("lanes", "--check", recorded(whole, tmp_path, form))
    assert missing.code == 1
    assert "lanes-differ: contracts of" in missing.err
    assert re.search(r'contracts of .*: expected \{.*"decoder": "acme:decode".*\}; found nothing in its place', missing.err)
    assert "expected fp8-w8a16+eager, fp8-w8a16+compiled; found nothing in its place" in missing.err
    added = whole.tensorhub("lanes", "--check", recorded(part, tmp_path, form))
    assert added.code == 1
    assert re.search(r"contracts of .*expected nothing more; found \{.*acme:decode", added.err)


def test_check_finds_another_version(install: Installer, tmp_path: Path) -> None:
    path = recorded(install(int8()), tmp_path, "json")
    done = install(int8("1.1")).tensorhub("lanes", "--check", path)
    assert done.code == 1
    assert '"version": "1.0"' in done.err
    assert '"version": "1.1"' in done.err
    # A block of a hub holds no versions.
    assert install(int8("1.1")).tensorhub("lanes", "--check", recorded(install(int8()), tmp_path, "toml")).code == 0


@pytest.mark.parametrize("form", ["json", "toml"])
def test_check_takes_free_text_for_what_it_is(install: Installer, tmp_path: Path, form: str) -> None:
    path = recorded(install(int8(), plugin("failing", "1 / 0\n")), tmp_path, form)
    other = install(int8(text=owning(contracts(), why="Another reason.")), plugin("failing", "raise ValueError\n"))
    done = other.tensorhub("lanes", "--check", path)
    assert done.code == 0, done.err


def test_check_writes_what_it_is_asked_to_write_as_well(install: Installer, tmp_path: Path) -> None:
    site = install(int8())
    done = site.tensorhub("lanes", "--check", recorded(site, tmp_path, "json"), "--output", "json")
    assert (done.code, json.loads(done.out)) == (0, site.lanes())


def _edit(change: Callable[[dict[str, Any]], None]) -> Callable[[str], str]:
    def edited(text: str) -> str:
        record = copy.deepcopy(json.loads(text))
        change(record)
        return json.dumps(record)

    return edited


def _floor(record: dict[str, Any]) -> None:
    record["contracts"][0]["floors"]["int8-w8a16"] = 80


def _version(record: dict[str, Any]) -> None:
    record["contracts"][0]["version"] = "9"


EDITS: dict[str, tuple[Callable[[str], str], str]] = {
    "floor": (_edit(_floor), "lanes-digest"),
    "version": (_edit(_version), "lanes-digest"),
    "digest": (_edit(lambda record: record.update(digest="sha256:" + "0" * 64)), "lanes-digest"),
    "excluded": (_edit(lambda record: record["excluded"].clear()), "lanes-digest"),
    "lane-added": (_edit(lambda record: record["lanes"].append("fp8-w8a16+eager")), "lanes-digest"),
    "lane-beyond-the-table-added": (_edit(lambda record: record["lanes_beyond_table"].append("fp8-w8a32+eager")), "lanes-digest"),
    "lane-in-the-other-list": (_edit(lambda record: record["lanes"].append("fp8-w8a32+eager")), "document-malformed"),
    "lane-of-the-table-beyond-it": (_edit(lambda record: record["lanes_beyond_table"].append("fp8-w8a16+eager")), "document-malformed"),
    "lane-nobody-lists": (_edit(lambda record: record["lanes_beyond_table"].pop()), "document-malformed"),
    "lane-misspelt": (_edit(lambda record: record["lanes"].append("nonsense")), "document-malformed"),
    "no-execution": (_edit(lambda record: record["lanes"].append("fp8-w8a16")), "document-malformed"),
    "no-floor": (_edit(lambda record: record["contracts"][0]["floors"].clear()), "document-malformed"),
    "unknown-key": (_edit(lambda record: record.update(extra=1)), "document-malformed"),
    "missing-key": (_edit(lambda record: record.pop("derivation")), "document-malformed"),
    "another-version": (_edit(lambda record: record.update(version=2)), "document-malformed"),
    "cut": (lambda text: text[:-20], "document-malformed"),
    "empty": (lambda text: "", "document-malformed"),
    "undecodable": (lambda text: text.replace("A test", "\udcff test"), "document-malformed"),
    "list": (lambda text: "[]", "document-malformed"),
}


def test_check_refuses_a_record_that_was_edited_or_is_malformed(install: Installer, tmp_path: Path) -> None:
    site = install(int8())
    text = recorded(site, tmp_path, "json").read_text()
    for name, (edit, code) in EDITS.items():
        path = tmp_path / f"{name}.json"
        path.write_text(edit(text), encoding="utf-8", errors="surrogateescape")
        done = site.tensorhub("lanes", "--check", path)
        assert done.code == 1, (name, done.err)
        assert f"{code}: {path}" in done.err, (name, done.err)
        assert "Traceback" not in done.err


def test_check_takes_a_record_in_another_spelling(install: Installer, tmp_path: Path) -> None:
    site = install(int8())
    path = recorded(site, tmp_path, "json")
    record = json.loads(path.read_text())
    record["contracts"][0]["why"] = "Edited, and nobody minds."
    record["scan"] = {"distributions": 1, "damaged": 0, "plugins": 1}
    path.write_text(json.dumps(dict(reversed(record.items()))))
    assert site.tensorhub("lanes", "--check", path).code == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda text: text.replace("+compiled", "+eager"), "lanes-differ"),
        (lambda text: text.replace("composes_lora = true", "composes_lora = false"), "lanes-differ"),
        (lambda text: text.replace("acme_int8:decode", "acme_int8:other"), "lanes-differ"),
        (lambda text: text.replace("execution-lanes@1", "execution-lanes@2"), "lanes-differ"),
        (lambda text: text + 'more = "x"\n', "lanes-differ"),
        (lambda text: text.replace("[execution_lanes]", "[lanes]"), "document-malformed"),
        (lambda text: text.replace("rule = ", "rules = "), "lanes-differ"),
        (lambda text: text.replace("decode-set@1", "decode-set@2"), "lanes-differ"),
        (lambda text: text.replace("unregistered = []", 'unregistered = [{ decoder = "x", reason = "y" }]'), "lanes-differ"),
        (lambda text: text.replace("unregistered = []", "unregistered = [1]"), "document-malformed"),
        (lambda text: text.replace("key_topologies = []", 'key_topologies = ["a"]'), "lanes-differ"),
        (lambda text: text.partition("[decode_set]")[0] + "[decode_set]\n", "lanes-differ"),
        (lambda text: text.partition("[decode_set]")[0] + "decode_set = 1\n", "lanes-differ"),
        (lambda text: text.replace("[execution_lanes]", "[execution_lanes"), "document-malformed"),
        (lambda text: "execution_lanes = 1\n", "document-malformed"),
        (lambda text: "[execution_lanes]\ncontracts = 1\n", "document-malformed"),
        (lambda text: "[execution_lanes]\nexcluded_modules = [1]\n", "document-malformed"),
        (lambda text: "[execution_lanes]\n", "lanes-differ"),
        (lambda text: "", "document-malformed"),
    ],
)
def test_check_of_a_block_that_was_changed(install: Installer, tmp_path: Path, change: Callable[[str], str], code: str) -> None:
    site = install(int8())
    path = recorded(site, tmp_path, "toml")
    path.write_text(change(path.read_text()))
    done = site.tensorhub("lanes", "--check", path)
    assert done.code == 1, done.err
    assert f"{code}: " in done.err
    assert "Traceback" not in done.err


def test_check_of_a_block_inside_a_larger_file(install: Installer, tmp_path: Path) -> None:
    site = install(int8())
    path = recorded(site, tmp_path, "toml")
    path.write_text(f'name = "image"\n{path.read_text()}\n[other]\nx = 1\n')
    assert site.tensorhub("lanes", "--check", path).code == 0
    path.write_text(path.read_text().partition("[decode_set]")[0])
    assert site.tensorhub("lanes", "--check", path).code == 0, "a file need not have the second block"
