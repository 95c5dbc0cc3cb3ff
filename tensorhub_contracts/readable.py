"""One `repr` for classes that an inspection makes: attrs would write one for each, which takes a tenth of a millisecond at every start.

For the same reason they have no slots: a class with slots is made twice.
"""

from __future__ import annotations

import attrs


class Readable:
    """Shows an attrs class as attrs does: `Unit(name='a.weight', layout=...)`. For classes with `attrs.frozen(slots=False, repr=False)`."""

    __slots__ = ()

    def __repr__(self) -> str:
        fields: tuple[attrs.Attribute[object], ...] = attrs.fields(type(self))  # type: ignore[arg-type]  # whoever inherits is one
        return f"{type(self).__name__}({', '.join(f'{field.name}={getattr(self, field.name)!r}' for field in fields)})"
