"""The command line: `python -m mutants MODULE...`, with this folder's parent on the path."""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from mutants.choosing import chosen_tests
from mutants.edits import Mutant
from mutants.equivalents import Equivalent, is_listed, read_equivalents, stale
from mutants.finding import mutants_of
from mutants.recording import Recording, recorded
from mutants.report import HOLES, document_of, line_of, summary_of
from mutants.sampling import sampled
from mutants.tree import TreeError, files_of, prove_imported_from
from mutants.workbench import Verdict, Workbench


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    given = _parser().parse_args(arguments)
    try:
        return _run(given)
    except TreeError as error:
        print(error, file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mutants", description="Change a place at a time and look whether a test fails.")
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a module or a folder, below the root")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the root of the tree, where the tests are run")
    parser.add_argument("--tests", nargs="+", default=["tests"], metavar="PATH", help="test files and folders")
    parser.add_argument("--count", type=int, default=50, help="how many mutants; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument("--limit", type=float, default=120, metavar="SECONDS", help="for the tests of a mutant, of which the cheapest run")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many mutants are tested at a time")
    parser.add_argument(
        "--equivalent", type=Path, default=Path(__file__).with_name("equivalent.toml"), help="the list of those that are none"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    return parser


def _run(given: argparse.Namespace) -> int:
    root: Path = given.root.resolve()
    modules = _modules(root, given.modules)
    every = [mutant for module in modules for mutant in mutants_of(module, (root / module).read_bytes())]
    listed = read_equivalents(given.equivalent)
    recording = recorded(root, modules, given.tests, given.workers)
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        benches: queue.SimpleQueue[Workbench] = queue.SimpleQueue()
        for number in range(given.workers):
            benches.put(bench := Workbench(root, Path(folder) / str(number)))
            prove_imported_from(root, bench.copy, modules)
        with ThreadPoolExecutor(given.workers) as workers:
            tasks = [
                workers.submit(_judged, mutant, listed, recording.tests(mutant.module, mutant.lines), recording, given.limit, benches)
                for mutant in sampled(every, given.count, given.seed)
            ]
            try:
                for task in as_completed(tasks):
                    verdicts.append(task.result())
                    print(line_of(verdicts[-1]), flush=True)
            finally:
                workers.shutdown(cancel_futures=True)
    print(f"\n{summary_of(verdicts)}")
    for entry in stale(listed, every):
        print(f"stale in {given.equivalent.name}: {entry.module}: {entry.original}")
    if given.json is not None:
        given.json.write_text(json.dumps(document_of(verdicts, given.seed), indent=2) + "\n")
    return int(any(each.status in HOLES for each in verdicts))


def _judged(
    mutant: Mutant,
    listed: Sequence[Equivalent],
    tests: set[str],
    recording: Recording,
    limit: float,
    benches: queue.SimpleQueue[Workbench],
) -> Verdict:
    if is_listed(mutant, listed):
        return Verdict(mutant, "equivalent")
    if not tests:
        return Verdict(mutant, "uncovered")
    chosen = chosen_tests({name: recording.seconds[name] for name in tests}, limit)
    bench = benches.get()
    try:
        return bench.judge(mutant, chosen, len(tests) - len(chosen))
    finally:
        benches.put(bench)


def _modules(root: Path, paths: Sequence[str]) -> list[str]:
    """Return the Python files of the tree that files and folders name, relative to the root."""
    known = [path for path in files_of(root) if path.suffix == ".py"]
    found = {path for path in known for each in paths if path.is_relative_to(Path(os.path.relpath(root / each, root)))}
    missing = [each for each in paths if not any(path.is_relative_to(Path(os.path.relpath(root / each, root))) for path in found)]
    if missing:
        raise TreeError(f"there is no module at {', '.join(missing)}")
    return sorted(map(str, found))


if __name__ == "__main__":
    sys.exit(main())
