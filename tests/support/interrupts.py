"""Runs a command again and again and kills it (SIGKILL) at random moments, until it has been killed often enough.

A process of its own: it imports PyTorch once, computes nothing, and forks a child for each run, which would otherwise
spend most of its life on imports. What is killed is the whole command, as its users run it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import tensorhub_decoders.converting.convert
import tensorhub_decoders.converting.decoded_values
import tensorhub_decoders.converting.fp8_quantization  # noqa: F401  # imported before the forks
import torch

from tensorhub_contracts.commands import main


def start(arguments: list[str]) -> int:
    """Fork a child that runs the command; return its process id."""
    child = os.fork()
    if child:
        return child
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.argv = ["tensorhub", *arguments]
    try:
        main()
    except SystemExit as error:
        os._exit(error.code if isinstance(error.code, int) else 0 if error.code is None else 99)
    os._exit(98)


def missing_beside_the_last(destination: Path, whole: Path) -> list[str]:
    """Return the files that an unfinished work lacks, if what makes a checkpoint or a pipeline of it is there already: none may."""
    work = Path(f"{destination}.partial") / "checkpoint"
    last = "model_index.json" if (whole / "model_index.json").exists() else "config.json"
    files = [path.relative_to(whole) for path in whole.rglob("*")]
    return [str(path) for path in files if not (work / path).exists()] if (work / last).exists() else []


def kill_often(arguments: list[str], destination: Path, wanted: int, seconds: float, seed: int) -> dict[str, object]:
    """Kill the command `wanted` times, over as many destinations as that takes; return what was seen."""
    chance = random.Random(seed)
    kills, codes, trees, seen, odd = 0, [], [], [], []
    while kills < wanted or not trees:
        target = Path(f"{destination}-{len(trees)}")
        while not target.exists():
            child = start([arg.replace("DST", str(target)) for arg in arguments])
            time.sleep(chance.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            kills += os.WIFSIGNALED(status)
            if not os.WIFSIGNALED(status):
                codes.append(os.waitstatus_to_exitcode(status))
            work = Path(f"{target}.partial") / "checkpoint"
            seen.append(len(list(work.rglob("*.safetensors"))) if work.is_dir() else -1)
            odd += missing_beside_the_last(target, Path(f"{destination}-whole"))
        trees.append(str(target))
        if Path(f"{target}.partial").exists():  # killed between the last rename and the end: a rerun says so, or tidies up
            child = start([arg.replace("DST", str(target)) for arg in arguments])
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        if len(trees) > 1:
            for other in trees[1:-1]:
                shutil.rmtree(other, ignore_errors=True)
    return {"kills": kills, "codes": codes, "trees": trees, "finished_shards": seen, "odd": odd}


if __name__ == "__main__":
    torch.set_num_threads(1)  # threads do not survive a fork
    request = json.loads(sys.argv[1])
    began = time.monotonic()
    child = start([arg.replace("DST", request["destination"] + "-whole") for arg in request["arguments"]])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    alone = time.monotonic() - began
    found = kill_often(request["arguments"], Path(request["destination"]), request["kills"], alone * request["factor"], request["seed"])
    print(json.dumps({"first": code, "alone": alone, "seconds": time.monotonic() - began, **found}))
