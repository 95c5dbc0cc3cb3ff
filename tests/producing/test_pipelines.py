"""`--component`: one component of a pipeline is converted, the others are copied, and what is written is a whole pipeline."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import tensorhub_decoders.converting.convert as converting
import tensorhub_decoders.converting.shard_writing as shard_writing
import torch
from tensorhub_decoders.converting.decode import decode, plan_decoding
from tensorhub_decoders.converting.produce import plan_production, produce

from tensorhub_contracts import FaultError, Refusal, inspect
from tensorhub_contracts import load as load_weights
from tensorhub_contracts.checkpoints.files import UNFINISHED
from tests.support.cli import environment
from tests.support.conversions import (
    BLOCKWISE,
    CONTRACTS,
    ROWWISE,
    STORAGE,
    bits,
    digests,
    done,
    interrupted_after,
    noise,
    refused,
    run,
    save,
    small_model,
)

LISTED = {
    "_class_name": "FluxPipeline",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "transformer": ["diffusers", "FluxTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "image_encoder": [None, None],
    "safety_checker": None,
}
OTHERS = ("scheduler", "text_encoder", "tokenizer", "vae")
TRANSFORMER = ("--component", "transformer")
KILLS = 25


def pipeline(root: Path, rows: int = 130) -> Path:
    """Write a pipeline: two unquantized shards, a text encoder in FP8, a VAE in F32, and components without weights."""
    tensors = {**small_model(), "wide.weight": noise(rows, 272)}
    names = list(tensors)
    parts = ({name: tensors[name] for name in names[number::2]} for number in range(2))
    save(root / "transformer", *parts, config={"_class_name": "FluxTransformer2DModel"}, base="diffusion_pytorch_model")
    unquantized = [{f"layers.{layer}.up.weight": noise(rows, 144, seed=layer), f"layers.{layer}.norm": noise(7)} for layer in range(2)]
    save(root / "dense", *unquantized, config={"model_type": "clip"})
    done("produce", root / "dense", root / "text_encoder", "--to", BLOCKWISE)
    shutil.rmtree(root / "dense")
    decoder = {"decoder.weight": noise(rows, 144, dtype=torch.float32), "odd.weight": noise(3, 1, 1, 1, dtype=torch.float32)}
    save(root / "vae", decoder, config={}, base="diffusion_pytorch_model")
    for name, text in {
        "scheduler/scheduler_config.json": "{}",
        "tokenizer/vocab.json": json.dumps(list(range(3000))),
        "tokenizer/special.txt": "",
        "transformer/README.md": "of the transformer",
        "README.md": "of the pipeline",
        "model_index.json": json.dumps(LISTED, indent=2),
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline that no test changes."""
    return pipeline(tmp_path_factory.mktemp("pipeline") / "source")


@pytest.fixture
def root(tmp_path: Path, shared: Path) -> Path:
    """A pipeline of the test's own."""
    return Path(shutil.copytree(shared, tmp_path / "source"))


def contracts_of(folder: Path) -> dict[str, str | None]:
    """Return the contract of each component, as `tensorhub inspect` finds it; the command exits with 0."""
    found = run("inspect", folder, "--output", "json")
    assert found.code == 0, found.out
    return {each["component"]: each["contract"]["handle"] for each in json.loads(found.out)["inspections"]}


