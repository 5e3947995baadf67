"""Studies: the runs of one scale on one benchmark, where they are kept, and which of them a table needs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from oat.data.episodes import IMAGES
from oat.errors import InvalidOption
from oat.evaluation.config import DecodingName, EvalConfig
from oat.evaluation.records import EpisodeRecord, find_records, read_records
from oat.experiments.study.budget import StepBudget
from oat.experiments.study.decodings import DecodingRun
from oat.experiments.study.methods import Method
from oat.experiments.study.runs import DONE_FOLDER, Run, marker, read_result
from oat.experiments.study.scales import Scale
from oat.interfaces import ExpertConfig
from oat.policies import TokenDecoding
from oat.sims import find_simulator, load_simulator
from oat.sims.config import CollectConfig, SimulatorName
from oat.training.config import CalibrateConfig, FitConfig, TrainPolicyConfig

DEMONSTRATIONS = "demos"


@dataclass(frozen=True)
class EvaluationRun:
    """Describe a method that is trained with one seed and then acts in the benchmark."""

    method: Method
    seed: int = 0
    execute: int | None = None
    """Actions of each chunk that are executed, if not the protocol's."""
    until: Literal["tokenizer", "policy", "records"] = "records"
    """How far it must go: some figures look at no more than its tokenizer, or its policy."""
    decoding: DecodingRun | None = None
    """How it decodes, if not as it was trained for from every number of tokens."""

    @property
    def name(self) -> str:
        """Return the name of its run, which is the directory of its records."""
        name = self.method.run("records", self.seed)
        name = name if self.decoding is None else f"{name}-{self.decoding.slug}"
        return name if self.execute is None else f"{name}-execute{self.execute}"

    @property
    def filmed(self) -> bool:
        """Return whether its episodes may be filmed; of most ways to decode, the records are enough."""
        return self.decoding is None or self.decoding.film

    @property
    def head(self) -> str:
        """Return the name of the run that makes its stopping head."""
        name = f"heads/{self.method.slug}-seed{self.seed}"
        return name if self.execute is None else f"{name}-execute{self.execute}"

    @property
    def matched(self) -> "EvaluationRun | None":
        """Return the evaluation whose numbers of tokens it draws at random, if it does."""
        if self.decoding is None or self.decoding.matched_to is None:
            return None
        other = DecodingRun(self.decoding.label, self.decoding.matched_to)
        return replace(self, decoding=other)


