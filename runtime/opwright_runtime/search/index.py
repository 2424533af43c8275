"""The index: Tantivy's full-text search, in memory, over the words of every op.

A query's words, and the field's other words for the same (`synonyms`), are looked for
in names, public names, summaries and descriptions; BM25 weighs how rare they are, the
fields by how much a word there says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import tantivy

from opwright_runtime.search import tf_names
from opwright_runtime.search.documents import Document, split
from opwright_runtime.search.synonyms import others, stem

#: What is indexed, and how much a word counts there.
_FIELDS: Final = {"name": 8.0, "tf_names": 4.0, "summary": 6.0, "description": 0.5}
#: Words that say nothing of an op.
_COMMON: Final = """
a an and are as at be by do each every for from get give given how i in into is it its
make of on one op ops or out over per tensor tensors tensorflow tf that the them then
this to two up use using value values want what which with
"""
_COMMON_WORDS: Final = frozenset(_COMMON.split())
#: How much less an op counts that is gone, or of which there is a newer one.
_REMOVED: Final = 0.3
_OLDER: Final = 0.9
#: What is left of an op's score where the query has no word of its name, against one.
_UNNAMED: Final = 0.5
#: The longest query that is read, in words.
_LONGEST: Final = 32
#: How many ops a way to say it is looked up for.
_CONSIDERED: Final = 100


class Index:
    """Ops by their words."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self._documents = documents
        self._newest: dict[str, int] = {}
        for document in documents.values():
            if not document.is_removed:
                known = self._newest.get(document.family, 0)
                self._newest[document.family] = max(known, document.version)
        self._named: dict[str, list[Document]] = {}
        for document in documents.values():
            for name in {document.name.lower(), document.family.lower()}:
                self._named.setdefault(name, []).append(document)
        schema = tantivy.SchemaBuilder().add_text_field("op", stored=True)
        for name in _FIELDS:
            schema.add_text_field(name, tokenizer_name="en_stem")
        self._index = tantivy.Index(schema.build())
        writer = self._index.writer(num_threads=1)
        for document in documents.values():
            writer.add_document(tantivy.Document(op=document.name, **_fields(document)))
        writer.commit()
        self._index.reload()

    def best(self, query: str, limit: int) -> list[str]:
        """The names of the ops that answer a query best."""
        named, called = self._by_name(query), tf_names.ops_of(query) or ()
        exact = [*called, *named] if query.startswith("tf.") else [*named, *called]
        ranked = sorted(self._scores(query).items(), key=lambda found: -found[1])
        names = dict.fromkeys([*exact, *(name for name, _ in ranked)])
        return list(names)[:limit]

    def _by_name(self, query: str) -> list[str]:
        """Ops of just that name, in any spelling; the newest first."""
        plain = re.sub(r"[\s_]", "", query.rpartition(".")[2]).lower()
        found = sorted(
            self._named.get(plain, ()),
            key=lambda one: (one.name.lower() != plain, -self._weight(one)),
        )
        return [document.name for document in found]

    def _scores(self, query: str) -> dict[str, float]:
        scores: dict[str, float] = {}
        said = _words(query)
        telling = [word for word in said if word not in _COMMON_WORDS]
        ways: list[tuple[Sequence[str], Sequence[str], float]]
        ways = [((), telling or said, 1.0)]
        for expression, left, weight in others(said):
            kept = [word for word in left if word in telling]
            ways.append((expression, kept, weight))
        for expression, rest, weight in ways:
            asked = {stem(word) for word in (*expression, *rest)}
            for name, score in self._matches(expression, rest):
                document = self._documents[name]
                # MaxPool is said whole by "max pool", FractionalMaxPool is not.
                own = document.stems
                named = _UNNAMED + len(own & asked) / max(len(own), 1)
                found = score * weight * named * self._weight(document)
                scores[name] = max(scores.get(name, 0.0), found)
        return scores

    def _matches(
        self, expression: Sequence[str], rest: Sequence[str]
    ) -> Iterator[tuple[str, float]]:
        """Ops that have all words of an expression, or one, if there is none."""
        every = [f"+({word})" for word in expression]
        query = self._index.parse_query(" ".join([*every, *rest]), [*_FIELDS], _FIELDS)
        searcher = self._index.searcher()
        for score, address in searcher.search(query, limit=_CONSIDERED).hits:
            yield searcher.doc(address)["op"][0], score

    def _weight(self, document: Document) -> float:
        if document.is_removed:
            return _REMOVED
        newest = self._newest.get(document.family, document.version)
        return 1.0 if document.version >= newest else _OLDER


def _fields(document: Document) -> dict[str, str]:
    names = (re.sub(r"[._]", " ", name) for name in document.tf_names)
    return {
        "name": document.words,
        "tf_names": " ".join(names),
        "summary": document.summary,
        "description": document.description,
    }


def _words(query: str) -> list[str]:
    words = re.findall(r"[A-Za-z0-9]+", query)[:_LONGEST]
    parts = [part for word in words for part in (word.lower(), *split(word))]
    return list(dict.fromkeys(parts))
