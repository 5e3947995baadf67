"""What touches what is told as robosuite tells it."""

from itertools import combinations

import pytest

from oat.sims.contacts import Contacts
from oat.sims.robomimic import RoboMimic
from tests.sims.robomimic_files import random_actions


@pytest.mark.parametrize("task", ["lift", "square"])
def test_contacts_are_those_of_robosuite(task: str) -> None:
    """For every two geometries that touch, for every two of some others, and for models; also in a new scene."""
    wrapped = RoboMimic().make(task)  # not one that tests share: it is built anew
    env, own = wrapped.env, type(wrapped.env).check_contact
    contacts = Contacts(env)
    for condition in range(2):
        wrapped.reset(condition)
        for action in random_actions(5):
            wrapped.step(action, observe=False)
        names = [name for name in env.sim.model.geom_names if name][::7]
        touching = {env.sim.model.geom_id2name(number) for number in env.sim.data._data.contact.geom.ravel()}
        for first, second in combinations([*names, *sorted(filter(None, touching)), "nothing"], 2):
            assert contacts.check(first, [second]) == own(env, first, [second])
        gripper = env.robots[0].gripper["right"]
        assert contacts.check(gripper) == own(env, gripper)
        assert contacts.check(gripper, sorted(filter(None, touching))) == own(env, gripper, sorted(touching - {None}))
        assert any(contacts.check(name) for name in touching if name)
        env.hard_reset = condition == 0
