"""Takes some of many mutants: at random, the same ones for the same seed, spread evenly over modules and kinds."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable

from mutants.edits import Mutant


def sampled(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants, or all of them if there are fewer or `count` is 0.

    Modules take turns. Each gives a mutant of the kind that has been taken least often so far, of those that it has left.
    """
    chance = random.Random(seed)
    left: dict[str, dict[str, list[Mutant]]] = defaultdict(lambda: defaultdict(list))
    for each in mutants:
        left[each.module][each.kind].append(each)
    modules = sorted(left)
    chance.shuffle(modules)
    for kinds in left.values():
        for group in kinds.values():
            chance.shuffle(group)
    taken: list[Mutant] = []
    often: Counter[str] = Counter()
    while modules and (count == 0 or len(taken) < count):
        for module in list(modules):
            kinds = left[module]
            if not kinds:
                modules.remove(module)
            elif count == 0 or len(taken) < count:
                rarest = min(often[kind] for kind in kinds)
                kind = chance.choice(sorted(kind for kind in kinds if often[kind] == rarest))
                often[kind] += 1
                taken.append(kinds[kind].pop())
                if not kinds[kind]:
                    del kinds[kind]
    return taken
