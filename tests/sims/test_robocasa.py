"""RoboCasa, which cannot be installed here: what a user is told, and how actions and conditions reach its API.

The stand-in has the API of a robosuite 1.5 environment with an arm on wheels, whose parts are in another order.
"""

import importlib.machinery
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oat.data.episodes import STATE
from oat.errors import MissingExtra, SimulatorError, UnknownName
from oat.interfaces import Environment, ExpertConfig, Simulator
from oat.sims import load_simulator
from oat.sims.robocasa import STATE_KEYS, RoboCasa

SIZES = (3, 4, 3, 4, 2)
ORDER = {"right": slice(0, 6), "torso": slice(6, 7), "base": slice(7, 10), "right_gripper": slice(10, 11)}


class Kitchen:
    """The base drives in a direction that the seed draws; the drawer is closed when it has driven a metre."""

    action_dim = 12

    def __init__(self, name: str, **options: Any) -> None:
        import mujoco  # not before the graphics library is chosen, which other tests render with

        model = mujoco.MjModel.from_xml_string("<mujoco><worldbody/></mujoco>")
        data = mujoco.MjData(model)
        self.sim = SimpleNamespace(
            model=SimpleNamespace(_model=model), data=SimpleNamespace(_data=data, qacc_warmstart=data.qacc_warmstart)
        )
        self.name, self.options, self.rng = name, options, np.random.default_rng(options["seed"])
        controller = SimpleNamespace(create_action_vector=self._join)
        self.robots = [SimpleNamespace(gripper={}, composite_controller=controller)]

    def reset(self) -> None:
        self.base = self.rng.normal(size=3)
        self.commands: list[np.ndarray] = []

    def step(self, command: np.ndarray) -> None:
        self.commands.append(command)
        self.base = self.base + command[ORDER["base"]]

    def _check_success(self) -> bool:
        return len(self.commands) >= 2

    def _get_observations(self, force_update: bool) -> dict[str, np.ndarray]:
        return {key: np.resize(self.base, size) for key, size in zip(STATE_KEYS, SIZES)}

    @staticmethod
    def _join(parts: dict[str, Any]) -> np.ndarray:
        command = np.zeros(12)
        for part, places in ORDER.items():
            command[places] = parts[part]
        command[-1] = parts["base_mode"]
        return command


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    robosuite, robocasa = ModuleType("robosuite"), ModuleType("robocasa")
    vars(robosuite).update(__version__="1.5.1", make=Kitchen, load_composite_controller_config=lambda robot: robot)
    vars(robocasa).update(__version__="0.2.0", __spec__=importlib.machinery.ModuleSpec("robocasa", None))
    monkeypatch.setitem(sys.modules, "robosuite", robosuite)
    monkeypatch.setitem(sys.modules, "robocasa", robocasa)


def test_without_it_a_user_is_told_how_to_install_it() -> None:
    with pytest.raises(MissingExtra, match=r"environment of its own: git clone .* pip install -e .*download_kitchen"):
        load_simulator("robocasa")


def test_beside_an_older_robosuite_it_is_refused(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    vars(sys.modules["robosuite"])["__version__"] = "1.4.0"
    with pytest.raises(SimulatorError, match=r"written for robosuite 1\.5, and 1\.4\.0 is installed"):
        load_simulator("robocasa")


def test_is_a_simulator_with_twelve_numbers_per_action(installed: None) -> None:
    simulator = load_simulator("robocasa")
    assert isinstance(simulator, Simulator)
    assert simulator.tasks == ("CloseDrawer", "CoffeePressButton", "TurnOffMicrowave", "TurnOffSinkFaucet")
    assert len(simulator.action_names) == 12
    assert simulator.version == "robocasa 0.2.0, robosuite 1.5.1"
    assert not set(simulator.conditions("CloseDrawer", "selection")) & set(
        simulator.conditions("CloseDrawer", "reporting")[:100]
    )
    with pytest.raises(UnknownName, match="Did you mean 'CloseDrawer'"):
        simulator.make("close-drawer")
    with pytest.raises(SimulatorError, match="download_datasets"):
        simulator.expert("CloseDrawer", ExpertConfig())


def test_conditions_actions_and_states_reach_the_kitchen(installed: None) -> None:
    env = RoboCasa().make("CloseDrawer")
    assert isinstance(env, Environment)
    kitchen = env.env
    assert kitchen.name == "CloseDrawer"
    assert kitchen.options["robots"] == "PandaOmron"
    assert kitchen.options["hard_reset"]
    first = env.reset(3)
    assert first[STATE].shape == (16,)
    np.testing.assert_array_equal(first["observation.robot0_base_pos"], first[STATE][:3])
    assert not np.array_equal(env.reset(4)[STATE], first[STATE])
    np.testing.assert_array_equal(env.reset(3)[STATE], first[STATE])
    action = np.linspace(-1, 1, 12, dtype=np.float32)
    assert not env.step(action).success
    (command,) = kitchen.commands
    np.testing.assert_allclose(command, action[[0, 1, 2, 3, 4, 5, 10, 7, 8, 9, 6, 11]])
    held = np.zeros(12, np.float32)
    held[[6, 11]] = action[[6, 11]]
    np.testing.assert_array_equal(env.hold(), held)
    assert env.step(env.hold()).success


def test_missing_kitchens_are_told(installed: None) -> None:
    def make(name: str, **options: Any) -> None:
        raise FileNotFoundError("fixtures/drawer.xml")

    vars(sys.modules["robosuite"])["make"] = make
    with pytest.raises(SimulatorError, match=r"fixtures/drawer\.xml.*download_kitchen_assets"):
        RoboCasa().make("CloseDrawer")
