"""A plugin for CrossHair: an argument of a literal type is each of its values in turn."""

from typing import Any, Literal, cast

from crosshair import SymbolicFactory, register_type


def choose(create: SymbolicFactory, *values: object) -> object:
    """Fork once for each value, so that every path goes on with a plain one."""
    for value in values[:-1]:
        if create.space.smt_fork(desc=f"{create.varname}_is_{value}"):
            return value
    return values[-1]


register_type(cast(Any, Literal), choose)
