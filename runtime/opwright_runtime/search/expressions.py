"""What ops are called: their names, and other expressions for them, by their words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Final

from opwright_runtime.search.documents import Document
from opwright_runtime.search.words import joined, stem, telling

_NONE: Final[frozenset[str]] = frozenset()


class Expressions:
    """The stems of each expression, and the ops that are called it."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        #: By expression and op, how surely the one means the other.
        self._called: dict[frozenset[str], dict[str, float]] = {}
        #: The expressions with a word.
        self._having: dict[str, list[frozenset[str]]] = {}
        #: The expressions that are written as one word: `hash table` as `hashtable`.
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
        """An expression, an op that is called it, and how surely."""
        for said, ops in self._called.items():
            for name, surely in ops.items():
                yield said, name, surely

    def says(self, asked: Set[str]) -> dict[str, float]:
        """By op how well an expression for it matches the query, and no more."""
        best: dict[str, float] = {}
        for word in asked:
            for said in self._having.get(word, ()):
                says = len(asked & said) ** 2 / (len(asked) * len(said))
                for name, surely in self._called[said].items():
                    best[name] = max(says * surely, best.get(name, 0.0))
        return best

    def readings(self, query: str) -> set[frozenset[str]]:
        """The words of a query, and of the expressions that it may stand for."""
        texts = (query, query.rpartition(".")[2], query.replace("-", ""))
        whole = (self._joined.get(stem(joined(text)), _NONE) for text in texts)
        return {*map(self._words, texts), *whole}

    def _words(self, text: str) -> frozenset[str]:
        """The stems of a text; for a word that joins an expression, those of this."""
        return _NONE.union(*map(self._apart, telling(text)))

    def _apart(self, word: str) -> frozenset[str]:
        single = frozenset((word,))
        return single if word in self._having else self._joined.get(word, single)
