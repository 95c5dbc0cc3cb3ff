"""The one error family: what is wrong, on which object, what was expected, what was found, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from tensorhub_contracts.readable import Readable
from tensorhub_contracts.refusal_codes import explanations

_set = object.__setattr__  # a frozen class sets its own fields once; `object` is a field's name below


def writable(text: str) -> str:
    """Spell out what UTF-8 cannot hold, as Python would in a string; text that it can hold is left as it is."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


@attrs.frozen(repr=False)
class Violation(Readable):
    """One reason for a refusal."""

    #: One of the closed list in `refusal_codes.toml`.
    code: str
    #: The tensor, file, key or handle that is wrong.
    object: str = attrs.field(converter=writable)
    expected: str = attrs.field(converter=writable)
    found: str = attrs.field(converter=writable)
    #: What to do: what the list says of the code, unless the place knows more.
    remedy: str = attrs.field(default="")
    #: The file that holds it, where there is one.
    shard: str = attrs.field(default="", converter=writable)
    #: The contract whose way of writing the object was found, or empty.
    resembles: str = ""
    #: The part of a pipeline that it is about, where several are judged at once.
    component: str = attrs.field(default="", converter=writable)

    def __attrs_post_init__(self) -> None:
        if not self.remedy:
            _set(self, "remedy", explanations()[self.code].remedy)  # frozen for whoever uses it

    def __str__(self) -> str:
        place = f" (in {self.shard})" if self.shard else ""
        place += f" of {self.component}" if self.component else ""
        looks = f" This is how {self.resembles} writes it." if self.resembles else ""
        return f"{self.code}: {self.object}{place}: expected {self.expected}; found {self.found}.{looks} {self.remedy}"


class TensorhubError(Exception):
    """Base of every error that this package raises on purpose."""


class Refusal(TensorhubError):
    """A typed, final answer: the input is refused, with every violation that was found, not the first.

    `nearest` is the handle of the contract that the input was judged against or comes closest to, or None.
    """

    retryable = False

    def __init__(self, violations: Iterable[Violation], *, nearest: str | None = None) -> None:
        self.violations = tuple(violations)
        self.nearest = nearest
        super().__init__("\n".join(str(violation) for violation in self.violations))

    @property
    def codes(self) -> tuple[str, ...]:
        """The distinct codes, in the order in which they were found."""
        return tuple(dict.fromkeys(violation.code for violation in self.violations))


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


class PluginSelectionError(TensorhubError):
    """`TENSOR_CONTRACTS_PLUGINS` names what is not there or is not well formed. `problems` lists every one."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))
