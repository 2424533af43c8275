"""A data set that the example makes itself: users, films, and who watched what.

Films are of a genre, and some are watched far more than others. Users like few genres.
So who is told only what everybody watches is told little; but a user's taste shows in
what the user watched before, and a film's genre in its tags, if not in every one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GENRES = 20
TAGS_A_GENRE = 8
TAGS_A_FILM = 4
WATCHED = 20
"""Films that a user watched; the last one is held out."""


@dataclass(frozen=True)
class Data:
    """What was drawn. Users and films are numbers from 0 on.

    Attributes:
        genre: [films], of each film.
        tags: [films, TAGS_A_FILM], of each film: one in four says nothing of its genre.
        popularity: [films], how often a film is watched by those who like its genre.
        taste: [users, GENRES], how much a user likes each genre; the sum is 1.
        watched: [users, WATCHED], different films, in the order of watching.
    """

    genre: Ints
    tags: Ints
    popularity: Floats
    taste: Floats
    watched: Ints

    @property
    def users(self) -> int:
        return len(self.watched)

    @property
    def films(self) -> int:
        return len(self.genre)

    @property
    def history(self) -> Ints:
        """[users, WATCHED - 1]: what may be learned from."""
        return self.watched[:, :-1]

    @property
    def held_out(self) -> Ints:
        """[users]: what is to be foretold."""
        return self.watched[:, -1]

    @cached_property
    def frequency(self) -> Floats:
        """[films]: each film's part of all that is in the histories, never 0."""
        counts = np.bincount(self.history.ravel(), minlength=self.films) + 1.0
        frequency: Floats = counts / counts.sum()
        return frequency

    def recall(self, scores: Floats, best: int = 10) -> float:
        """How often the film held out is among the `best` by scores, [users, films].

        A user is not recommended what is in the history.
        """
        scores = np.array(scores)
        np.put_along_axis(scores, self.history, -np.inf, axis=1)
        held_out = np.take_along_axis(scores, self.held_out[:, None], axis=1)
        return float(((scores > held_out).sum(axis=1) < best).mean())

    def recall_of_popularity(self) -> float:
        """Of recommending everybody what is watched most."""
        return self.recall(np.tile(self.frequency, (self.users, 1)))

    def recall_of_the_truth(self) -> float:
        """Of knowing all that films were drawn by: no recommender does better."""
        return self.recall(_likings(self.taste, self.genre, self.popularity))


def make(users: int, films: int, seed: int) -> Data:
    """Draws a data set."""
    generator = np.random.default_rng(seed)
    genre = generator.integers(0, GENRES, films)
    tags = genre[:, None] * TAGS_A_GENRE + generator.integers(
        0, TAGS_A_GENRE, (films, TAGS_A_FILM)
    )
    anything = generator.integers(0, GENRES * TAGS_A_GENRE, tags.shape)
    tags = np.where(generator.random(tags.shape) < 0.25, anything, tags)
    rank = 1.0 + generator.permutation(films).astype(np.float64)
    popularity: Floats = rank**-0.7
    taste = generator.dirichlet(np.full(GENRES, 0.08), users)
    # The films with the largest of these are a draw without repetition, in its order.
    likings = np.log(_likings(taste, genre, popularity) + 1e-12)
    noisy = likings + generator.gumbel(size=likings.shape)
    watched = np.argsort(-noisy, axis=1)[:, :WATCHED]
    # The last one drawn would be the least liked: which one is held out is by chance.
    watched = generator.permuted(watched, axis=1)
    return Data(genre, tags, popularity, taste, watched)


def _likings(taste: Floats, genre: Ints, popularity: Floats) -> Floats:
    """[users, films]: how likely a user watches a film, but for a factor."""
    likings: Floats = taste[:, genre] * popularity
    return likings
