"""Step robosuite environments faster than they step themselves, to the same states bit for bit.

robosuite spends most of a step on what nobody looks at: it updates all observables at each of the 25 substeps, computes
the same positions three times, the same Jacobians four times, and looks up names and limits all over again. What is
left here is its controllers' own arithmetic, on values that are computed once per substep.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from jaxtyping import Float64

from oat.io.extras import import_extra
from oat.sims.contacts import Contacts


class PlainStepper:
    """Step an environment as robosuite does itself, for comparisons."""

    def __init__(self, env: Any) -> None:
        import mujoco

        self._env = env
        vars(env).pop("check_contact", None)
        env.sim.model._model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_SENSOR)

    def step(self, action: Float64[np.ndarray, " action_dim"]) -> None:
        """Take an action."""
        self._env.step(action)


class Stepper:
    """Take the steps of a robosuite environment between two resets, after which it has other controllers."""

    def __init__(self, env: Any) -> None:
        import mujoco

        self._env = env
        self._physics = (env.sim.model._model, env.sim.data._data)
        self._values = _SharedValues(env.sim)
        self._substeps = int(env.control_timestep / env.model_timestep)
        # Since robosuite 1.5 there are light physics; otherwise it simulates as older versions did, which compute
        # accelerations once more wherever they might be asked for. The solver begins at the last ones, so they matter.
        self._prepare = mujoco.mj_step1 if env.lite_physics else mujoco.mj_forward
        self._finish = mujoco.mj_step2
        self._parts = [part for robot in env.robots for part in self._list_parts(robot)]
        fixed = import_extra("robosuite.robots", "robosuite").FixedBaseRobot
        # These look where they are before they take a goal, others only afterwards.
        self._standing = [robot for robot in env.robots if isinstance(robot, fixed)]
        self._origins = [
            (controller, env.sim.model.site_name2id(f"{controller.naming_prefix}{controller.part_name}_center"))
            for robot in env.robots
            for controller in (robot.part_controllers[arm] for arm in robot.arms)
        ]
        env.check_contact = Contacts(env).check
        # Forces at the wrist take a pass over all bodies, and move nothing.
        self._physics[0].opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_SENSOR

    def _list_parts(self, robot: Any) -> list["_Part"]:
        """Return the parts of a robot that are commanded at every substep, and let their controllers share values."""
        parts = []
        for name, controller in robot.composite_controller.part_controllers.items():
            if robot._enabled_parts.get(name, False) and not _commands_once(controller):
                self._values.serve(controller)
                parts.append(_Part(robot, name, controller))
        return parts

    def step(self, action: Float64[np.ndarray, " action_dim"]) -> None:
        """Take an action: its goal is set at the first substep and pursued at all of them."""
        env = self._env
        model, data = self._physics
        for substep in range(self._substeps):
            self._prepare(model, data)
            self._values.forget()
            if substep == 0:
                self._set_goals(action)
            else:
                for controller, site in self._origins:
                    controller.update_origin(data.site_xpos[site].copy(), data.site_xmat[site].reshape(3, 3).copy())
                for part in self._parts:
                    part.command(data.ctrl)
            self._finish(model, data)
        env.timestep += 1
        env.cur_time += env.control_timestep

    def _set_goals(self, action: Float64[np.ndarray, " action_dim"]) -> None:
        """Give each robot its part of an action, and let it begin, without the averages that robosuite keeps of it."""
        done = 0
        for robot in self._env.robots:
            part = action[done : done + robot.action_dim]
            done += robot.action_dim
            if robot in self._standing:
                robot.composite_controller.update_state()
            robot.composite_controller.set_goal(part)
            robot.control(part)


def _commands_once(controller: Any) -> bool:
    """Return whether a controller's command follows from its goal alone, so that the first substep gives it for all."""
    grippers = import_extra("robosuite.controllers.parts.gripper", "robosuite")
    wheels = import_extra("robosuite.controllers.parts.mobile_base", "robosuite")
    kinds = (grippers.SimpleGripController, wheels.MobileBaseJointVelocityController)
    return isinstance(controller, kinds) and controller.interpolator is None


