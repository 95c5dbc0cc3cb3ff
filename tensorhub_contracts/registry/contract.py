"""What headers cannot show, in words: for reports, pages and the registry's check."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from tensorhub_contracts.checkpoints.config_files import DeclarationKind
from tensorhub_contracts.documents import DimensionNumber, DimensionText
from tensorhub_contracts.readable import Readable
from tensorhub_contracts.registry.shape_patterns import Dimension, parse_shape

#: A value that a configuration file must hold. Types are exact: 128.0 and true are not 128.
DeclaredValue = str | int | tuple[int, ...]

#: The least compute capability (sm, 89 is 8.9) that a lane needs; "none" is written out, never a silent 0.
Floor = int | Literal["none"]

Provenance = Literal["code", "report", "inferred"]
Role = Literal["weight-scale", "global-scale", "activation-scale", "zero-point", "cache-scale", "producer-note"]
ScaleDirection = Literal["multiply", "global-divides", "none"]
Execution = Literal["eager", "compiled"]

#: Whether a checkpoint that declares nothing may be in a contract: never; whenever its bytes are; or if they are in no other.
Undeclared = Literal["never", "allowed", "if-unique"]


@attrs.frozen(slots=False, repr=False)
class TensorFacts(Readable):
    """One tensor of a unit: its name pattern, the dtypes it may have and the shapes it may have."""

    name: str
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[DimensionText | DimensionNumber, ...], ...]
    optional: bool = False

    @property
    def patterns(self) -> tuple[tuple[Dimension, ...], ...]:
        """The shapes, parsed; raises ValueError for one that is not well formed."""
        return tuple(map(parse_shape, self.shapes))

    @property
    def suffix(self) -> str:
        """What follows the placeholder: `.weight` of `{module}.weight`."""
        return self.name.partition("}")[2]


@attrs.frozen(slots=False, repr=False)
class Form(Readable):
    """One way in which a unit of the contract is written; the tensor with the role `weight` is the primary one."""

    name: str
    tensors: dict[str, TensorFacts]
    #: Whether a checkpoint in the contract has at least one unit of the form.
    required: bool = False

    @property
    def primary(self) -> TensorFacts:
        """The tensor that the sidecars belong to; its dimensions bind the symbols."""
        return self.tensors["weight"]

    @property
    def numbered(self) -> bool:
        """Whether the weights of a module are numbered from 0 (`{module}.shard_{number}.weight`), and share the module's sidecars."""
        return "{number}" in self.primary.name

    def names(self, weight: str) -> dict[str, str]:
        """Return the names of the tensors by role, whether they are there or not, for a unit with this weight."""
        before, numbered, after = self.primary.suffix.partition("{number}")
        stem = weight.removesuffix(after).rpartition(before)[0] if numbered else weight.removesuffix(before)
        return {role: weight if role == "weight" else stem + tensor.suffix for role, tensor in self.tensors.items()}


@attrs.frozen(slots=False, repr=False)
class Marker(Readable):
    """A tensor that says how a checkpoint is stored and is no part of the model; its name is a whole last segment."""

    name: str
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]


@attrs.frozen(slots=False, repr=False)
class Requirement(Readable):
    """One key that a declaration must hold. Dots step into objects and `*` stands for every member of one.

    Exactly one of `equals`, `any_of`, `null` and `keys` states the value; `keys` are all that an object may hold. A requirement
    that is `optional` is met by absence and by null, one that may be `absent` by absence alone: where the key has one
    documented default, and null none.
    """

    key: str
    equals: DeclaredValue | None = None
    any_of: tuple[str, ...] = ()
    null: bool = False
    keys: tuple[str, ...] = ()
    optional: bool = False
    absent: bool = False


@attrs.frozen(slots=False, repr=False)
class Declares(Readable):
    """What one kind of configuration source must say for a checkpoint to declare the contract.

    `modules` is the key of an object that has a member for each unit's module, and no other.
    """

    source: DeclarationKind
    require: tuple[Requirement, ...]
    modules: str = ""


@attrs.frozen(slots=False, repr=False)
class UnquantizedRule(Readable):
    """Which dtypes the tensors that nothing scales may have: matrices have rank 2 or more, vectors less.

    In a `mixed` contract the matrices have two dtypes or more. In a contract without units, vectors alone are judged as
    matrices are.
    """

    matrix_dtypes: tuple[str, ...] = ("BF16", "F16", "F32")
    vector_dtypes: tuple[str, ...] = ("BF16", "F16", "F32")
    mixed: bool = False


@attrs.frozen(slots=False, repr=False)
class KnownAs(Readable):
    """What another corpus calls the layout: its handle there, and its digest, which is worked out in another way than here."""

    #: The corpus, such as "tensorfs v2".
    corpus: str
    handle: str
    digest: str


