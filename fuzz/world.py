"""The outside, as it really is: calls that travel, land or are lost, and what people said of them.

A call is `stalled` (its host has not sent it yet), in the `air`, `landed`, `lost` (it can not land any more) or
`void` (its key was made unusable). The call of the live run's record is `current`; calls whose record is settled
while they travel are `strays`. Inputs are numbered; sets of them are bit masks.
"""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from ..kernel.types import Key
from ..spec.invariants import Ghost

Call = Literal["", "stalled", "air", "landed", "lost", "void"]

TRAVELLING: Final = ("stalled", "air")
NOT_LANDED: Final = ("stalled", "air", "lost", "void")


class Stray(NamedTuple):
    mask: int
    call: Call


class World(NamedTuple):
    landed: tuple[int, ...]
    """How often each input was applied, since a person last denied it wrongly."""
    denied: int = 0
    asserted: int = 0
    current: Call = ""
    strays: tuple[Stray, ...] = ()
    declined: tuple[str, ...] = ()
    """Consumers whose last prepare left everything that was pending, and asked for no other look."""


def land(world: World, mask: int) -> World:
    """Each of these inputs is applied once more."""
    return world._replace(landed=tuple(n + (mask >> i & 1) for i, n in enumerate(world.landed)))


def called(world: World, call: Call, mask: int) -> World:
    """The current call comes to a new state; landing is what counts."""
    world = world._replace(current=call)
    return land(world, mask) if call == "landed" else world


def denied(world: World, mask: int) -> World:
    """A person says that the current call did not happen; that is wrong when it has."""
    if world.current != "landed":
        return world
    landed = tuple(0 if mask >> i & 1 else n for i, n in enumerate(world.landed))
    return world._replace(landed=landed, denied=world.denied | mask)


def asserted(world: World, mask: int) -> World:
    """A person says that the current call happened; that is wrong when it has not."""
    return world._replace(asserted=world.asserted | mask) if world.current != "landed" else world


def settled(world: World, mask: int) -> World:
    """The record is gone or final: a call that still travels goes astray, any other is over."""
    strays = world.strays
    if world.current in TRAVELLING:
        strays = tuple(sorted((*strays, Stray(mask, world.current))))
    return world._replace(current="", strays=strays)


def without(world: World, done: int) -> World:
    """Forget what concerns only inputs that are done and will be called no more.

    A stray is forgotten when all its inputs are done and its landing would be their first. Of an input that is
    not forgotten, two landings are as bad as many; after a wrong denial one is, because none counts.
    """
    watched = 0
    strays = []
    for stray in world.strays:
        harmless = stray.mask & ~done == 0 and not any(world.landed[i] for i in bits(stray.mask))
        if harmless and not any(other.mask & stray.mask for other in world.strays if other is not stray):
            continue
        strays.append(stray)
        watched |= stray.mask
    idle = done & ~watched
    return World(
        tuple(0 if idle >> i & 1 else min(n, 1 if world.denied >> i & 1 else 2) for i, n in enumerate(world.landed)),
        world.denied & ~idle,
        world.asserted & ~idle,
        world.current,
        tuple(strays),
        world.declined,
    )


def bits(mask: int) -> Iterator[int]:
    return (i for i in range(mask.bit_length()) if mask >> i & 1)


def stray_moves(world: World) -> Iterator[tuple[str, World]]:
    """What calls do whose record is settled: nobody waits for them, and they may land at any time."""
    for n, stray in enumerate(world.strays):
        rest = world.strays[:n] + world.strays[n + 1 :]
        if stray.call == "stalled":
            sent = tuple(sorted((*rest, Stray(stray.mask, "air"))))
            yield "a stalled host wakes and sends its call", world._replace(strays=sent)
        else:
            yield "a stray call lands", land(world._replace(strays=rest), stray.mask)
        yield "a stray call is lost", world._replace(strays=rest)


def ghost(world: World, keys: tuple[Key, ...]) -> Ghost:
    """The world as the invariants know it."""
    return Ghost(
        tuple(key for key, n in zip(keys, world.landed, strict=True) for _ in range(n)),
        frozenset(keys[i] for i in bits(world.denied)),
        frozenset(keys[i] for i in bits(world.asserted)),
    )


def exchanged(world: World, order: tuple[int, ...]) -> World:
    """The world with its inputs renumbered: the one at `order[n]` becomes the n-th."""

    def mask(value: int) -> int:
        return sum(1 << n for n, i in enumerate(order) if value >> i & 1)

    return World(
        tuple(world.landed[i] for i in order),
        mask(world.denied),
        mask(world.asserted),
        world.current,
        tuple(sorted(Stray(mask(s.mask), s.call) for s in world.strays)),
        world.declined,
    )
