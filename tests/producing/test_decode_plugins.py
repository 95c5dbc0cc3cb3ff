"""A contract that a plugin owns is decoded to a file by that plugin's decoder: the template, really installed, beside `load`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tensorhub_decoders.converting.companion_files import companion_files

from tensorhub_contracts import inspect
from tests.support.environments import ROOT, build_wheel

_RUN = """
import json, sys
import torch
from click.testing import CliRunner
from tensorhub_contracts import load
from tensorhub_contracts.commands import tensorhub

def run(*arguments):
    done = CliRunner().invoke(tensorhub, list(arguments), prog_name="tensorhub")
    return done.exit_code, done.stdout, done.stderr

source, folder = sys.argv[1:]
answers = {name: run("decode", source, f"{folder}/{name}", "--to", contract, "--output", "json") for name, contract in (
    ("bf16", "plain.bf16@1"), ("f16", "plain.f16@1"), ("f32", "plain.f32@1"))}
answers["text"] = run("decode", source, f"{folder}/text", "--to", "plain.bf16@1")
loaded = load(source, dtype="BF16", resident=False)
torch.save(dict(loaded.weights), f"{folder}/loaded.pt")
answers["decoder"] = loaded.report.decoder
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds what the template's wheel installs."""
    folder = tmp_path_factory.mktemp("template")
    with zipfile.ZipFile(build_wheel(ROOT / "template", folder / "wheel")) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def run_python(script: str, *arguments: Path, site: Path | None) -> Any:
    """Run a script in a process that sees the installed plugin, or does not; return the JSON that it prints last."""
    path = os.pathsep.join(filter(None, [str(site) if site else "", os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def int8_tree(folder: Path) -> Path:
    """A checkpoint of the template's contract, with scales that do not come out even, a norm, and an F32 matrix that nothing scales."""
    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "norm.weight": torch.rand(40, generator=generator),
        "router": torch.rand(4, 40, generator=generator),
        "steps": torch.arange(3),
    }
    for name in ("a", "b"):
        tensors[f"{name}.weight"] = torch.randint(-128, 128, (30, 40), dtype=torch.int8, generator=generator)
        tensors[f"{name}.weight_scale"] = torch.rand(30, generator=generator) / 7
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "acme-int8"}, "x": 1}), "utf-8")
    return folder


def test_a_plugins_contract_is_decoded_as_load_decodes_it(site: Path, tmp_path: Path) -> None:
    source = int8_tree(tmp_path / "source")
    answers = run_python(_RUN, source, tmp_path, site=site)
    code, out, err = answers["bf16"]
    assert code == 0, err
    report = json.loads(out)
    assert (report["contract"], report["decoded"]) == ("plain.bf16@1", ["a.weight", "b.weight"])
    assert (report["source_contract"], report["cast"], report["reference_dequant"]) == ("acme.int8-channel@1", ["router"], "")
    assert answers["decoder"] == "acme_int8.plugin:decode_int8_channel"
    loaded = torch.load(tmp_path / "loaded.pt")
    written = load_file(tmp_path / "bf16" / "model.safetensors")
    assert set(written) == set(loaded)
    for name, tensor in written.items():
        expected = (
            loaded[name].to(torch.bfloat16) if name == "router" else loaded[name]
        )  # an unquantized contract has one dtype of matrices
        assert torch.equal(tensor.reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8)), name
    assert json.loads((tmp_path / "bf16" / "config.json").read_text("utf-8")) == {"x": 1}
    assert "compared  nothing: no reference formula of acme.int8-channel@1 is known here\n" in answers["text"][1]


def test_a_dtype_that_the_plugins_lanes_do_not_have_is_refused(site: Path, tmp_path: Path) -> None:
    """The template upcasts for activations of 16 bits: F16 is decoded, and F32 is not."""
    answers = run_python(_RUN, int8_tree(tmp_path / "source"), tmp_path, site=site)
    assert answers["f16"][0] == 0
    assert load_file(tmp_path / "f16" / "model.safetensors")["a.weight"].dtype is torch.float16
    code, out, _ = answers["f32"]
    (violation,) = json.loads(out)["violations"]
    assert (code, violation["code"], violation["found"]) == (1, "conversion-impossible", "acme.int8-channel@1")
    assert "acme" not in violation["expected"]
    assert "hf.fp8-blockwise@1" in violation["expected"]
    assert not (tmp_path / "f32").exists()


_WRONG = """
import json, pathlib, sys
import torch
import acme_int8.plugin as plugin
from tensorhub_contracts import FaultError, inspect
from tensorhub_decoders.converting.decode import decode, plan_decoding
from tensorhub_contracts.plugins.facts import Plugins

faults = []

def answer(change):
    def decoder(self, name, contract):
        class Registered:
            @staticmethod
            def function(inspection, *, lane, dtype):
                yield from change([tuple(each) for each in plugin.decode_int8_channel(inspection, lane=lane, dtype=dtype)])
        return Registered
    Plugins.decoder = decoder
    source = inspect(sys.argv[1]).require()
    try:
        decode(source, plan_decoding(source, "plain.bf16@1", allow_nan=False), pathlib.Path(sys.argv[2]) / "made")
    except FaultError as fault:
        faults.append(str(fault).partition(": ")[2])

answer(lambda decoded: decoded[:1])
answer(lambda decoded: [decoded[0], decoded[0], decoded[1]])
answer(lambda decoded: [(name, tensor.float(), path) for name, tensor, path in decoded])
answer(lambda decoded: [(name, tensor[:3], path) for name, tensor, path in decoded])
answer(lambda decoded: [*decoded, ("c.weight", decoded[0][1], "")])
made = (pathlib.Path(sys.argv[2]) / "made").exists()
print(json.dumps([faults, made]))
"""


def test_a_decoder_that_does_not_give_what_the_plan_says_is_at_fault_by_name(site: Path, tmp_path: Path) -> None:
    faults, made = run_python(_WRONG, int8_tree(tmp_path / "source"), tmp_path, site=site)
    assert faults == [
        "yields nothing for b.weight",
        "yields a.weight, for which it was not asked, or which it has yielded before",
        "gives a.weight as torch.float32 (30, 40) on cpu, where BF16 (30, 40) on the CPU was asked for",
        "gives a.weight as torch.bfloat16 (3, 40) on cpu, where BF16 (30, 40) on the CPU was asked for",
        "yields c.weight, for which it was not asked, or which it has yielded before",
    ]
    assert not made


def test_a_file_that_declares_what_was_decoded_is_left_out_with_the_reason(tmp_path: Path) -> None:
    """A contract may be declared beside `config.json`; copied, such a file would declare the result to be quantized."""
    save_file({"a.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    for name in ("config.json", "hf_quant_config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}", "utf-8")
    checkpoint = inspect(tmp_path).checkpoint
    assert checkpoint is not None
    assert companion_files(checkpoint, {}).copied == ("hf_quant_config.json", "tokenizer.json")
    files = companion_files(checkpoint, {}, ("hf_quant_config.json",))
    assert (files.copied, files.left) == (("tokenizer.json",), (("hf_quant_config.json", "it declares the layout of the source"),))