@attrs.frozen(slots=False, repr=False)
class Contract(Readable):
    """A named tensor layout. `digest` is the SHA-256 of its normative facts; see `normative_facts`."""

    handle: str
    summary: str
    element: str
    reference_dequant: str
    evidence: Provenance
    source: str
    not_provable: tuple[str, ...]
    decoder: Literal["shipped", "none"] = "none"
    scale_direction: ScaleDirection = "none"
    block: tuple[int, int] | None = None
    multiple_of: dict[str, int] = attrs.field(factory=dict)
    whole_tree: bool = False
    probe: str = ""
    unquantized: UnquantizedRule = UnquantizedRule()
    floors: dict[str, Floor] = attrs.field(factory=dict)
    form: tuple[Form, ...] = ()
    marker: tuple[Marker, ...] = ()
    declares: tuple[Declares, ...] = ()
    undeclared: Undeclared | None = None
    #: For people and for who compares corpora; no part of the digest.
    known_as: tuple[KnownAs, ...] = ()

    @property
    def when_undeclared(self) -> Undeclared:
        """What holds for a checkpoint that declares nothing; unless it is said, what nothing declares is allowed to, and only that."""
        return self.undeclared or ("never" if self.declares else "allowed")

    @property
    def quantized(self) -> bool:
        """Whether the contract has units; the plain ones have none."""
        return bool(self.form)


@attrs.frozen(slots=False, repr=False)
class SidecarName(Readable):
    """A sidecar's name: the end of its last dotted segment, what it means, and what it belongs to.

    `beside` lists what may stand in place of the suffix in the name of the tensor that the sidecar belongs to. Under a module
    whose name ends in a segment of `alone` it belongs to none, and scales the key or value cache.
    """

    suffix: str
    role: Role
    beside: tuple[str, ...]
    used_by: str
    needs_quantized: bool = False
    alone: tuple[str, ...] = ()


@attrs.frozen(slots=False, repr=False)
class Payload(Readable):
    """A name that marks a packed weight by itself, whatever lies beside it."""

    suffix: str
    used_by: str
    dtypes: tuple[str, ...] = ()


@attrs.frozen(slots=False, repr=False)
class ReferenceDequant(Readable):
    """The formula that defines a contract's numbers, and where it rounds."""

    name: str
    formula: str
    rounding: str


@attrs.frozen(slots=False, repr=False)
class LaneBody(Readable):
    """What a decoder may declare that it serves: weights of `elements`, computed with as the body's name says.

    Lanes with a lower `rank` come first. `executions` are the ways in which the body may run, in order.
    """

    body: str
    rank: int
    elements: tuple[str, ...]
    executions: tuple[Execution, ...]
    summary: str


@attrs.frozen(slots=False, repr=False)
class ConversionEdge(Readable):
    """An edge between contracts: `producible` loses precision and is done ahead of time, `decodable` is exact."""

    source: tuple[str, ...]
    to: tuple[str, ...]
    kind: Literal["producible", "decodable"]


@attrs.frozen(slots=False, repr=False)
class Superseded(Readable):
    """A major that is no longer listed: it resolves to `by`, and only for who proves the recorded digest."""

    handle: str
    digest: str
    by: str


@attrs.frozen(slots=False, repr=False)
class BookkeepingWords(Readable):
    """Words of names that the rule for integers which are no weights takes into account."""

    tables: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    tokenizers: tuple[str, ...] = ()
    #: Of complex tensors that rotate: tables of a rotary embedding.
    rotations: tuple[str, ...] = ()


@attrs.frozen(slots=False, repr=False)
class ForeignMethod(Readable):
    """A way to quantize that the field knows and no contract describes: for messages, and never read.

    `declared` are values that declare it, `keys` are keys that do where no method is named, each list of `marks` holds last
    segments that lie beside one another, and `unit` says what a unit looks like.
    """

    name: str
    unit: str
    declared: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    marks: tuple[tuple[str, ...], ...] = ()


@attrs.frozen(slots=False, repr=False)
class RegistryFile(Readable):
    """The content of `registry.toml`, structured and not yet judged."""

    schema: int
    contract: tuple[Contract, ...]
    sidecar: tuple[SidecarName, ...] = ()
    payload: tuple[Payload, ...] = ()
    reference_dequant: tuple[ReferenceDequant, ...] = ()
    lane: tuple[LaneBody, ...] = ()
    conversion: tuple[ConversionEdge, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    bookkeeping: BookkeepingWords = BookkeepingWords()
    method: tuple[ForeignMethod, ...] = ()


@attrs.frozen(slots=False, repr=False)
class OwnedContractsFile(Readable):
    """The contracts that a plugin owns, all of one producer, structured and not yet judged."""

    schema: int
    producer: str
    contract: tuple[Contract, ...]
    sidecar: tuple[SidecarName, ...] = ()
    payload: tuple[Payload, ...] = ()
    reference_dequant: tuple[ReferenceDequant, ...] = ()


#: What headers cannot show, by the word that contracts use for it.
NOT_PROVABLE: Final = {
    "values": "the values: scales that are zero, negative or not finite, and NaN codes, are seen only when bytes are read",
    "dense-values": "the values: whether some are NaN or infinite is seen only when bytes are read",
    "scale-direction": "the direction of the scale: that it multiplies is part of the contract, not of the headers",
    "grid-orientation": "the orientation of a scale grid with as many blocks down as across: it has the same shape transposed",
    "member-origins": "where members begin inside a fused weight: the contract counts blocks from row 0 of the stored tensor",
    "no-scale-was-removed": "that no scale was lost: in this contract the absence of scales is the identity",
    "nibble-order": "which of two packed elements lies in the low nibble",
    "swizzle": "the order of the swizzled scales",
    "note-content": "what the notes beside the weights say: a note is bytes of the payload, and may name another format",
    "last-number": "whether numbered weights are missing after the last one that is there",
}