@pytest.mark.parametrize("contract", CONTRACTS)
def test_one_component_is_converted_and_the_pipeline_is_whole(tmp_path: Path, shared: Path, contract: str) -> None:
    report = done("produce", shared, tmp_path / "made", "--to", contract, *TRANSFORMER)
    assert contracts_of(tmp_path / "made") == {"text_encoder": BLOCKWISE, "transformer": contract, "vae": "plain.f32@1"}
    assert (report["component"], report["contract"], report["components_copied"]) == ("transformer", contract, list(OTHERS))
    before, after = digests(shared), digests(tmp_path / "made")
    assert {name: each for name, each in after.items() if not name.startswith("transformer/")} == {
        name: each for name, each in before.items() if not name.startswith("transformer/")
    }
    # What is made of the component is what is made of its folder alone, byte for byte.
    alone = done("produce", shared / "transformer", tmp_path / "alone", "--to", contract)
    assert digests(tmp_path / "made" / "transformer") == digests(tmp_path / "alone")
    for key in ("quantized", "headers", "bytes_before", "bytes_after", "shards", "copied_tensors", "units_kept"):
        assert report[key] == alone[key], key
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "made"]
    assert not report["files_not_copied"]


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_one_component_is_decoded_and_read_by_load(tmp_path: Path, shared: Path, dtype: str) -> None:
    done("decode", shared, tmp_path / "made", "--to", f"plain.{dtype}@1", "--component", "text_encoder")
    assert contracts_of(tmp_path / "made") == {"text_encoder": f"plain.{dtype}@1", "transformer": "plain.bf16@1", "vae": "plain.f32@1"}
    done("decode", shared / "text_encoder", tmp_path / "alone", "--to", f"plain.{dtype}@1")
    assert digests(tmp_path / "made" / "text_encoder") == digests(tmp_path / "alone")
    assert "quantization_config" not in json.loads((tmp_path / "made" / "text_encoder" / "config.json").read_text())
    for name in ("scheduler", "tokenizer", "transformer", "vae"):
        assert digests(tmp_path / "made" / name) == digests(shared / name)
    weights = load_weights(tmp_path / "made", component="text_encoder", dtype=dtype.upper(), resident=False).weights
    expected = load_weights(shared, component="text_encoder", dtype=dtype.upper(), resident=False).weights
    assert set(weights) == set(expected)
    for name, tensor in weights.items():
        assert torch.equal(bits(tensor), bits(expected[name])), name


def test_one_component_after_another(tmp_path: Path, shared: Path) -> None:
    """A component that was quantized before passes through, bit for bit, and `load` reads each."""
    done("produce", shared, tmp_path / "one", "--to", ROWWISE, *TRANSFORMER)
    done("produce", tmp_path / "one", tmp_path / "two", "--to", STORAGE, "--component", "vae", "--only", "decoder.weight")
    done("decode", tmp_path / "two", tmp_path / "three", "--to", "plain.bf16@1", "--component", "text_encoder")
    assert contracts_of(tmp_path / "three") == {"text_encoder": "plain.bf16@1", "transformer": ROWWISE, "vae": STORAGE}
    assert digests(tmp_path / "three" / "transformer") == digests(tmp_path / "one" / "transformer")
    for name in ("text_encoder", "transformer", "vae"):
        assert load_weights(tmp_path / "three", component=name, dtype="BF16", resident=False).weights


def test_the_functions_do_what_the_commands_do(tmp_path: Path, shared: Path) -> None:
    source = inspect(shared, "transformer").require()
    seen: list[tuple[int, int]] = []
    produced = produce(source, plan_production(source, ROWWISE, (), ()), tmp_path / "fp8", lambda *counts: seen.append(counts))
    assert (produced.inspection.component, produced.inspection.contract, produced.resumed) == ("transformer", ROWWISE, 0)
    assert produced.inspection.path == str(tmp_path / "fp8")
    done("produce", shared, tmp_path / "same", "--to", ROWWISE, *TRANSFORMER)
    assert digests(tmp_path / "fp8") == digests(tmp_path / "same")
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    payload = sum(
        header.file_size - 8 - header.length
        for name in ("text_encoder", "transformer", "vae")
        for header in headers(tmp_path / "fp8", name)
    )
    assert seen[-1] == (payload, payload), "a bar ends full, with the copies counted"
    decoded = decode(produced.inspection, plan_decoding(produced.inspection, "plain.f32@1", allow_nan=False), tmp_path / "dense")
    assert decoded.inspection.contract == "plain.f32@1"
    assert digests(tmp_path / "dense" / "vae") == digests(shared / "vae")


