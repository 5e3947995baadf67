"""Adapt LIBERO's three suites that vary one thing: where objects are, which they are, or what is to be done with them.

Their limits of steps are those that published evaluations have, a little more than the longest of people's published
demonstrations take (193, 254 and 270).
"""

from typing import ClassVar

from oat.protocol import Protocol
from oat.sims.libero import Libero


class LiberoSpatial(Libero):
    """Describe LIBERO's suite libero_spatial: a bowl among others, which its place tells apart, is put on a plate."""

    name = "libero_spatial"
    suite: ClassVar[str] = "libero_spatial"
    protocol = Protocol("libero_spatial", max_steps=220, success=Libero.protocol.success)


class LiberoObject(Libero):
    """Describe LIBERO's suite libero_object: one of ten things is put into a basket."""

    name = "libero_object"
    suite: ClassVar[str] = "libero_object"
    protocol = Protocol("libero_object", max_steps=280, success=Libero.protocol.success)


class LiberoGoal(Libero):
    """Describe LIBERO's suite libero_goal: ten things to do in one scene."""

    name = "libero_goal"
    suite: ClassVar[str] = "libero_goal"
    protocol = Protocol("libero_goal", max_steps=300, success=Libero.protocol.success)
