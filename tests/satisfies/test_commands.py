"""`tensorhub artifact` and `tensorhub satisfies` in processes of their own, and `satisfies` as it is called from Python."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensorhub_contracts import Demand, Refusal, inspect, installed_registry, record_artifact, satisfies
from tensorhub_contracts.hub.artifact import artifact_json, read_artifact
from tensorhub_contracts.lanes.documents import read_lanes
from tensorhub_contracts.lanes.image_lanes import ImageLanes
from tensorhub_contracts.registry.registry import load_registry
from tests.support.checkpoint_files import write_checkpoint
from tests.support.cli import tensorhub
from tests.support.geometries import h3_conditioner
from tests.support.hub_records import (
    BF16,
    BLOCKWISE,
    CONFIG,
    FP8,
    TRANSPOSED,
    UNQUANTIZED,
    lanes_document,
    usual_lanes,
    valid,
    write_json,
    write_pipeline,
)

FAST_LANE, STORED, STORED_COMPILED = "fp8-w8a8-dynamic+compiled", "fp8-w8a16+eager", "fp8-w8a16+compiled"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "checkpoint", FP8, config=CONFIG)


@pytest.fixture
def record(tmp_path: Path, checkpoint: Path) -> Path:
    path = tmp_path / "artifact.json"
    path.write_text(artifact_json(record_artifact([inspect(checkpoint)], installed_registry())), encoding="utf-8")
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return write_json(tmp_path / "lanes.json", usual_lanes())


def answer(*arguments: str | Path, code: int = 0) -> Any:
    """Return the JSON that `satisfies` prints, held against its schema."""
    run = tensorhub("satisfies", *arguments, "--output", "json")
    assert (run.code, run.err) == (code, "")
    return valid("verdict" if code == 0 else "problem", run.out)


def codes(problem: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["code"], each["component"]) for each in problem["violations"]]


# artifact


def test_the_record_of_a_published_checkpoint(tmp_path: Path) -> None:
    folder = h3_conditioner(tmp_path / "conditioner")
    run = tensorhub("artifact", folder, "--output", "json")
    assert (run.code, run.err) == (0, "")
    artifact = valid("artifact", run.out)
    (component,) = artifact["components"]
    registry = load_registry()
    assert artifact["version"] == 1
    assert artifact["tool"].startswith("tensorhub-contracts ")
    assert (component["component"], component["contract"], component["digest"]) == ("", BLOCKWISE, registry.digest(BLOCKWISE))
    header = (Path(__file__).parent.parent / "data" / "h3-conditioner.header.bin").read_bytes()
    entries = json.loads(header[8:])
    assert component["tensors"] == len([name for name in entries if name != "__metadata__"])
    assert component["units"] == 357
    assert component["floors"] == dict(registry.contracts[BLOCKWISE].floors)
    assert len(run.out) < 1500, "a record is small"


def test_the_text_says_contract_digests_and_counts(checkpoint: Path) -> None:
    run = tensorhub("artifact", checkpoint)
    assert (run.code, run.err) == (0, "")
    for fact in ("(the root)", BLOCKWISE, load_registry().digest(BLOCKWISE), "2 tensors, 1 units", "floor"):
        assert fact in run.out


def test_text_and_a_json_file_at_once(tmp_path: Path, checkpoint: Path) -> None:
    run = tensorhub("artifact", checkpoint, "--output", "text", "--output", f"json={tmp_path / 'a.json'}")
    assert run.code == 0
    assert BLOCKWISE in run.out
    alone = tensorhub("artifact", checkpoint, "--output", "json")
    assert (tmp_path / "a.json").read_text() == alone.out == artifact_json(record_artifact([inspect(checkpoint)], installed_registry()))
    assert alone.out.endswith("}\n")


def test_the_record_does_not_depend_on_where_the_checkpoint_lies(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    moved = shutil.copytree(checkpoint, tmp_path / "far" / "away" / "ünicode name")
    (tmp_path / "link").symlink_to(checkpoint)
    here = tensorhub("artifact", checkpoint, "--output", "json")
    assert tensorhub("artifact", moved, "--output", "json") == here
    assert tensorhub("artifact", tmp_path / "link", "--output", "json") == here
    assert tensorhub("artifact", ".", "--output", "json", cwd=checkpoint) == here


def test_the_digest_of_headers_is_over_each_shards_name_size_and_header(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "two", FP8, config=CONFIG, shards=2)
    component = valid("artifact", tensorhub("artifact", folder, "--output", "json").out)["components"][0]
    digest = hashlib.sha256()
    for shard in sorted(folder.glob("*.safetensors")):
        length = int.from_bytes(shard.read_bytes()[:8], "little")
        digest.update(f"{shard.name}\0{shard.stat().st_size}\0{length}\0".encode() + shard.read_bytes()[8 : 8 + length])
    assert component["headers_digest"] == f"sha256:{digest.hexdigest()}"


def test_the_digest_of_headers_tells_checkpoints_apart_and_not_values(tmp_path: Path, checkpoint: Path) -> None:
    def headers(folder: Path) -> str:
        digest: str = valid("artifact", tensorhub("artifact", folder, "--output", "json").out)["components"][0]["headers_digest"]
        return digest

    before = headers(checkpoint)
    other = write_checkpoint(tmp_path / "other", {name.replace("to_q", "to_k"): each for name, each in FP8.items()}, config=CONFIG)
    assert headers(other) != before
    with (checkpoint / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    assert headers(checkpoint) == before


def test_a_pipeline_is_recorded_by_its_components_and_one_alone_on_demand(tmp_path: Path) -> None:
    root = write_pipeline(tmp_path / "pipeline")
    both = valid("artifact", tensorhub("artifact", root, "--output", "json").out)
    assert [(each["component"], each["contract"]) for each in both["components"]] == [("transformer", BLOCKWISE), ("vae", UNQUANTIZED)]
    alone = valid("artifact", tensorhub("artifact", root, "--component", "vae", "--output", "json").out)
    assert alone["components"] == both["components"][1:]
    assert read_artifact(json.dumps(both)).components[1].contract == UNQUANTIZED


def test_a_refused_checkpoint_has_no_record_and_its_reasons_go_to_standard_error(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "transposed", TRANSPOSED, config=CONFIG)
    for output in ("text", "json", f"json={tmp_path / 'artifact.json'}"):
        run = tensorhub("artifact", folder, "--output", output)
        assert (run.code, run.out) == (1, "")
        assert run.err.startswith("scale-grid-transposed: blocks.0.to_q.weight_scale_inv")
    assert not (tmp_path / "artifact.json").exists()


def test_a_refused_checkpoint_leaves_the_record_of_before_as_it_was(tmp_path: Path, record: Path, checkpoint: Path) -> None:
    before = record.read_bytes()
    write_checkpoint(checkpoint, TRANSPOSED, config=CONFIG)
    assert tensorhub("artifact", checkpoint, "--output", f"json={record}").code == 1
    assert record.read_bytes() == before


def test_one_refused_component_refuses_the_record_of_the_pipeline(tmp_path: Path) -> None:
    run = tensorhub("artifact", write_pipeline(tmp_path / "p", TRANSPOSED), "--output", "json")
    assert (run.code, run.out) == (1, "")
    assert "scale-grid-transposed" in run.err
    assert " of transformer" in run.err
    assert "vae" not in run.err


@pytest.mark.parametrize("arguments", [["nowhere"], ["."], [], [".", "--output", "sarif"], [".", "--output", "json", "--output", "text"]])
def test_wrong_usage_of_artifact(arguments: list[str], tmp_path: Path) -> None:
    run = tensorhub("artifact", *arguments, cwd=tmp_path)
    refused = arguments == ["."]  # an empty folder is there, and no checkpoint
    assert run.code == (1 if refused else 2)
    assert run.out == ""
    assert run.err


# satisfies: what is compared


def test_a_record_and_an_image_give_a_verdict(record: Path, image: Path) -> None:
    verdict = answer(record, "--image", image, "--sm", "90")
    artifact, lanes = json.loads(record.read_text()), json.loads(image.read_text())
    (component,) = verdict["components"]
    assert (verdict["version"], verdict["satisfied"], verdict["lanes_digest"]) == (1, True, lanes["digest"])
    facts = {
        "component": "",
        "contract": BLOCKWISE,
        "digest": artifact["components"][0]["digest"],
        "headers_digest": artifact["components"][0]["headers_digest"],
        "lane": FAST_LANE,
        "decoder": "acme.fast:Fast",
        "distribution": "acme",
        "version": "1.0",
    }
    assert {key: component[key] for key in facts} == facts
    assert [(each["lane"], each["decided_by"]) for each in component["rejected"]] == [(STORED, "rank"), (STORED_COMPILED, "rank")]
    assert all(each["reason"] for each in component["rejected"])


def test_a_folder_and_a_file_of_weights_answer_as_their_record(record: Path, image: Path, checkpoint: Path) -> None:
    by_record = answer(record, "--image", image, "--accept", BLOCKWISE)
    assert answer(checkpoint, "--image", image, "--accept", BLOCKWISE) == by_record
    assert answer(checkpoint / "model.safetensors", "--image", image, "--accept", BLOCKWISE) == by_record


def test_the_text_of_a_verdict_says_what_was_chosen_and_what_was_passed(record: Path, image: Path) -> None:
    run = tensorhub("satisfies", record, "--image", image)
    assert (run.code, run.err) == (0, "")
    lines = run.out.splitlines()
    assert lines[0] == "satisfied"
    assert lines[1] == f"(the root): {BLOCKWISE} in {STORED}"
    assert "acme.store:Store" in lines[2]
    assert f"{FAST_LANE}: device: " in lines[3]
    assert f"{STORED_COMPILED}: rank: " in lines[4]


def test_the_text_of_a_refusal_says_each_violation_and_the_nearest(record: Path, image: Path) -> None:
    run = tensorhub("satisfies", record, "--image", image, "--accept", UNQUANTIZED)
    assert (run.code, run.err) == (1, "")
    lines = run.out.splitlines()
    assert lines[0] == "REFUSED  contract-not-accepted"
    assert "contract-not-accepted" in lines
    assert [line.split()[0] for line in lines[2:6]] == ["object", "expected", "found", "remedy"]
    assert lines[-1].split() == ["nearest", BLOCKWISE]


def test_options_reach_the_comparison(record: Path, image: Path) -> None:
    def lane(*options: str) -> str:
        chosen: str = answer(record, "--image", image, *options)["components"][0]["lane"]
        return chosen

    assert lane() == STORED
    assert lane("--sm", "89") == STORED
    for text in ("90", "9.0", "sm_90", "sm_90a", "SM_90", "10.0", "100"):
        assert lane("--sm", text) == FAST_LANE
    for text in ("8.9", "sm_89", "80", "8.0"):
        assert lane("--sm", text) == STORED
    assert lane("--sm", "90", "--adapters") == STORED
    assert lane("--sm", "90", "--lane", "fp8") == FAST_LANE
    assert lane("--sm", "90", "--lane", "fp8-w8a16") == STORED
    assert lane("--lane", STORED_COMPILED) == STORED_COMPILED
    assert lane("--lane", STORED_COMPILED, "--lane", STORED_COMPILED) == STORED_COMPILED
    assert lane("--lane", f"={STORED_COMPILED}") == STORED_COMPILED, "the empty name is the root"
    assert lane("--accept", UNQUANTIZED, "--accept", BLOCKWISE) == STORED
    assert lane("--accept", UNQUANTIZED, "--accept", f"={BLOCKWISE}") == STORED


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--accept", "hf.fp8-blockwise"], "handle-malformed"),
        (["--accept", ""], "handle-malformed"),
        (["--lane", "fp8+eager"], "lane-malformed"),
        (["--accept", "vae=plain.bf16@1"], "component-unknown"),
        (["--accept", UNQUANTIZED], "contract-not-accepted"),
        (["--lane", "bf16"], "lane-unavailable"),
        (["--lane", FAST_LANE, "--sm", "89"], "floor-unmet"),
        (["--lane", FAST_LANE], "floor-unmet"),
        (["--lane", FAST_LANE, "--sm", "90", "--adapters"], "adapters-not-composed"),
    ],
)
def test_a_refusal_is_a_problem_and_exit_code_1(record: Path, image: Path, options: list[str], code: str) -> None:
    problem = answer(record, "--image", image, *options, code=1)
    assert (problem["status"], problem["code"], problem["type"], problem["retryable"]) == (
        422,
        code,
        f"urn:tensorhub:refusal:{code}",
        False,
    )
    assert {each["code"] for each in problem["violations"]} == {code}
    assert tensorhub("satisfies", record, "--image", image, *options).code == 1


def test_two_images_are_wrong_usage_and_never_the_last_alone(record: Path, image: Path) -> None:
    run = tensorhub("satisfies", record, "--image", image, f"--image={image}")
    assert (run.code, run.out) == (2, "")
    assert "--image is given 2 times, and takes one value" in run.err
    assert "Usage: tensorhub satisfies" in run.err


def test_the_forms_of_a_compute_capability_are_in_the_message(record: Path, image: Path) -> None:
    run = tensorhub("satisfies", record, "--image", image, "--sm", "9")
    assert "'9' is no compute capability; write it as 90, 9.0, sm_90 or sm_90a" in run.err


@pytest.mark.parametrize(
    ("asked", "code", "remedy"),
    [
        ("fp8-w8a16-eager", "lane-unavailable", "Did you mean fp8-w8a16+eager? "),
        ("FP8-W8A16-Eager", "lane-unavailable", "Did you mean fp8-w8a16+eager? "),
        ("fp8_w8a16+eager", "lane-malformed", "Did you mean fp8-w8a16+eager? "),
        ("fp8-w8a16+eagerly", "lane-malformed", "Did you mean fp8-w8a16+eager? "),
        ("8bits", "lane-unavailable", "Did you mean 8bit? "),
        ("fp8-w8a8-dynamic+eager", "lane-unavailable", "Ask for a lane that the image offers"),
        ("4bit", "lane-unavailable", "Ask for a lane that the image offers"),
        ("nonsense", "lane-unavailable", "Ask for a lane that the image offers"),
    ],
)
def test_a_slip_is_answered_with_what_may_have_been_meant(record: Path, image: Path, asked: str, code: str, remedy: str) -> None:
    problem = answer(record, "--image", image, "--lane", asked, code=1)
    assert (problem["code"], problem["remedy"].startswith(remedy)) == (code, True), problem["remedy"]
    if code == "lane-malformed":
        assert "8bit for all weights of 8 bits" in problem["violations"][0]["expected"]


def test_options_for_components(tmp_path: Path, image: Path) -> None:
    root = write_pipeline(tmp_path / "pipeline")
    options = [
        "--accept",
        UNQUANTIZED,
        "--accept",
        f"transformer={BLOCKWISE}",
        "--lane",
        f"transformer={STORED_COMPILED}",
        "--lane",
        "bf16",
    ]
    verdict = answer(root, "--image", image, *options)
    lanes = {each["component"]: each["lane"] for each in verdict["components"]}
    assert lanes == {"transformer": STORED_COMPILED, "vae": "bf16-w16a16+eager"}
    problem = answer(root, "--image", image, "--accept", "vae=plain.f16@1", "--lane", "transformer=bf16", code=1)
    assert codes(problem) == [("contract-not-accepted", "vae"), ("lane-unavailable", "transformer")]
    assert problem["nearest"] == UNQUANTIZED
    text = tensorhub("satisfies", root, "--image", image, "--lane", "transformer=bf16")
    assert " of transformer" in text.out


def test_a_demand_in_a_file_is_the_options(tmp_path: Path, record: Path, image: Path) -> None:
    demand = {"accept": {"*": [BLOCKWISE]}, "lanes": {"": "fp8"}, "sm": 90, "adapters": True}
    valid("demand", json.dumps(demand))
    by_options = answer(record, "--image", image, "--accept", BLOCKWISE, "--lane", "=fp8", "--sm", "90", "--adapters")
    assert answer(record, "--image", image, "--demand", write_json(tmp_path / "demand.json", demand)) == by_options
    assert by_options["components"][0]["rejected"][0]["decided_by"] == "decoder"


@pytest.mark.parametrize("options", [["--accept", BLOCKWISE], ["--lane", "fp8"], ["--sm", "90"], ["--adapters"]])
def test_a_demand_in_a_file_is_the_whole_demand(tmp_path: Path, record: Path, image: Path, options: list[str]) -> None:
    run = tensorhub("satisfies", record, "--image", image, "--demand", write_json(tmp_path / "demand.json", {}), *options)
    assert (run.code, run.out) == (2, "")
    assert "--demand" in run.err


@pytest.mark.parametrize(
    "options",
    [
        *(
            ["--sm", text]
            for text in ("0", "9", "", "9.", "9.00", ".9", "sm90", "sm_9", "sm_90b", "compute_90", "90a", "-90", "1000", "\u0669\u0660")
        ),
        ["--sm", "90", "--sm", "90"],
        ["--demand", "/dev/null", "--demand", "/dev/null"],
        ["--lane", "fp8", "--lane", "bf16"],
        ["--lane", "=fp8", "--lane", "=bf16"],
        ["--output", "json", "--output", "text"],
        ["--output", "sarif"],
        ["--demand", "nowhere.json"],
        ["--unknown"],
    ],
)
def test_wrong_usage_of_satisfies(record: Path, image: Path, options: list[str]) -> None:
    run = tensorhub("satisfies", record, "--image", image, *options)
    assert (run.code, run.out) == (2, "")
    assert run.err


def test_artifact_and_image_must_be_there(tmp_path: Path, record: Path, image: Path) -> None:
    for arguments in (
        [record],
        [image.with_name("none"), "--image", image],
        [record, "--image", tmp_path / "none"],
        [record, "--image", tmp_path],
    ):
        run = tensorhub("satisfies", *arguments)
        assert (run.code, run.out) == (2, ""), arguments


NO_DOCUMENTS = [b"", b"{", b"not json", b"[]", b"{}", b"\xff\xfe{", b"null", b'{"version": 1}\n{}', b"[" * 100000]


@pytest.mark.parametrize(
    ("which", "content"),
    [
        (which, content)
        for which in ("artifact", "lanes", "demand")
        for content in NO_DOCUMENTS
        if (which, content) != ("demand", b"{}")  # an empty object is a demand
    ],
)
def test_a_document_that_cannot_be_read_is_a_refusal(tmp_path: Path, record: Path, image: Path, content: bytes, which: str) -> None:
    demand = write_json(tmp_path / "demand.json", {})
    path = {"artifact": record, "lanes": image, "demand": demand}[which]
    path.write_bytes(content)
    problem = answer(record, "--image", image, "--demand", demand, code=1)
    assert codes(problem) == [("document-malformed", "")]
    assert problem["violations"][0]["object"] == str(path)


def test_an_edited_image_is_refused(record: Path, image: Path) -> None:
    lanes = json.loads(image.read_text())
    lanes["contracts"][0]["floors"] = {"fp8-w8a8-dynamic": "none"}
    write_json(image, lanes)
    assert codes(answer(record, "--image", image, code=1)) == [("lanes-digest", "")]


def test_an_image_without_lanes_refuses_everything(record: Path, image: Path) -> None:
    write_json(image, lanes_document())
    problem = answer(record, "--image", image, code=1)
    assert (codes(problem), problem["nearest"]) == ([("contract-not-declared", "")], None)


def test_a_refused_checkpoint_is_refused_before_it_is_compared(tmp_path: Path, image: Path) -> None:
    folder = write_checkpoint(tmp_path / "transposed", TRANSPOSED, config=CONFIG)
    problem = answer(folder, "--image", image, "--accept", UNQUANTIZED, "--lane", "bf16", code=1)
    assert problem["code"] == "scale-grid-transposed"
    assert problem["nearest"] == BLOCKWISE
    assert not {"contract-not-accepted", "lane-unavailable"} & {code for code, _ in codes(problem)}


def test_a_demand_that_is_malformed_comes_before_a_checkpoint_that_is_refused(tmp_path: Path, image: Path) -> None:
    folder = write_checkpoint(tmp_path / "transposed", TRANSPOSED, config=CONFIG)
    assert answer(folder, "--image", image, "--accept", "x", code=1)["code"] == "handle-malformed"


def test_container_comes_before_layout_whatever_the_order_of_components(tmp_path: Path, image: Path) -> None:
    root = write_pipeline(tmp_path / "pipeline", TRANSPOSED)
    weights = root / "vae" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    problem = answer(root, "--image", image, "--lane", "fp9", code=1)
    assert codes(problem) == [("file-truncated", "vae"), ("scale-grid-transposed", "transformer")]
    assert problem["code"] == "file-truncated"


def test_answers_go_to_files_too(tmp_path: Path, record: Path, image: Path) -> None:
    run = tensorhub("satisfies", record, "--image", image, "--output", "text", "--output", f"json={tmp_path / 'verdict.json'}")
    assert (run.code, run.out.splitlines()[0]) == (0, "satisfied")
    assert valid("verdict", (tmp_path / "verdict.json").read_text())["satisfied"] is True
    run = tensorhub("satisfies", record, "--image", image, "--lane", "bf16", "--output", f"json={tmp_path / 'problem.json'}")
    assert (run.code, run.out) == (1, "")
    assert valid("problem", (tmp_path / "problem.json").read_text())["code"] == "lane-unavailable"


def test_the_same_question_has_the_same_answer_to_the_byte(record: Path, image: Path) -> None:
    for options in (["--sm", "90"], ["--lane", "bf16"]):
        first, second = (tensorhub("satisfies", record, "--image", image, *options, "--output", "json") for _ in range(2))
        assert first == second


# satisfies in Python


@pytest.fixture
def lanes() -> ImageLanes:
    return read_lanes(json.dumps(usual_lanes()))


def test_a_record_an_inspection_and_a_list_of_one_have_one_verdict(checkpoint: Path, lanes: ImageLanes) -> None:
    inspection = inspect(checkpoint)
    by_record = satisfies(record_artifact([inspection], installed_registry()), lanes, Demand(sm=90))
    assert satisfies(inspection, lanes, Demand(sm=90)) == by_record
    assert satisfies([inspection], lanes, Demand(sm=90)) == by_record
    assert satisfies((inspection,), lanes, Demand(sm=90)) == by_record
    assert by_record.components[0].lane == FAST_LANE


def test_inspections_of_components_are_a_pipeline(tmp_path: Path, lanes: ImageLanes) -> None:
    root = write_pipeline(tmp_path / "pipeline")
    inspections = [inspect(root, component=name) for name in ("vae", "transformer")]
    verdict = satisfies(inspections, lanes, Demand(accept={"*": (UNQUANTIZED,), "transformer": (BLOCKWISE,)}))
    assert [each.component for each in verdict.components] == ["vae", "transformer"]


def test_a_refused_inspection_raises_its_own_violations(tmp_path: Path, lanes: ImageLanes) -> None:
    inspection = inspect(write_checkpoint(tmp_path / "t", TRANSPOSED, config=CONFIG))
    with pytest.raises(Refusal) as caught:
        satisfies(inspection, lanes, Demand(lanes={"*": "bf16"}))
    assert caught.value.violations == inspection.violations
    assert caught.value.nearest == inspection.nearest


def test_only_the_refused_inspections_are_listed_each_with_its_component(tmp_path: Path, lanes: ImageLanes) -> None:
    root = write_pipeline(tmp_path / "pipeline", TRANSPOSED)
    with pytest.raises(Refusal) as caught:
        satisfies([inspect(root, component=name) for name in ("vae", "transformer")], lanes, Demand())
    assert {each.component for each in caught.value.violations} == {"transformer"}


def test_nothing_is_not_satisfied(lanes: ImageLanes) -> None:
    with pytest.raises((Refusal, ValueError)):
        satisfies([], lanes, Demand())


def test_two_inspections_of_one_name_are_no_artifact(tmp_path: Path, lanes: ImageLanes) -> None:
    one, two = (
        inspect(write_checkpoint(tmp_path / name, tree, config=config)) for name, tree, config in (("a", FP8, CONFIG), ("b", BF16, {}))
    )
    with pytest.raises((Refusal, ValueError)):
        satisfies([one, two], lanes, Demand())


def test_a_record_is_read_back_as_it_was(tmp_path: Path) -> None:
    root = write_pipeline(tmp_path / "pipeline")
    artifact = record_artifact([inspect(root, component=name) for name in ("transformer", "vae")], installed_registry())
    assert read_artifact(msgspec.json.encode(artifact)) == artifact
