"""Python imports this when it starts, in every process of the tests.

TensorFlow imports jax, and Keras matplotlib, wherever they are installed, and takes
longer. Here they are not found while it is being imported, as where they are not
installed. A later import finds them.

Python's garbage collector makes the import slower, because it goes through the growing
number of objects again and again. Here it runs for every 100,000 new ones.
"""

import gc
import sys

UNWANTED = ("jax", "matplotlib")


class _NotNow:
    """A finder that comes first."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in UNWANTED:
            tensorflow = getattr(sys.modules.get("tensorflow"), "__spec__", None)
            if getattr(tensorflow, "_initializing", False):
                raise ModuleNotFoundError(f"{name} is not wanted here", name=name)


sys.meta_path.insert(0, _NotNow)
gc.set_threshold(100_000, 50, 50)
