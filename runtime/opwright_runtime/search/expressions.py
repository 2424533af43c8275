"""Expressions: names and phrases for ops, indexed by their words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

from opwright_runtime.search.documents import Document
from opwright_runtime.search.words import joined, stem, telling

_NONE: Final[frozenset[str]] = frozenset()


class Expressions:
    """Maps expressions, as sets of word stems, to the ops that they stand for.

    An expression is a name or a phrase for an op: its own name, a synonym, or the name
    of a function of TensorFlow that runs it.
    """

    def __init__(self, documents: Mapping[str, Document]) -> None:
        #: For each expression, the ops that it stands for, each with a score up to 1.
        self._called: dict[frozenset[str], dict[str, float]] = {}
        #: For each word, the expressions that contain it.
        self._having: dict[str, list[frozenset[str]]] = {}
        #: Expressions by their spelling as one word: `hashtable` for `hash table`.
        self._joined: dict[str, frozenset[str]] = {}
        for name, document in documents.items():
            for text, surely in document.expressions():
                said = telling(text)
                if said not in self._called:
                    for word in said:
                        self._having.setdefault(word, []).append(said)
                known = self._called.setdefault(said, {})
                known[name] = max(surely, known.get(name, 0.0))
                self._joined.setdefault(stem(joined(text)), said)

    def __iter__(self) -> Iterator[tuple[frozenset[str], str, float]]:
        """Each expression with an op that it stands for, and the score of that op."""
        for said, ops in self._called.items():
            for name, surely in ops.items():
                yield said, name, surely

    def says(self, asked: Set[str]) -> dict[str, float]:
        """For each op, how well its best expression matches the query, from 0 to 1.

        Words of the expression that are missing in the query lower the result, and so
        do words of the query that are missing in the expression.
        """
        best: dict[str, float] = {}
        for word in asked:
            for said in self._having.get(word, ()):
                says = len(asked & said) ** 2 / (len(asked) * len(said))
                for name, surely in self._called[said].items():
                    best[name] = max(says * surely, best.get(name, 0.0))
        return best

    def readings(self, query: str) -> set[frozenset[str]]:
        """Sets of words for which to search: those of the query, in several spellings.

        If the query is an expression written as one word, the words of the expression
        are also one of the sets.
        """
        texts = (query, query.rpartition(".")[2], query.replace("-", ""))
        whole = (self._joined.get(stem(joined(text)), _NONE) for text in texts)
        return {*map(self._words, texts), *whole}

    def _words(self, text: str) -> frozenset[str]:
        """The stems of a text. An expression in one word gives all its stems."""
        return _NONE.union(*map(self._apart, telling(text)))

    def _apart(self, word: str) -> frozenset[str]:
        single = frozenset((word,))
        return single if word in self._having else self._joined.get(word, single)
