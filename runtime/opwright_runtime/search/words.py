"""The words of names and queries, in the form in which they are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

#: Words that do not distinguish ops. They are ignored.
_COMMON_WORDS: Final = """
    a am an and are as be by can could did do does each every for from function
    functions get give given has have how i in into is it its jax jnp keras make my need
    np numpy of on one op ops opwright or out over per python pytorch should some tensor
    tensors tensorflow tf that the their them then there these this those to torch two
    up use using value values want was way we what when which why with x y you your
"""
_COMMON: Final = frozenset(_COMMON_WORDS.split())
#: Abbreviations and other forms of words, with the form to which they are converted.
_WHOLE: Final = {
    short: whole
    for whole, several in {
        "average": "avg",
        "center": "centre centred centered",
        "color": "colour colours coloured colored",
        "compute": "calc",
        "convolution": "conv",
        "cosine": "cos",
        "dimension": "dim dims axis axes",
        "divide": "div",
        "exponential": "exp",
        "gradient": "grad gradients",
        "gray": "grey",
        "image": "img imgs",
        "index": "idx indices",
        "length": "len",
        "logarithm": "log",
        "matrix": "mat matrices",
        "maximum": "max",
        "minimum": "min",
        "multiply": "mul mult multiplication",
        "neighbor": "neighbour neighbours neighbouring",
        "normalization": "norm",
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
    *(("izations", "iz"), ("ization", "iz"), ("izers", "iz"), ("izer", "iz")),
    *(("ations", "at"), ("ation", "at"), ("ating", "at"), ("ators", "at")),
    *(("ator", "at"), ("ates", "at"), ("ate", "at"), ("ies", "y"), ("ions", "")),
    *(("ion", ""), ("ings", ""), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")),
    ("e", ""),
)
#: The British spelling of words such as `normalise`. It is converted to a z.
_SPELT_WITH_S: Final = re.compile(r"is(?=(?:e|es|ed|er|ers|ing|ations?)$)")
#: The doubled consonant that stays of `clipping` without its ending. It becomes single.
_DOUBLED: Final = re.compile(r"([bdgmnprt])\1$")
_VERSION: Final = re.compile(r"V\d+$")
_DIMENSIONS: Final = re.compile(r"\b(\d|N)-D\b")
_SPACES: Final = re.compile(r"[\s_-]")
_WORD: Final = re.compile(r"[a-z]+|\d+[a-z]?")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+[A-Za-z]?(?![a-z])|\d+")


def parts_of(name: str) -> list[str]:
    """The words of a name as they are spelled, without its version: `Mat`, `Mul`."""
    name = _VERSION.sub("", name.rpartition(">")[2])
    return _PART.findall(_DIMENSIONS.sub(r"\1d", name))


@lru_cache(maxsize=16384)
def telling(text: str) -> frozenset[str]:
    """The stems of the words of a text. Common words count only if all are common."""
    words = [part.lower() for part in parts_of(text)]
    return frozenset(map(stem, set(words) - _COMMON or words))


def joined(text: str) -> str:
    """A text in lower case, written as one word: `maxpool` for `Max_Pool`."""
    return _SPACES.sub("", text).lower()


def stems(text: str) -> Iterable[str]:
    """The distinct stems of the words of a text, without common words."""
    return set(map(stem, set(_WORD.findall(text.lower())) - _COMMON))


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """The stem of a word. Abbreviations are expanded first: `convolut` for `conv`."""
    word = _WHOLE.get(word, word)
    word = _SPELT_WITH_S.sub("iz", word)
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            if not word.endswith("ss"):
                word = word[: -len(ending)] + instead
            break
    return _DOUBLED.sub(r"\1", word)