def headers(folder: Path, component: str) -> list[Any]:
    checkpoint = inspect(folder, component).require().checkpoint
    assert checkpoint is not None
    return list(checkpoint.headers.values())


@pytest.mark.parametrize("arguments", [("produce", "--to", BLOCKWISE), ("decode", "--to", "plain.bf16@1")])
def test_without_a_component_the_refusal_names_the_option_and_it_works(tmp_path: Path, shared: Path, arguments: tuple[str, ...]) -> None:
    command, *rest = arguments
    (violation,) = refused(command, shared, tmp_path / "made", *rest)
    assert violation["code"] == "component-required"
    listed = violation["found"].partition("components ")[2].split(", ")
    assert listed == ["text_encoder", "transformer", "vae"]
    assert "--component NAME" in violation["remedy"]
    assert "--component NAME" in run(command, "--help").out
    done(command, shared, tmp_path / "made", *rest, "--component", "vae" if command == "produce" else listed[0])


@pytest.mark.parametrize(
    "name", ["unet", "Transformer", "image_encoder", "safety_checker", "..", "transformer/", "../source/vae", "_class_name"]
)
def test_a_component_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path, shared: Path, name: str) -> None:
    for arguments in (("produce", "--to", ROWWISE), ("decode", "--to", "plain.bf16@1")):
        (violation,) = refused(arguments[0], shared, tmp_path / "made", *arguments[1:], "--component", name)
        assert (violation["code"], violation["object"]) == ("component-unknown", name)
        assert all(known in violation["found"] for known in ("text_encoder", "transformer", "vae"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("files", [("flux1-dev.safetensors",), ("flux1-dev.safetensors", "ae.safetensors"), ("model.safetensors",)])
def test_weights_in_the_root_of_a_pipeline_are_not_taken_for_it(root: Path, files: tuple[str, ...]) -> None:
    """Such pipelines are published; `tensorhub inspect` looks at their components, and which of all was meant nobody can know."""
    for name in files:
        shutil.copy(root / "vae" / "diffusion_pytorch_model.safetensors", root / name)
    made = root.parent / "made"
    (violation,) = refused("produce", root, made, "--to", STORAGE)
    assert (violation["code"], "--component NAME" in violation["remedy"]) == ("component-required", True)
    assert refused("decode", root, made, "--to", "plain.bf16@1")[0]["code"] == "component-required"
    assert inspect(root).codes != ("component-required",), "the root alone could be taken for a checkpoint"
    done("produce", root / files[0], made, "--to", STORAGE)
    done("produce", root, root.parent / "pipeline", "--to", STORAGE, *TRANSFORMER)
    assert len(contracts_of(root.parent / "pipeline")) == 3


def test_other_components_and_sources_that_cannot_be_converted(tmp_path: Path, shared: Path) -> None:
    arguments = ("--to", ROWWISE, "--component")
    assert refused("produce", shared, tmp_path / "made", *arguments, "tokenizer")[0]["code"] == "checkpoint-without-weights"
    assert refused("produce", shared, tmp_path / "made", *arguments, "text_encoder")[0]["code"] == "conversion-impossible"
    assert refused("decode", shared, tmp_path / "made", "--to", "plain.bf16@1", "--component", "vae")[0]["code"] == "conversion-impossible"
    file = shared / "vae" / "diffusion_pytorch_model.safetensors"
    assert refused("produce", file, tmp_path / "made", *arguments, "vae")[0]["code"] == "component-unknown"
    with pytest.raises(click.UsageError, match="there is nothing at"):
        run("produce", tmp_path / "nowhere", tmp_path / "made", *arguments, "vae")
    assert not list(tmp_path.iterdir())


def test_a_pipeline_that_is_not_whole_is_refused_with_all_that_is_missing_and_its_component_converts_alone(root: Path) -> None:
    made = root.parent / "made"
    shutil.rmtree(root / "scheduler")
    os.truncate(root / "vae" / "diffusion_pytorch_model.safetensors", 1000)
    (root / "text_encoder" / "model-00002-of-00002.safetensors").unlink()
    violations = refused("produce", root, made, "--to", ROWWISE, *TRANSFORMER)
    about = {each["component"] or each["object"]: each["code"] for each in violations}
    assert about == {"scheduler": "component-unknown", "text_encoder": "index-shard-missing", "vae": "file-truncated"}
    assert sorted(path.name for path in root.parent.iterdir()) == ["source"]
    assert all(str(root / "transformer") in each["remedy"] for each in violations)
    done("produce", root / "transformer", made, "--to", ROWWISE)


def test_a_component_of_nothing_but_pickles_keeps_the_pipeline_from_being_whole(root: Path) -> None:
    path = root / "vae" / "diffusion_pytorch_model.safetensors"
    path.rename(path.with_suffix(".bin"))
    (violation,) = refused("produce", root, root.parent / "made", "--to", ROWWISE, *TRANSFORMER)
    assert violation["code"] == "checkpoint-without-weights"
    assert "diffusion_pytorch_model.bin" in violation["found"]


def test_a_component_in_whatever_layout_is_copied_and_has_the_verdict_that_it_had(root: Path) -> None:
    """Not even a layout that is refused is any business of who converts another component."""
    shutil.rmtree(root / "vae")
    mixed = {"a.weight": noise(3, 5), "b.weight": noise(3, 5, dtype=torch.float32), "c": torch.zeros(0, 3), "d": torch.tensor(True)}
    save(root / "vae", mixed, config={"quantization_config": {"quant_method": "gptq"}}, metadata={"format": "pt", "é": "\u2028"})
    made = root.parent / "made"
    done("produce", root, made, "--to", ROWWISE, *TRANSFORMER)
    assert digests(made / "vae") == digests(root / "vae")
    before, after = inspect(root, "vae"), inspect(made, "vae")
    assert after.codes == before.codes != ()


def test_what_is_not_of_the_pipeline_is_left_and_reported(root: Path) -> None:
    for name in ("flux1-dev.safetensors", "vae/diffusion_pytorch_model.fp16.safetensors", "text_encoder/pytorch_model.bin"):
        shutil.copy(root / "vae" / "diffusion_pytorch_model.safetensors", root / name)
    (root / "text_encoder" / "other.safetensors.index.json").write_text("{}")
    (root / "tokenizer" / "extras.json").write_bytes(b"\x80\x04pickle")
    for name in (".cache", "onnx", "image_encoder", "tokenizer/deep"):
        (root / name).mkdir()
        (root / name / "file.json").write_text("{}")
    report = done("produce", root, root.parent / "made", "--to", ROWWISE, *TRANSFORMER)
    left = {each["name"]: each["reason"] for each in report["files_not_copied"]}
    assert left == {
        ".cache": "a folder",
        "flux1-dev.safetensors": "other weights",
        "image_encoder": "a folder",
        "onnx": "a folder",
        "text_encoder/other.safetensors.index.json": "the index of other weights",
        "text_encoder/pytorch_model.bin": "a pickle; it is never opened",
        "tokenizer/deep": "a folder",
        "tokenizer/extras.json": left["tokenizer/extras.json"],
        "vae/diffusion_pytorch_model.fp16.safetensors": "other weights",
    }
    assert "pickle" in left["tokenizer/extras.json"]
    gone = {name for name in digests(root) if any(name == each or name.startswith(f"{each}/") for each in left)}
    assert set(digests(root)) - gone == set(digests(root.parent / "made"))
    assert len(contracts_of(root.parent / "made")) == 3


def test_a_report_for_people_names_the_component_and_the_others(tmp_path: Path, shared: Path) -> None:
    found = run("produce", shared, tmp_path / "made", "--to", ROWWISE, *TRANSFORMER)
    assert found.out.startswith(f"{tmp_path / 'made'}\n  component transformer\n  contract  {ROWWISE}  sha256:")
    assert f"  others    {', '.join(OTHERS)}: components, byte for byte\n" in found.out
    assert "  files     README.md, model_index.json, transformer/README.md\n" in found.out


def test_a_component_without_any_file_stays_one(root: Path) -> None:
    shutil.rmtree(root / "scheduler")
    (root / "scheduler").mkdir()
    done("produce", root, root.parent / "made", "--to", ROWWISE, *TRANSFORMER)
    assert list((root.parent / "made" / "scheduler").iterdir()) == []
    assert len(contracts_of(root.parent / "made")) == 3


def test_a_snapshot_of_links_becomes_files(root: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / "snapshots").mkdir(parents=True)
    root = root.rename(tmp_path / "cache" / "snapshots" / "abc")
    for path in [each for each in root.rglob("*") if each.is_file()]:
        blob = root.parent.parent / "blobs" / f"{len(list(root.parent.parent.glob('blobs/*')))}"
        blob.parent.mkdir(exist_ok=True)
        path.rename(blob)
        path.symlink_to(blob)
    (root / "vae").rename(root / "elsewhere")
    (root / "vae").symlink_to("elsewhere")
    made = tmp_path / "made"
    done("produce", root, made, "--to", ROWWISE, *TRANSFORMER)
    assert not [path for path in made.rglob("*") if path.is_symlink()]
    assert digests(made / "vae") == digests(root / "elsewhere")
    assert len(contracts_of(made)) == 3


def test_without_a_model_index_there_is_no_list_of_others(root: Path) -> None:
    (root / "model_index.json").unlink()
    made = root.parent / "made"
    report = done("produce", root, made, "--to", ROWWISE, *TRANSFORMER)
    assert sorted(path.name for path in made.iterdir()) == ["README.md", "transformer"]
    assert {each["name"] for each in report["files_not_copied"]} == set(OTHERS)
    assert inspect(made, "transformer").contract == ROWWISE


@pytest.mark.parametrize("command", ["produce", "decode"])
def test_killed_at_random_and_run_again(tmp_path: Path, command: str) -> None:
    source = pipeline(tmp_path / "source", rows=2100)
    rest = ["--to", BLOCKWISE, *TRANSFORMER] if command == "produce" else ["--to", "plain.f32@1", "--component", "text_encoder"]
    arguments = [command, str(source), "DST", *rest]
    request = {"arguments": arguments, "destination": str(tmp_path / "made"), "kills": KILLS, "factor": 0.7, "seed": 5}
    script = Path(__file__).parents[1] / "support" / "interrupts.py"
    process = subprocess.run(
        [sys.executable, script, json.dumps(request)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment({"OMP_NUM_THREADS": "1"}),
    )
    assert process.returncode == 0, process.stderr[-3000:]
    found = json.loads(process.stdout)
    assert found["first"] == 0
    assert set(found["codes"]) <= {0, 1}, process.stderr[-3000:]
    assert "Traceback" not in process.stderr
    assert found["odd"] == []
    assert len(set(found["finished_shards"])) > 2, "killed at one stage alone"
    whole = digests(tmp_path / "made-whole")
    assert set(whole) == set(digests(source))
    for tree in (found["trees"][0], found["trees"][-1]):
        assert digests(Path(tree)) == whole


def test_copies_that_are_finished_stay_and_the_others_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two converted shards and one copied one are finished; a full disk meets the second copy."""
    source = pipeline(tmp_path / "source", rows=1200)
    arguments = ("produce", source, tmp_path / "made", "--to", BLOCKWISE, *TRANSFORMER)
    interrupted_after(3, monkeypatch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    found = run(*arguments)
    assert found.code == 3
    assert "run the same command again" in found.err
    sizes = {name: (source / name).stat().st_size for name in digests(source) if name.endswith(".safetensors")}
    halves = [path.stat().st_size for path in (tmp_path / "made.partial").rglob("*.safetensors")]
    assert f"{sum(halves):,} are written" in found.err
    needed = int(found.err.partition("The shards take ")[2].partition(" bytes")[0].replace(",", ""))
    left = ("text_encoder/model-00002-of-00002.safetensors", "vae/diffusion_pytorch_model.safetensors")
    assert needed == sum(halves) + sum(sizes[name] for name in left)
    assert not (tmp_path / "made").exists()
    work = tmp_path / "made.partial" / "checkpoint"
    finished = [
        "text_encoder/model-00001-of-00002.safetensors",
        "transformer/diffusion_pytorch_model-00001-of-00002.safetensors",
        "transformer/diffusion_pytorch_model-00002-of-00002.safetensors",
    ]
    assert [name for name in digests(work) if not name.endswith(UNFINISHED)] == finished
    written = {name: (work / name).stat().st_mtime_ns for name in finished}
    monkeypatch.undo()
    (work / "vae").mkdir()
    (work / "vae" / "diffusion_pytorch_model.safetensors.writing").write_bytes(b"half")
    (work / "stale").mkdir()
    (work / "stale" / "config.json").write_text("not of the source any more")
    shutil.copy(source / "vae" / "diffusion_pytorch_model.safetensors", work / "text_encoder" / "model-00002-of-00002.safetensors")
    assert done(*arguments)["shards_resumed"] == 2
    assert {name: (tmp_path / "made" / name).stat().st_mtime_ns for name in finished} == written
    done("produce", source, tmp_path / "whole", *arguments[3:])
    assert digests(tmp_path / "made") == digests(tmp_path / "whole")
    assert not (tmp_path / "made" / "stale").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "source", "whole"]


@pytest.fixture
def unfinished(root: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """A command, interrupted when all shards were finished and copied."""

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    arguments = ("produce", root, root.parent / "made", "--to", BLOCKWISE, *TRANSFORMER)
    monkeypatch.setattr(converting, "_write_companions", interrupted)
    with pytest.raises(click.Abort):
        run(*arguments)
    monkeypatch.undo()
    return arguments


def test_another_component_is_another_conversion(root: Path, unfinished: tuple[Any, ...]) -> None:
    violations = refused(*unfinished[:-1], "vae")
    assert {each["code"] for each in violations} == {"partial-differs"}
    assert {"component", "source_headers"} <= {each["object"] for each in violations}
    assert refused("produce", root / "transformer", *unfinished[2:-2])[0]["code"] == "partial-differs"
    assert done(*unfinished)["shards_resumed"] == 2


@pytest.mark.parametrize("shard", ["vae/diffusion_pytorch_model.safetensors", "text_encoder/model-00002-of-00002.safetensors"])
def test_a_shard_of_another_component_that_was_written_to_is_another_source(root: Path, unfinished: tuple[Any, ...], shard: str) -> None:
    with (root / shard).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x11")
    assert {each["object"] for each in refused(*unfinished)} == {"source_files"}


@pytest.mark.parametrize("harm", ["shorter", "other header", "gone"])
def test_copies_that_are_not_as_they_were_noted_are_made_again(root: Path, unfinished: tuple[Any, ...], harm: str) -> None:
    copy = root.parent / "made.partial" / "checkpoint" / "vae" / "diffusion_pytorch_model.safetensors"
    if harm == "shorter":
        os.truncate(copy, copy.stat().st_size - 1)
    elif harm == "gone":
        copy.unlink()
    else:
        with copy.open("r+b") as file:
            file.seek(20)
            file.write(b"X")
    assert done(*unfinished)["shards_resumed"] == 2
    assert digests(root.parent / "made" / "vae") == digests(root / "vae")


def after_the_first_write(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let the source change while the conversion is at work."""
    right: Callable[..., int] = os.pwrite
    changed: list[object] = []

    def pwrite(descriptor: int, data: Any, place: int) -> int:
        if not changed:
            changed.append(change())
        return right(descriptor, data, place)

    monkeypatch.setattr(shard_writing.os, "pwrite", pwrite)


@pytest.mark.parametrize("harm", ["touched", "shorter", "longer", "other header"])
def test_another_component_that_changes_meanwhile_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    shard = root / "vae" / "diffusion_pytorch_model.safetensors"

    def change() -> None:
        if harm in ("shorter", "longer"):
            os.truncate(shard, shard.stat().st_size + (5 if harm == "longer" else -5))
        elif harm == "touched":
            os.utime(shard, (1, 1))
        else:
            with shard.open("r+b") as file:
                file.seek(20)
                file.write(b"X")

    after_the_first_write(monkeypatch, change)
    (violation,) = refused("produce", root, root.parent / "made", "--to", BLOCKWISE, *TRANSFORMER)
    assert violation["code"] == "file-changed"
    assert sorted(path.name for path in root.parent.iterdir()) == ["source"]


@pytest.mark.parametrize("harm", ["longer", "other header"])
def test_another_component_that_has_changed_since_it_was_inspected_is_refused(root: Path, harm: str) -> None:
    source = inspect(root, "transformer")
    production = plan_production(source, ROWWISE, (), ())
    with (root / "vae" / "diffusion_pytorch_model.safetensors").open("r+b") as file:
        file.seek(20 if harm == "other header" else 0, os.SEEK_SET if harm == "other header" else os.SEEK_END)
        file.write(b"X")
    with pytest.raises(Refusal) as caught:
        produce(source, production, root.parent / "made")
    assert caught.value.codes == ("file-changed",)
    assert caught.value.violations[0].object == "vae/diffusion_pytorch_model.safetensors"
    assert sorted(path.name for path in root.parent.iterdir()) == ["source"]


def test_another_component_that_is_cut_while_it_is_copied_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = root / "vae" / "diffusion_pytorch_model.safetensors"
    size = shard.stat().st_size
    monkeypatch.setattr(converting, "_PIECE", 1000)

    def cut_in_the_middle_of_the_last_file(done: int, total: int) -> None:
        if total - size / 2 < done < total:
            os.truncate(shard, size // 4)

    source = inspect(root, "transformer")
    with pytest.raises(Refusal) as caught:
        produce(source, plan_production(source, ROWWISE, (), ()), root.parent / "made", cut_in_the_middle_of_the_last_file)
    assert [(each.code, each.object) for each in caught.value.violations] == [("file-changed", "vae/diffusion_pytorch_model.safetensors")]
    assert sorted(path.name for path in root.parent.iterdir()) == ["source"]


def test_values_that_cannot_be_converted_leave_nothing_and_copy_nothing(root: Path) -> None:
    shutil.rmtree(root / "transformer")
    bad = noise(130, 144)
    bad[1, 1] = float("nan")
    save(root / "transformer", {"a.weight": bad, "b.weight": bad}, config={})
    violations = refused("produce", root, root.parent / "made", "--to", ROWWISE, *TRANSFORMER)
    assert [(each["code"], each["object"]) for each in violations] == [("values-not-finite", f"{name}.weight") for name in "ab"]
    assert sorted(path.name for path in root.parent.iterdir()) == ["source"]


def test_a_copy_that_is_none_is_a_fault(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = converting.write_whole

    def write_whole(path: Path, content: bytes) -> None:
        right(path, content)
        if path.name == "model_index.json":
            shutil.copy(
                root / "vae" / "diffusion_pytorch_model.safetensors", path.parent / "text_encoder" / "model-00001-of-00002.safetensors"
            )
            (path.parent / "text_encoder" / "model.safetensors.index.json").unlink()

    monkeypatch.setattr(converting, "write_whole", write_whole)
    with pytest.raises(FaultError, match="text_encoder is no copy of the component"):
        run("produce", root, root.parent / "made", "--to", BLOCKWISE, *TRANSFORMER)
    assert not (root.parent / "made").exists()
