"""The words of names and queries, in the form in which they are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

#: Words that say nothing of an op.
_COMMON_WORDS: Final = """
    a an and are as at be by do each every for from get give given how i in into is it
    its jnp keras make np numpy of on one op ops opwright or out over per tensor tensors
    tensorflow tf that the them then this to torch two up use using value values want
    what which with
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())
#: What names and those who look for them shorten.
_WHOLE: Final = {
    short: whole
    for whole, several in {
        "average": "avg",
        "compute": "calc",
        "convolution": "conv",
        "cosine": "cos",
        "dimension": "dim dims axis axes",
        "divide": "div",
        "exponential": "exp",
        "gradient": "grad gradients",
        "image": "img imgs",
        "index": "idx indices",
        "length": "len",
        "logarithm": "log",
        "matrix": "mat matrices",
        "maximum": "max",
        "minimum": "min",
        "multiply": "mul mult multiplication",
        "normalization": "norm normalize normalise normalisation",
        "product": "prod",
        "random": "rand",
        "reverse": "flip",
        "sine": "sin",
        "string": "str strings",
        "subtract": "sub",
        "tangent": "tan",
        "vector": "vec",
    }.items()
    for short in several.split()
}
_ENDINGS: Final = (
    *(("ations", "at"), ("ation", "at"), ("ating", "at"), ("ators", "at")),
    *(("ator", "at"), ("ates", "at"), ("ate", "at"), ("ies", "y"), ("ions", "")),
    *(("ion", ""), ("ings", ""), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")),
    ("e", ""),
)
_WORD: Final = re.compile(r"[a-z]+|\d+[a-z]?")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+[A-Za-z]?(?![a-z])|\d+")


def parts_of(name: str) -> list[str]:
    """A name's words as they are written, without its version: `Mat`, `Mul`."""
    name = re.sub(r"V\d+$", "", name.rpartition(">")[2])
    return _PART.findall(name)


def telling(text: str) -> frozenset[str]:
    """The stems of a text's words; of common ones only where there are no others."""
    words = [part.lower() for part in parts_of(text)]
    return frozenset(map(stem, set(words) - _COMMON or words))


def stems(text: str) -> Iterable[str]:
    """The stems of a text's words, each once, without the common ones."""
    return set(map(stem, set(_WORD.findall(text.lower())) - _COMMON))


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word without its ending, and whole: `convolut` for `conv`."""
    word = _WHOLE.get(word, word)
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word if word.endswith("ss") else word[: -len(ending)] + instead
    return word
