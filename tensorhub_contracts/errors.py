"""The one error family: what is wrong, on which object, what was expected, what was found, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import attrs

from tensorhub_contracts.readable import Readable
from tensorhub_contracts.refusal_codes import explanations

_set = object.__setattr__  # a frozen class sets its own fields once; `object` is a field's name below


def writable(text: str) -> str:
    """Spell out what UTF-8 cannot hold, as Python would in a string; text that it can hold is left as it is."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


#: A refusal lists so many violations at most, and says how many more there are.
MOST_VIOLATIONS: Final = 10_000

#: A text of a violation has so many characters at most: names come from files, and one may be 90 MB long.
MOST_CHARACTERS: Final = 2_000


def shown(text: str) -> str:
    """Return the text of a violation: cut where it is very long, and in characters that UTF-8 can hold."""
    if len(text) > MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]}... ({len(text):,} characters)"
    return writable(text)


@attrs.frozen(slots=False, repr=False)
class Violation(Readable):
    """One reason for a refusal."""

    #: One of the closed list in `refusal_codes.toml`.
    code: str
    #: The tensor, file, key or handle that is wrong.
    object: str = attrs.field(converter=shown)
    expected: str = attrs.field(converter=shown)
    found: str = attrs.field(converter=shown)
    #: What to do: what the list says of the code, unless the place knows more.
    remedy: str = attrs.field(default="")
    #: The file that holds it, where there is one.
    shard: str = attrs.field(default="", converter=shown)
    #: The contract whose way of writing the object was found, or empty.
    resembles: str = ""
    #: The part of a pipeline that it is about, where several are judged at once.
    component: str = attrs.field(default="", converter=shown)

    def __attrs_post_init__(self) -> None:
        if not self.remedy:
            _set(self, "remedy", explanations()[self.code].remedy)  # frozen for whoever uses it

    def __str__(self) -> str:
        place = f" (in {self.shard})" if self.shard else ""
        place += f" of {self.component}" if self.component else ""
        looks = f" This is how {self.resembles} writes it." if self.resembles else ""
        return f"{self.code}: {self.object}{place}: expected {self.expected}; found {self.found}.{looks} {self.remedy}"


def is_unjudged(violations: Iterable[Violation]) -> bool:
    """Whether all that is wrong is that something could not be read."""
    return all(explanations()[each.code].unjudged for each in violations)


class TensorhubError(Exception):
    """Base of every error that this package raises on purpose."""


class Refusal(TensorhubError):
    """A typed answer: the input is refused, with every violation that was found, not the first.

    It is final, unless all that is wrong is that something could not be read: then nothing was judged, and the same
    question may be asked again (`retryable`). `nearest` is the handle of the contract that the input was judged against
    or comes closest to, or None. Of more than `MOST_VIOLATIONS` the first are kept and the others counted, with `unlisted`
    that were counted before: the last violation says how many.
    """

    def __init__(self, violations: Iterable[Violation], *, nearest: str | None = None, unlisted: int = 0) -> None:
        rest = iter(violations)
        #: The violations, without the one that counts the others.
        self.listed = tuple(islice(rest, MOST_VIOLATIONS))
        self.unlisted = unlisted + sum(1 for _ in rest)
        self.violations = (*self.listed, _unlisted(self.unlisted)) if self.unlisted else self.listed
        self.nearest = nearest
        super().__init__("\n".join(str(violation) for violation in self.violations))

    @property
    def retryable(self) -> bool:
        """Whether nothing was judged, because something could not be read."""
        return is_unjudged(self.violations)

    @property
    def codes(self) -> tuple[str, ...]:
        """The distinct codes, in the order in which they were found."""
        return tuple(dict.fromkeys(violation.code for violation in self.violations))


def bounded(found: Iterable[Violation | int]) -> tuple[Violation, ...]:
    """Return the first violations, and one that says how many more there are; a number stands for so many that were not written.

    A hostile checkpoint may be wrong a million times: texts are made for what is shown, and the rest is counted.
    """
    listed: list[Violation] = []
    unlisted = 0
    for each in found:
        if isinstance(each, int):
            unlisted += each
        elif len(listed) < MOST_VIOLATIONS:
            listed.append(each)
        else:
            unlisted += 1
    return (*listed, _unlisted(unlisted)) if unlisted else tuple(listed)


def _unlisted(count: int) -> Violation:
    expected = f"at most {MOST_VIOLATIONS:,} violations"
    return Violation(code="violations-unlisted", object="(all)", expected=expected, found=f"{count:,} more, which are not listed")


class FaultError(TensorhubError):
    """Something of ours or of a plugin is wrong, never a checkpoint. `problems` lists every fault."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class RegistryError(FaultError):
    """The registry, or the contracts that a plugin owns, are wrong; each problem is "path: what is wrong"."""


class DeclarationError(FaultError):
    """What a decoder declares with `implements_contract` is wrong; each problem is "argument: what is wrong"."""


class PluginError(FaultError):
    """Plugins could not be found or are not as the caller asked for; each problem names the plugin."""


class OutputError(TensorhubError):
    """An answer cannot be written where it was to go: the disk is full, or the stream is closed. The environment is at fault."""


class PluginSelectionError(TensorhubError):
    """`TENSOR_CONTRACTS_PLUGINS` names what is not there or is not well formed. `problems` lists every one."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
