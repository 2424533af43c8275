"""Decides which calls of ops are drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What decides which calls are drawn.

    Attributes:
        graphs: the part of the calls that are made in functions. To trace a function
            with its checks takes as long as fifty calls.
        kinds: the kinds of bends; all kinds if there are none.
    """

    seed: int
    graphs: float = 0.04
    kinds: tuple[str, ...] = ()
