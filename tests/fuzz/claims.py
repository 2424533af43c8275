"""What an error says of the arguments of a call, held against the arguments themselves.

Nothing here knows the shapes of opdefs: a sentence is true if its facts are, and if
TensorFlow answers otherwise once what it blames has changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from opwright_runtime import errors

from .bends import (
    Arguments,
    Bent,
    cast,
    each,
    has_integers,
    info_of,
    resized,
    tensor_at,
    with_tensor,
)
from .refused_before import REFUSED_BEFORE

_LABEL = r"[A-Za-z_]\w*(?:\[-?\d+\])?"
_HAS = (
    r"no dimensions|\d+ dimensions?|\d+ elements?|\d+ rows?|\d+ columns?"
    r"|size \d+ at axis \d+"
)
_ALLOWED = r"\d+(?: or (?:\d+|more|less))*|a multiple of \d+(?: and \d+)?"
_SENTENCE = re.compile(
    rf"(?P<label>{_LABEL}) has (?P<has>{_HAS})"
    r"(?:"
    rf", not (?P<allowed>{_ALLOWED})"
    r"|(?P<scalar>; it must be a scalar)"
    rf"|; (?P<like>{_LABEL}) has (?P<rank>\d+)"
    rf"|, (?P<other>{_LABEL}) has (?P<other_has>{_HAS}) \(\w+\)"
    rf"|, (?P<same>{_LABEL}) has (?P<same_has>{_HAS})"
    r"|, not the (?P<wanted>\d+)(?: or more)? that follows? from "
    rf"(?P<sources>{_LABEL}(?:, {_LABEL})*(?: and {_LABEL})?)"
    r")"
)

#: What is said of a call that does not meet the conditions of its opdef.
_REQUIRED = re.compile(
    rf"(?P<label>{_LABEL}) (?:has (?P<has>no dimensions|\d+ dimensions?|\d+ elements?)"
    r"|has the shape \[(?P<shape>[^\]]*)\]|is .*|contains .*|holds .*|decreases"
    r"|has size .*|ends with .*|has (?:inf or )?nan|has an? (?:start|index) .*)"
    r"; (?:it|its last element|each element|each row|no element|an index) "
    r"(?:must|of|may) .*"
)

#: Makes a call, and gives what TensorFlow answers: its words, or None if it takes it.
Answer = Callable[[Arguments], "str | None"]


@dataclass(frozen=True)
class Place:
    """An input, or a tensor of a list; or an attr, which has no array."""

    name: str
    at: int | None


def place(op: str, label: str) -> Place | None:
    """What a label of a message names; None if there is no such argument."""
    name, _, index = label.rstrip("]").partition("[")
    info = info_of(op)
    for one in (*info.inputs, *info.attrs):
        if one.python_name == name:
            return Place(one.name, int(index) if index else None)
    return None


def is_refused_before(bent: Bent, error: errors.OpError) -> bool:
    """Whether an error refuses a call that TensorFlow may take without a use."""
    return bent.op in REFUSED_BEFORE and _requirement(bent, error) is not None


def _requirement(bent: Bent, error: errors.OpError) -> re.Match[str] | None:
    """What an error says of a condition of the opdef; None if it is of another kind."""
    if isinstance(error, errors.OpExecutionError):
        return None
    text = str(error).removeprefix(f"{bent.op}: ")
    return None if _SENTENCE.fullmatch(text) else _REQUIRED.fullmatch(text)


def false(bent: Bent, error: errors.OpError, answer: Answer) -> str | None:
    """Why what `error` says of a call is false; None if it is true."""
    text = str(error).removeprefix(f"{bent.op}: ")
    if isinstance(error, errors.OpExecutionError):
        return None
    if error.argument is not None and place(bent.op, error.argument) is None:
        return f"there is no argument {error.argument!r}"
    if isinstance(error, errors.OpInputError):
        required = _requirement(bent, error)
        if required is not None:
            return _false_requirement(bent, required, answer)
        if re.match(rf"{_LABEL} has ", text):
            return _false_shape(bent, text, answer)
        return _false_dtype(bent, error)
    return None


def _false_requirement(bent: Bent, said: re.Match[str], answer: Answer) -> str | None:
    """Why a refusal before TensorFlow ran is false. TensorFlow refuses, or ends."""
    found = place(bent.op, said["label"])
    if found is None:
        return f"there is no argument {said['label']!r}"
    is_attr = found.name in {attr.name for attr in info_of(bent.op).attrs}
    if not is_attr and (said["has"] or said["shape"] is not None):
        try:
            shape = np.shape(tensor_at(bent.arguments, found.name, found.at))
        except (IndexError, KeyError, TypeError):
            return f"{said['label']} is no tensor of the call"
        number = int((re.findall(r"\d+", said["has"] or "") or ["0"])[0])
        if said["shape"] is not None:
            true = [*map(str, shape)] == re.findall(r"\d+", said["shape"])
        elif "dimension" in said["has"]:
            true = len(shape) == number
        else:
            true = int(np.prod(shape)) == number
        if not true:
            return f"{said['label']} has the shape {shape}"
    if bent.op not in REFUSED_BEFORE and answer(bent.arguments) is None:
        return "TensorFlow takes the call"
    return None


def _false_dtype(bent: Bent, error: errors.OpError) -> str | None:
    found = place(bent.op, error.argument or "")
    if found is None or not isinstance(error.allowed, tuple):
        return None
    try:
        tensor = tensor_at(bent.arguments, found.name, found.at)
    except (IndexError, KeyError, TypeError):
        return f"{error.argument} is no tensor of the call"
    has = tf.as_dtype(tensor.dtype)
    if isinstance(error.given, tf.DType) and error.given != has:
        return f"{error.argument} is {has.name}, not {error.given.name}"
    if has in error.allowed:
        return f"{error.argument} is {has.name}, which is allowed"
    return None


def _false_shape(bent: Bent, text: str, answer: Answer) -> str | None:
    said = _SENTENCE.fullmatch(text)
    if said is None:
        return "a sentence of no known form"
    facts = [(said["label"], said["has"])]
    if said["like"]:
        facts.append((said["like"], f"{said['rank']} dimensions"))
    for other in ("other", "same"):
        if said[other]:
            facts.append((said[other], said[f"{other}_has"]))
    for label, has in facts:
        if not _is_true(bent, label, has):
            return f"{label} does not have {has}"
    sources = re.findall(_LABEL, (said["sources"] or "").replace(" and ", ", "))
    blamed = [label for label, _ in facts] + sources
    for label in blamed:
        if place(bent.op, label) is None:
            return f"there is no argument {label!r}"
    before = answer(bent.arguments)
    if before is None:
        return "TensorFlow takes the call"
    if any(answer(one) is None for one in revalued(bent, blamed[0])):
        return "TensorFlow takes the shape with other values"
    wanted = said["rank"] or said["wanted"] or said["allowed"] or "0"
    if said["other_has"] or said["same_has"]:
        wanted = (re.findall(r"\d+", said["other_has"] or said["same_has"]) or ["0"])[0]
    for changed in repaired(bent, blamed, said["has"], wanted):
        after = answer(changed)
        if after is None or _rule(after) != _rule(before):
            return None
    # Of several faults, TensorFlow may see another one first.
    if answer(alone(bent, blamed)) is not None:
        return None
    return "TensorFlow's answer does not depend on it"


def _rule(text: str) -> str:
    """TensorFlow's words without the sizes in them."""
    return re.sub(r"\[[^\]]*\]|-?\d+", "#", text)