class _Part:
    """Command one part of a robot, such as its arm."""

    def __init__(self, robot: Any, name: str, controller: Any) -> None:
        self._controller = controller
        self._actuators = np.array(robot._ref_actuators_indexes_dict[name])
        limits = robot.sim.model.actuator_ctrlrange[self._actuators]
        self._low = limits[:, 0].copy()
        self._high = limits[:, 1].copy()

    def command(self, ctrl: Float64[np.ndarray, " actuators"]) -> None:
        """Write what the controller wants of the actuators, within their limits."""
        wanted = self._controller.run_controller()
        ctrl[self._actuators] = np.minimum(np.maximum(wanted, self._low), self._high)


class _SharedValues:
    """Compute what several controllers look at once for all of them: the mass matrix, and Jacobians of sites."""

    def __init__(self, sim: Any) -> None:
        import mujoco

        self._mujoco = mujoco
        self._sim = sim
        self._model = sim.model._model
        self._data = sim.data._data
        self._sites: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = {}
        self._mass = np.zeros((self._model.nv, self._model.nv))
        self._mass_is_new = False
        self.view = SimpleNamespace(model=sim.model, data=_View(sim.data, self), forward=sim.forward)

    def serve(self, controller: Any) -> None:
        """Make a controller look here, if it looks at anything that takes time."""
        controllers = import_extra("robosuite.controllers.parts.controller", "robosuite")
        if isinstance(controller, controllers.Controller):
            controller.sim = self.view
            controller.qpos_index = np.array(controller.qpos_index)
            controller.qvel_index = np.array(controller.qvel_index)
            controller.update = partial(self._update, controller, controller.update)

    def forget(self) -> None:
        """Drop what was computed, because the simulation went on."""
        self._sites.clear()
        self._mass_is_new = False

    def _update(self, controller: Any, original: Callable[[bool], None], force: bool = False) -> None:
        """Do what `Controller.update` does."""
        if force:
            self.forget()
            original(True)
        elif controller.new_update:
            if not controller.lite_physics:  # the same state again: only accelerations can differ
                self._mujoco.mj_forwardSkip(self._model, self._data, self._mujoco.mjtStage.mjSTAGE_VEL, 1)
            if controller.ref_name is not None:
                self._update_reference(controller)
            controller.joint_pos = self._data.qpos[controller.qpos_index]
            controller.joint_vel = self._data.qvel[controller.qvel_index]
            controller.mass_matrix = self._mass_matrix()[controller.qvel_index, :][:, controller.qvel_index]
            controller.new_update = False

    def _update_reference(self, controller: Any) -> None:
        """Tell a controller where its hand is, how fast, and how that depends on its joints."""
        number = self._sim.model.site_name2id(controller.ref_name)
        position_jacobian, rotation_jacobian, velocity, turning = self.site(controller.ref_name)
        controller.ref_pos[:] = self._data.site_xpos[number]
        controller.ref_ori_mat[:, :] = self._data.site_xmat[number].reshape(3, 3)
        controller.ref_pos_vel[:] = velocity
        controller.ref_ori_vel[:] = turning
        controller.J_pos[:, :] = position_jacobian[:, controller.qvel_index]
        controller.J_ori[:, :] = rotation_jacobian[:, controller.qvel_index]
        controller.J_full[:3] = controller.J_pos
        controller.J_full[3:] = controller.J_ori

    def site(self, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the Jacobians of a site's position and rotation, and its two velocities."""
        if name not in self._sites:
            jacobians = np.zeros((2, 3, self._model.nv))
            number = self._sim.model.site_name2id(name)
            self._mujoco.mj_jacSite(self._model, self._data, jacobians[0], jacobians[1], number)
            position, rotation = jacobians
            speed = self._data.qvel
            self._sites[name] = (position, rotation, np.dot(position, speed), np.dot(rotation, speed))
        return self._sites[name]

    def _mass_matrix(self) -> Float64[np.ndarray, "velocities velocities"]:
        """Return the mass matrix of everything that moves."""
        if not self._mass_is_new:
            self._mujoco.mj_fullM(self._model, self._mass, self._data.qM)
            self._mass_is_new = True
        return self._mass


class _View:
    """Show robosuite's data to a controller, with the velocities of sites from the shared values."""

    def __init__(self, data: Any, values: _SharedValues) -> None:
        self._shown = data
        self._values = values
        self.qfrc_bias = data._data.qfrc_bias  # asked for most often

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)

    def get_site_xvelp(self, name: str) -> np.ndarray:
        """Return the velocity of a site's position."""
        return self._values.site(name)[2]

    def get_site_xvelr(self, name: str) -> np.ndarray:
        """Return the velocity of a site's rotation."""
        return self._values.site(name)[3]
