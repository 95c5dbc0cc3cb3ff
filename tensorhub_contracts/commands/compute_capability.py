"""A compute capability on the command line, in the forms in which people and tools write one."""

from __future__ import annotations

import re
from typing import Any

import click

_FORMS = "90, 9.0, sm_90 or sm_90a"


class ComputeCapabilityType(click.ParamType[Any]):
    """`90`, `9.0`, `sm_90` or `sm_90a`, all of which are 90."""

    name = "SM"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        matched = re.fullmatch(r"([1-9][0-9]?)\.([0-9])|([1-9][0-9]{1,2})|sm_([1-9][0-9]{1,2})[af]?", str(value), re.ASCII | re.IGNORECASE)
        if matched is None:
            self.fail(f"{value!r} is no compute capability; write it as {_FORMS}", param, ctx)
        return int("".join(filter(None, matched.groups())))