@dataclass(frozen=True)
class Study:
    """Describe the runs of one scale on one benchmark, which live with their tables in one folder."""

    scale: Scale
    sim: SimulatorName
    folder: Path
    given_data: Path | None = None
    seeds: int | None = None
    """Training seeds, if not the scale's."""
    films: bool = True
    """Whether episodes are filmed."""
    budgets: tuple[float, ...] = ()
    """Minutes of training that experiments with several budgets run, if not all of theirs."""
    observe: tuple[str, ...] = ()
    """What policies see, if not the state."""
    decoding: DecodingName = "usual"
    """How policies over tokens decode, in evaluations that settle nothing else."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the benchmark's tasks for studies, or all of them, as many as the scale has."""
        tasks = find_simulator(self.sim).study_tasks or load_simulator(self.sim).tasks
        return tasks[: self.scale.tasks]

    @property
    def data(self) -> Path:
        """Return where the demonstrations are, or will be."""
        return self.given_data or self.folder / DEMONSTRATIONS

    @property
    def minutes(self) -> float | None:
        """Return the minutes of training on one thread that every method has here, if minutes limit it."""
        return self.scale.minutes_for(self.sim)

    @property
    def episodes(self) -> int:
        """Return the episodes of each task, for every training seed and number of tokens."""
        return self.scale.episodes_for(self.sim)

    def evaluations(self, methods: Iterable[Method]) -> list[EvaluationRun]:
        """Return every method with all its training seeds: of each method the first, then of each the second.

        A study that is cut short then has fewer seeds, and not fewer methods.
        """
        seeds = {method: self.seeds or self.scale.seeds_for(method) for method in methods}
        return [
            EvaluationRun(method, seed, decoding=self._decoding(method))
            for seed in range(max(seeds.values(), default=0))
            for method in seeds
            if seed < seeds[method]
        ]

    def ablations(self, methods: Iterable[Method], execute: int | None = None) -> list[EvaluationRun]:
        """Return every variant with as many training seeds as ablations are given."""
        seeds = range(self.seeds or self.scale.seeds_of_ablations)
        return [
            EvaluationRun(method, seed, execute, decoding=self._decoding(method))
            for method in methods
            for seed in seeds
        ]

    def _decoding(self, method: Method) -> DecodingRun | None:
        """Return how a method decodes that is asked for another way than its own; None for its own."""
        if self.decoding == "usual" or method.tokenizer is None:
            return None
        options = {"decoding": self.decoding, "num_tokens": method.prefixes}
        return DecodingRun(f"--decoding {self.decoding}", f"decoding-{self.decoding}", options)

    def runs(self, evaluations: Sequence[EvaluationRun], budget: StepBudget) -> list[Run]:
        """Return the runs that these evaluations need, each once, and after those that it needs itself."""
        runs: dict[str, Run] = {}
        for evaluation in evaluations:
            for run in self._runs(evaluation, budget):
                runs.setdefault(run.name, run)
        return list(runs.values())

    def demonstrations(self) -> Run:
        """Return the run in which a scripted expert demonstrates the tasks before the cameras that policies see."""
        if find_simulator(self.sim).demonstrator != "scripted":
            raise InvalidOption(f"{self.sim} has no scripted expert: name demonstrations with --data")
        out = self.folder / DEMONSTRATIONS
        episodes = self.scale.demonstrations_for(self.sim)
        cameras = tuple(key.removeprefix(IMAGES) for key in self.observe if key.startswith(IMAGES))
        # One worker, because several runs go at a time; the demonstrations are the same with any number.
        config = CollectConfig(
            self.sim, self.tasks, out, episodes=episodes, expert=ExpertConfig(cameras=cameras), workers=1
        )
        return Run(self.folder, DEMONSTRATIONS, config)

    def tokenizer(self, method: Method, seed: int, steps: int | None) -> Run:
        """Return the run that fits a method's tokenizer."""
        assert method.tokenizer is not None
        name = method.run("tokenizers", seed)
        config = FitConfig.of(
            self.data,
            self.folder / name,
            method.tokenizer,
            self.scale.preset,
            action_horizon=method.action_horizon,
            seed=seed,
            resume=True,
            **method.options,
            **(_recipe(steps) if method.learned_tokenizer else {}),
        )
        return Run(self.folder, name, config, self._demonstrated())

    def policy(self, method: Method, seed: int, steps: int | None) -> Run:
        """Return the run that trains a method's policy."""
        name = method.run("policies", seed)
        tokenizer = method.run("tokenizers", seed)
        config = TrainPolicyConfig.of(
            self.data,
            self.folder / name,
            self.scale.preset,
            policy=method.policy,
            tokenizer=None if method.tokenizer is None else self.folder / tokenizer,
            # A policy that learns tokens has its tokenizer's horizon, whatever is given here.
            action_horizon=method.action_horizon if method.tokenizer is None else 32,
            seed=seed,
            resume=True,
            **({"observe": self.observe} if self.observe else {}),
            **method.policy_options,
            **_recipe(steps),
        )
        return Run(self.folder, name, config, self._demonstrated() if method.tokenizer is None else (tokenizer,))

    def finished(self, name: str) -> bool:
        """Return whether the run by that name is done, and its result is here."""
        return marker(self.folder, name).exists() and (self.folder / name).exists()

    @property
    def published(self) -> bool:
        """Return whether only what is worth committing is here, without models."""
        # Publishing copies markers of runs, but never the models themselves.
        models = (self.folder / "tokenizers", self.folder / "policies")
        return (self.folder / DONE_FOLDER).exists() and not any(folder.exists() for folder in models)

    def records(self, evaluation: EvaluationRun) -> dict[int | None, list[EpisodeRecord]]:
        """Return episodes by the number of tokens acted from; nothing where it has not been run."""
        records = self.all_records(evaluation)
        if not records:
            return {}
        if not evaluation.method.prefixes:
            return {None: records}
        names = {tokens: TokenDecoding(tokens).length_name for tokens in evaluation.method.prefixes}
        return {
            tokens: [each for each in records if each.key.decoding.split()[0] == name] for tokens, name in names.items()
        }

    def all_records(self, evaluation: EvaluationRun) -> list[EpisodeRecord]:
        """Return the episodes of an evaluation; nothing where it has not been run."""
        file = find_records(self.folder / evaluation.name)
        return read_records(file) if file.is_file() else []

    def commit(self, evaluation: EvaluationRun) -> str | None:
        """Return the commit of the code that ran an evaluation, if that was noted."""
        noted: str | None = read_result(self.folder, evaluation.name).get("commit")
        return noted

    def _demonstrated(self) -> tuple[str, ...]:
        """Return the names of the runs that fitting to demonstrations needs: none if the data was given."""
        return () if self.given_data else (DEMONSTRATIONS,)

    def _runs(self, evaluation: EvaluationRun, budget: StepBudget) -> Iterable[Run]:
        method = evaluation.method
        seed = evaluation.seed
        if not self.given_data:
            yield self.demonstrations()
        if method.tokenizer is not None:
            yield self.tokenizer(method, seed, budget.tokenizer_steps(method))
        if evaluation.until == "tokenizer":
            return
        policy = self.policy(method, seed, budget.policy_steps(method))
        yield policy
        if evaluation.until == "policy":
            return
        needs = [policy.name]
        options: dict[str, Any] = {"num_tokens": method.prefixes}
        if evaluation.decoding is not None:
            # Ways to decode are compared where all tokens are there, unless they say otherwise themselves.
            options = {"num_tokens": method.prefixes[-1:], **evaluation.decoding.options}
            if evaluation.decoding.needs_head:
                yield self.head(evaluation, policy)
                needs.append(evaluation.head)
                options["head"] = self.folder / evaluation.head
            if evaluation.matched is not None:
                needs.append(evaluation.matched.name)
                options["stop"] = (f"matched={self.folder / evaluation.matched.name}",)
        config = EvalConfig(
            policy=self.folder / policy.name,
            sim=self.sim,
            out=self.folder / evaluation.name,
            tasks=self.tasks,
            episodes=self.episodes,
            first_seed=seed,  # policies from other training seeds meet conditions of their own
            execute=evaluation.execute,
            videos=self.scale.videos if self.films and seed == 0 and evaluation.filmed else 0,
            workers=1,  # several evaluations go at a time
            **options,
        )
        yield Run(self.folder, evaluation.name, config, tuple(needs))

    def head(self, evaluation: EvaluationRun, policy: Run) -> Run:
        """Return the run that makes the stopping head of a policy."""
        execute = find_simulator(self.sim).protocol.execute if evaluation.execute is None else evaluation.execute
        out = self.folder / evaluation.head
        config = CalibrateConfig(policy.config.out, self.data, out, execute, **self.scale.head_options)
        return Run(self.folder, evaluation.head, config, (*self._demonstrated(), policy.name))


def _recipe(steps: int | None) -> dict[str, int]:
    """Return the options for this many steps, with some validations on the way to choose the best from."""
    return {} if steps is None else {"steps": steps, "validate_every": max(10, steps // 8)}
