"""Tell what touches what in robosuite, without the names of all geometries that touch anything.

robosuite compares two names for each of the hundreds of contacts in a kitchen. Here the geometries of each side are
marked once in a table, in which the numbers of all contacts are looked up together.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool


class Contacts:
    """Answer as an environment's own `check_contact` does, also after its scene was built anew."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._model: Any = None
        self._tables: dict[tuple[str, ...], Bool[np.ndarray, " geometries"]] = {}

    def check(self, geoms_1: Any, geoms_2: Any = None) -> bool:
        """Return whether one of the first geometries touches one of the second, or anything if there are none.

        A side is a name, a list of names, or a model, which stands for all its geometries that can touch.
        """
        if self._model is not self._env.sim.model._model:
            self._model = self._env.sim.model._model
            self._tables.clear()
        pairs = self._env.sim.data._data.contact.geom  # (contacts, 2)
        first = self._table(geoms_1)[pairs]
        if geoms_2 is None:
            return bool(first.any())
        second = self._table(geoms_2)[pairs]
        return bool((first & second[:, ::-1]).any())

    def _table(self, geoms: Any) -> Bool[np.ndarray, " geometries"]:
        """Return for each number of a geometry whether it is one of these; a last entry stands for none, -1."""
        names = (geoms,) if isinstance(geoms, str) else tuple(getattr(geoms, "contact_geoms", geoms))
        if names not in self._tables:
            wanted = set(names)
            marks = [self._model.geom(number).name in wanted for number in range(self._model.ngeom)]
            self._tables[names] = np.array([*marks, False])
        return self._tables[names]
