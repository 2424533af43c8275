"""The index: BM25, in memory, over the words of every op.

It finds the ops that have words of the query in their names, in other expressions for
them, or in their summaries. If there are none, it searches in descriptions. An op ranks
higher if one of its expressions contains more words of the query and fewer others.

SQLite's full-text search is no alternative: see docs/adr/0026-search-in-python.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nsmallest
from math import log
from typing import Final

from opwright_runtime.search import tf_names
from opwright_runtime.search.documents import Document
from opwright_runtime.search.expressions import Expressions
from opwright_runtime.search.words import joined, stems, telling

#: The weight of a word in a name or another expression for an op, and in its summary.
_CALLED: Final = 8.0
_SUMMARY: Final = 6.0
#: BM25's parameters k1 and b. k1 limits how much repetitions of a word add to the
#: score. b decides how much the length of a document lowers it.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.4
#: The score of a removed op is multiplied by this.
_REMOVED: Final = 0.3
#: The score of an op is multiplied by this for each newer version of it.
_OLDER: Final = 0.9
#: The score of an op is multiplied by this if none of its expressions (its name,
#: synonyms, functions that run it) has a word of the query.
_UNNAMED: Final = 0.3
#: The rest of a longer query is ignored, in characters.
_LONGEST: Final = 500


class Index:
    """Finds ops by their words."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self._documents = documents
        #: For each name without version, its ops: newer versions first, removed last.
        self._families: dict[str, list[str]] = {}
        for name in sorted(documents, key=self._age):
            self._families.setdefault(documents[name].family, []).append(name)
        self._named: dict[str, list[str]] = {}
        for name in sorted(documents, key=self._age):
            for written in {name.lower(), documents[name].family.lower()}:
                self._named.setdefault(written, []).append(name)
        self._expressions = Expressions(documents)
        self._postings = self._weighed()

    def best(self, query: str, limit: int) -> list[str]:
        """The names of the ops that match a query best."""
        query = query[:_LONGEST]
        named, called = self._by_name(query), tf_names.ops_of(query)
        if query.startswith("tf."):
            exact = [*called, *named]
        else:
            # A query such as "repeat" has better answers than the ops of which
            # tf.repeat is composed. The op of a function ranks first only if the
            # function is a single op.
            exact = [*named, *called] if len(called) == 1 else named
        scores: dict[str, float] = {}
        for asked in self._expressions.readings(query):
            for name, score in self._scores(asked).items():
                scores[name] = max(score, scores.get(name, 0.0))
        scores = scores or self._described(telling(query))
        ranked = nsmallest(limit, scores, key=lambda name: (-scores[name], name))
        return list(dict.fromkeys([*exact, *ranked]))[:limit]

    def _by_name(self, query: str) -> list[str]:
        """Ops of exactly that name, in any spelling. Newer versions come first.

        The op that the query names as it is spelled comes before newer versions.
        """
        last = query.rpartition(".")[2]
        versions = self._named.get(joined(last), [])
        spelled = [
            name
            for name in versions
            if name == last or self._documents[name].function == query
        ]
        return list(dict.fromkeys([*spelled, *versions]))

    def _scores(self, asked: frozenset[str]) -> dict[str, float]:
        found: dict[str, float] = {}
        for word in sorted(asked):
            for name, score in self._postings.get(word, {}).items():
                found[name] = found.get(name, 0.0) + score
        says = self._expressions.says(asked)
        for name in found:
            found[name] *= _UNNAMED + says.get(name, 0.0)
        return self._by_age(found)

    def _described(self, asked: frozenset[str]) -> dict[str, float]:
        """For each op, how many of the words its description contains."""
        counts = {
            name: float(sum(word in document.description.lower() for word in asked))
            for name, document in self._documents.items()
        }
        return self._by_age({name: count for name, count in counts.items() if count})

    def _by_age(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Gives the best score of a family to its newest op, and less to older ones."""
        aged: dict[str, float] = {}
        for family in {self._documents[name].family for name in scores}:
            members = self._families[family]
            score = max(scores.get(name, 0.0) for name in members)
            for name in members:
                if self._documents[name].is_removed:
                    score *= _REMOVED
                aged[name] = score
                score *= _OLDER
        return aged

    def _age(self, name: str) -> tuple[bool, int]:
        document = self._documents[name]
        return document.is_removed, -document.version

    def _weighed(self) -> dict[str, dict[str, float]]:
        """For each word and op, the word's BM25 score."""
        counts = self._counted()
        lengths = {name: sum(count.values()) for name, count in counts.items()}
        average = sum(lengths.values()) / len(lengths)
        postings: dict[str, dict[str, float]] = {}
        for name, count in counts.items():
            length = 1 - _LENGTH + _LENGTH * lengths[name] / average
            for word, times in count.items():
                weight = times * (_SATURATION + 1) / (times + _SATURATION * length)
                postings.setdefault(word, {})[name] = weight
        for found in postings.values():
            rarity = log(1 + (len(counts) - len(found) + 0.5) / (len(found) + 0.5))
            for name in found:
                found[name] *= rarity
        return postings

    def _counted(self) -> dict[str, dict[str, float]]:
        """For each op, the weight of each of its words. BM25 uses it as the count."""
        counts: dict[str, dict[str, float]] = {name: {} for name in self._documents}
        for said, name, surely in self._expressions:
            count = counts[name]
            for word in said:
                count[word] = max(count.get(word, 0.0), _CALLED * surely)
        for name, document in self._documents.items():
            for word in stems(document.summary):
                counts[name][word] = counts[name].get(word, 0.0) + _SUMMARY
        return counts