def _is_true(bent: Bent, label: str, has: str) -> bool:
    found = place(bent.op, label)
    if found is None:
        return False
    try:
        shape = np.shape(tensor_at(bent.arguments, found.name, found.at))
    except (IndexError, KeyError, TypeError):
        return False
    numbers = [int(one) for one in re.findall(r"\d+", has)]
    if "dimension" in has:
        return len(shape) == (numbers or [0])[0]
    if "element" in has:
        return shape == (numbers[0],)
    if "row" in has or "column" in has:
        return len(shape) == 2 and shape["column" in has] == numbers[0]
    count, axis = numbers
    return axis < len(shape) and shape[axis] == count


def repaired(
    bent: Bent, blamed: list[str], has: str, wanted: str
) -> Iterator[Arguments]:
    """The call with what is blamed as it is said to have to be, or as it once was."""
    first = place(bent.op, blamed[0])
    assert first is not None
    array = tensor_at(bent.arguments, first.name, first.at)
    numbers = map(int, re.findall(r"\d+", wanted))
    for number in numbers if isinstance(array, np.ndarray) else ():
        for changed in _changed(array, has, number):
            yield with_tensor(bent.arguments, first.name, first.at, changed)
    for label in blamed:
        found = place(bent.op, label)
        assert found is not None
        if found.name in bent.fitting:
            yield {**bent.arguments, found.name: bent.fitting[found.name]}
            yield from _other_shapes(bent, found)
    names = {found.name for label in blamed if (found := place(bent.op, label))}
    yield {**bent.arguments, **{n: bent.fitting[n] for n in names if n in bent.fitting}}


