"""Writes a receipt: all of it as JSON, and a page for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def write_receipt(folder: Path, document: Mapping[str, Any]) -> tuple[Path, Path]:
    """Write receipt.json and receipt.md into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "receipt.json", folder / "receipt.md"
    paths[0].write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    paths[1].write_text("\n".join(_page(document)) + "\n", encoding="utf-8")
    return paths


def _page(document: Mapping[str, Any]) -> Iterator[str]:
    counts = document["counts"]
    yield f"# GPU receipt: {document['verdict']}"
    yield ""
    yield f"{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} not run."
    yield ""
    yield from _where(document)
    yield from _bad("Failed", "failed", document)
    yield from _figures(document)
    yield from _bad("Not run", "not run", document)


def _where(document: Mapping[str, Any]) -> Iterator[str]:
    environment = document.get("environment", {})
    device = document.get("device")
    yield from ("| what | found |", "|---|---|")
    yield f"| device | {_device(device)} |"
    driver = environment.get("driver", {})
    yield f"| driver | {driver.get('version') or driver.get('reason') or 'unknown'}, CUDA {driver.get('cuda') or 'unknown'} |"
    yield f"| NVRTC | {environment.get('nvrtc', {}).get('version') or 'none'} |"
    torch = environment.get("torch", {})
    yield f"| torch | {torch.get('version') or 'none'}, CUDA {torch.get('cuda') or 'none'} |"
    yield f"| commit | {document.get('commit', 'unknown')} |"
    for name, kernel in document.get("kernels", {}).items():
        yield f"| `{name}` | {kernel.get('digest') or kernel.get('not_available')} |"
    yield ""


def _device(device: Mapping[str, Any] | None) -> str:
    if device is None:
        return "none"
    return f"{device.get('name', 'host memory behind a stand-in for the driver: no GPU')}, sm_{device['sm']}"


def _bad(title: str, state: str, document: Mapping[str, Any]) -> Iterator[str]:
    checks = [check for check in document["checks"] if check["state"] == state]
    if not checks:
        return
    yield from (f"## {title}", "", "| check | required | why |", "|---|---|---|")
    for check in checks:
        why = check["detail"].replace("\n", " ").replace("|", "\\|")
        yield f"| {check['name']} | {'yes' if check['required'] else 'no'} | {why} |"
    yield ""


def _figures(document: Mapping[str, Any]) -> Iterator[str]:
    rows = [check["figures"] for check in document["checks"] if "of_copy_bandwidth" in check["figures"]]
    if not rows:
        return
    peers = _peers(document)
    yield from ("## Figures", "", _ceilings(document), "")
    yield from (
        f"| N | K | M | lane | kernel | µs | ceiling µs | of copy bandwidth | of BF16 rate |{''.join(f' {name} µs |' for name in peers)}",
        "|---:|---:|---:|---|---|---:|---:|---:|---:|" + "---:|" * len(peers),
    )
    for row in rows:
        beside = "".join(f" {peers[name].get((row['n'], row['k'], row['m']), '')} |" for name in peers)
        kernel = row["compute_path"].removeprefix("cuda.nvrtc.")
        ratios = f"{row['of_copy_bandwidth']:.2f} | {row['of_bf16_rate']:.2f}"
        times = f"{row['us']:.2f} | {row['ceiling_us']:.2f}"
        yield f"| {row['n']} | {row['k']} | {row['m']} | {row['lane']} | {kernel} | {times} | {ratios} |{beside}"
    yield ""


def _ceilings(document: Mapping[str, Any]) -> str:
    found = [check["detail"] for check in document["checks"] if check["name"] == "timings: ceilings"]
    goals = document.get("goals", {})
    return f"In the same run: {found[0]}. Goals: " + ", ".join(f"{name.replace('_', ' ')} {goal}" for name, goal in goals.items()) + "."


def _peers(document: Mapping[str, Any]) -> dict[str, dict[tuple[int, int, int], float]]:
    """Return times by peer and shape, of the peers that were timed at all."""
    times: dict[str, dict[tuple[int, int, int], float]] = {}
    for check in document["checks"]:
        if check["name"].startswith("peer: ") and check["state"] == "passed":
            name = check["name"].removeprefix("peer: ").partition(" N=")[0]
            figures = check["figures"]
            times.setdefault(name, {})[figures["n"], figures["k"], figures["m"]] = figures["us"]
    return times