def revalued(bent: Bent, label: str) -> Iterator[Arguments]:
    """The call with other integers in a tensor, of the same shape."""
    found = place(bent.op, label)
    array = found and tensor_at(bent.arguments, found.name, found.at)
    if found is None or not has_integers(array):
        return
    every = np.arange(array.size).reshape(array.shape).astype(array.dtype)
    for changed in (every, np.zeros_like(array), np.ones_like(array)):
        yield with_tensor(bent.arguments, found.name, found.at, changed)


def alone(bent: Bent, blamed: list[str]) -> Arguments:
    """The call that TensorFlow takes, but for the shapes of what is blamed."""
    changed = dict(bent.fitting)
    for label in blamed:
        found = place(bent.op, label)
        if found is not None and found.name in changed:
            changed[found.name] = _as_typed(bent, found.name)
    return changed


def _as_typed(bent: Bent, name: str) -> Any:
    given, fitting = bent.arguments[name], bent.fitting[name]
    sample = fitting[0] if isinstance(fitting, list) and fitting else fitting
    if not isinstance(sample, np.ndarray):
        return given
    return each(given, lambda one: cast(one, sample.dtype.name))


def _changed(array: Any, has: str, number: int) -> Iterator[Any]:
    if "dimension" in has:
        yield of_rank(array, number)
        yield np.reshape(array, (*np.shape(array), *(1,) * (number - np.ndim(array))))
        return
    axis = int(has.rpartition(" ")[2]) if "axis" in has else int("column" in has)
    if number <= 10_000:
        yield resized(array, axis, number)
    yield resized(array, axis, number + 1)


def _other_shapes(bent: Bent, found: Place) -> Iterator[Arguments]:
    """The call with other sizes and ranks of one argument."""
    for at in (
        range(len(bent.arguments[found.name])) if found.at is not None else [None]
    ):
        array = tensor_at(bent.arguments, found.name, at)
        if not isinstance(array, np.ndarray):
            continue
        for axis in range(array.ndim):
            for number in (0, 1, array.shape[axis] + 1):
                changed = resized(array, axis, number)
                yield with_tensor(bent.arguments, found.name, at, changed)
        for number in (array.ndim - 1, array.ndim + 1):
            if number >= 0:
                changed = of_rank(array, number)
                yield with_tensor(bent.arguments, found.name, at, changed)


def of_rank(array: np.ndarray, rank: int) -> np.ndarray:
    while array.ndim > rank:
        array = array[0, ...] if len(array) else np.zeros(array.shape[1:], array.dtype)
    return array.reshape((1,) * (rank - array.ndim) + array.shape)
