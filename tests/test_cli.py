"""The command as a person meets it: help that helps, one readable line for a mistake, no traceback."""

import contextlib
import io
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from oat.cli import VERBS, main
from oat.data.episodes import open_dataset
from oat.tokenizers import TOKENIZERS, BinTokenizer
from tests.data.test_formats import assert_same
from tests.datasets import WRITERS, make_episodes, write_npz, write_robomimic, write_zarr


def oat(*arguments: str | Path, cwd: Path | None = None) -> CompletedProcess[str]:
    """Run the command in this process: starting one of its own would take longer than what most tests look at."""
    words = [str(argument) for argument in arguments]
    status = 0
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as errors,
        contextlib.chdir(cwd or Path.cwd()),
    ):
        try:
            main(words)
        except SystemExit as end:
            status = 0 if end.code is None else int(end.code)
    return CompletedProcess(words, status, out.getvalue(), errors.getvalue())


def installed_oat(*arguments: str | Path) -> CompletedProcess[str]:
    """Run the command that is installed, in a process of its own."""
    command = [str(Path(sys.executable).with_name("oat")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_arguments_it_shows_its_verbs() -> None:
    done = installed_oat()
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in VERBS)
    assert "--debug" in done.stdout


def test_a_process_ends_as_its_command_did() -> None:
    done = installed_oat("inspect", "/nowhere")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == oat("inspect", "/nowhere").stderr


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str) -> None:
    done = oat(verb, "--help")
    assert done.returncode == 0
    words = " ".join(done.stdout.replace("│", " ").split())
    assert f"usage: oat {verb}" in words
    assert words.count("--") > 2
    assert "(default:" in words


@pytest.mark.parametrize("verb", ["collect", "eval", "reproduce", "serve", "train"])
def test_help_flows_over_its_lines(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line ends where the next word has no room, and not where the source's line does."""
    monkeypatch.setenv("COLUMNS", "100")
    rows = [line.replace("│", " ").rstrip() for line in oat(verb, "--help").stdout.splitlines()]
    texts = [row for row in rows if row.startswith(" " * 8)]
    width = max(map(len, texts))
    told = 0
    for row, following in pairwise(rows):
        # What goes with an option's name may begin on a line of its own.
        if row in texts and following in texts:
            assert len(row) + 1 + len(following.split()[0]) > width, f"{row.strip()} | {following.strip()}"
            told += 1
    assert told > 3


@pytest.mark.parametrize(
    ("kind", "own", "others"),
    [
        ("oat", ("--register-attention", "--levels", "--keep", "--steps"), ("--bins", "--scale", "--kernel")),
        (
            "quest",
            ("--kernel", "--spread", "--smooth", "--steps"),
            ("--keep", "--latent-horizon", "--prefixes", "--bins"),
        ),
        ("fast", ("--scale", "--vocab-size"), ("--levels", "--steps", "--bins")),
        ("bin", ("--bins",), ("--levels", "--steps", "--scale")),
    ],
)
def test_fit_shows_the_options_of_the_chosen_kind(
    kind: str, own: tuple[str, ...], others: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "--tokenizer", kind, "--preset", "tiny", "--help"])
    text = capsys.readouterr().out
    assert all(option in text for option in own)
    assert not any(option in text for option in others)
    assert all(f"--tokenizer {other}" in text for other in TOKENIZERS)
    assert kind not in ("oat", "quest") or "Optimiser steps. (default: 500)" in text  # the preset's own


def test_help_is_fast_and_does_not_import_torch() -> None:
    code = "import sys, oat.cli; sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "/nowhere"], "no such file"),
        (["convert", "/nowhere", "/tmp/out"], "no such file"),
        (["collect", "metawrld", "--tasks", "reach", "--out", "/tmp/x"], "Did you mean 'metaworld'"),
        (["collect", "metaworld", "--tasks", "boxclose", "--out", "/tmp/x"], "Did you mean 'box-close'"),
        (["collect", "metaworld", "--tasks", "reach", "--episodes", "0", "--out", "/tmp/x"], "at least 1"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str) -> None:
    done = oat(*arguments)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_debug_shows_the_traceback() -> None:
    done = oat("inspect", "/nowhere", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "detect_format" in done.stderr


def test_a_wrong_command_line_is_status_2() -> None:
    assert oat("inspect").returncode == 2
    assert oat("dance").returncode == 2
    assert oat("collect", "metaworld", "--out", "x").returncode == 2


@pytest.mark.parametrize("name", WRITERS)
def test_inspect_prints_and_draws(name: str, tmp_path: Path) -> None:
    path = WRITERS[name](tmp_path, make_episodes(5))
    done = oat("inspect", path, "--picture", tmp_path / "picture.png")
    assert done.returncode == 0, done.stderr
    assert "5 episodes" in done.stdout
    assert "observation.images.front" in done.stdout
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "picture.png").stat().st_size > 20_000


def test_inspect_counts_what_is_wrong(tmp_path: Path) -> None:
    episodes = make_episodes(4)
    for e in episodes:
        e.actions[:, 1] = 0.25
        e.actions[:, 2] = np.clip(e.actions[:, 2], -0.5, 0.5)
    episodes[2].actions[0, 0] = np.nan
    episodes[3].states[:2, 1] = np.inf
    done = oat("inspect", write_npz(tmp_path / "set.npz", episodes), "--json", cwd=tmp_path)
    summary = json.loads(done.stdout)
    first, second, third = summary["dimensions"]
    assert first["nonfinite"] == 1
    assert summary["nonfinite_observations"] == {"observation.state": 2}
    assert (second["constant"], second["saturated"], second["min"]) == (True, 0.0, 0.25)
    clipped = np.concatenate([e.actions[np.isfinite(e.actions).all(1), 2] for e in episodes])
    assert third["saturated"] == pytest.approx((np.abs(clipped) == 0.5).mean())
    assert (third["min"], third["max"]) == (-0.5, 0.5)
    assert summary["lengths"] == {"task 0": [len(e.actions) for e in episodes]}
    assert (tmp_path / "set-inspect.png").exists()
    table = oat("inspect", tmp_path / "set.npz", cwd=tmp_path).stdout
    assert "constant" in table
    assert "NaN" in table
    assert "cannot be trained on" in table
    assert "2 values of observation.state" in " ".join(table.split())


def test_inspect_a_part(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "set.hdf5", make_episodes(6))
    for arguments, count in ((["--subset", "train"], 3), (["--episodes", "1:3,5"], 3)):
        summary = json.loads(oat("inspect", path, *arguments, "--json", cwd=tmp_path).stdout)
        assert summary["episodes"] == count
    assert "must end in" in oat("inspect", path, "--picture", "x.jpeg").stderr


def test_convert(tmp_path: Path) -> None:
    written = make_episodes(5)
    source = write_zarr(tmp_path / "in.zarr", written)
    done = oat("convert", source, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "assuming 10" in done.stderr
    assert "wrote 5 episodes" in done.stdout
    assert_same(open_dataset(tmp_path / "out"), written, exact_images=True)
    assert "exists" in oat("convert", source, tmp_path / "out").stderr
    again = oat("convert", source, tmp_path / "out", "--episodes", "1:3", "--exists", "append", "--fps", "10")
    assert again.returncode == 0, again.stderr
    assert_same(open_dataset(tmp_path / "out"), [*written, *written[1:3]], exact_images=True)
    assert "same directory" in oat("convert", tmp_path / "out", tmp_path / "out", "--exists", "overwrite").stderr


def test_names_with_markup_and_home_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    np.savez(tmp_path / "a [bold] x.npz", actions=np.zeros((3, 2)), episode_ends=[3], tasks=["put [/] two"])
    done = oat("inspect", "~/a [bold] x.npz", "--picture", tmp_path / "p.png")
    assert done.returncode == 0, done.stderr
    assert "a [bold] x.npz" in done.stdout
    assert "put [/] two" in done.stdout
    assert oat("convert", "~/a [bold] x.npz", "~/out").returncode == 0
    assert len(open_dataset(tmp_path / "out")) == 1


def test_options_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "set.npz", make_episodes(3))
    cases: tuple[tuple[list[str | Path], str], ...] = (
        (["inspect", path, "--episodes", "2:2"], "names none"),
        (["convert", path, tmp_path / "out", "--episodes", "0,0"], "some twice"),
        (["convert", path, tmp_path / "out", "--fps", "0"], "fps must be a positive number"),
        (["convert", path, path, "--exists", "overwrite"], "same directory"),
        (["convert", path, "/proc/none/out"], "choose another place"),
        (["inspect", path, "--picture", tmp_path / ("x" * 300 + ".png")], "choose another place"),
    )
    for arguments, message in cases:
        done = oat(*arguments)
        assert done.returncode == 1, arguments
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1 or "converting" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "{tokenizer}"], "is a tokenizer: say with --data"),
        (["inspect", "{tokenizer}", "--data", "{data}", "--subset", "none"], "--subset means nothing to a tokenizer"),
        (["inspect", "{tokenizer}", "--data", "{data}", "--episodes", "x"], "--episodes means nothing to a tokenizer"),
        (["inspect", "{data}", "--beside", "{tokenizer}"], "--beside means nothing to a data set"),
        (["convert", "{data}", "{out}", "--image-size", "64"], "--image-size means nothing to images that are stored"),
        (["fit", "--data", "{data}", "--out", "{out}", "--scale", "2"], "--scale means nothing to oat, it is for fast"),
        (["fit", "--data", "{data}", "--out", "{out}", "--tokenizer", "bin", "--steps", "9"], "is for quest and oat"),
        (
            ["fit", "--data", "{data}", "--out", "{out}", "--tokenizer=bin", "--no-compile"],
            "--compile means nothing to",
        ),
        (["fit", "--data", "{data}", "--out", "{out}", "--tokenizer", "bim"], "unknown tokenizer 'bim'. Did you mean"),
        (["fit", "--data", "{data}", "--out", "{out}", "--preset", "small"], "unknown preset 'small'"),
        (["fit", "--data", "{data}", "--out", "{out}", "--schedule", "x"], "unknown learning-rate schedule 'x'"),
    ],
)
def test_options_of_something_else_are_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_npz(tmp_path / "set.npz", make_episodes(3))
    BinTokenizer.fit(np.random.default_rng(0).normal(size=(20, 8, 3))).save(tmp_path / "tokenizer")
    places = {"data": data, "tokenizer": tmp_path / "tokenizer", "out": tmp_path / "out"}
    with pytest.raises(SystemExit) as caught:
        main([argument.format(**places) for argument in arguments])
    assert caught.value.code == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["bin", "fast", "rvq", "quest", "oat"])
def test_fit(kind: str, tmp_path: Path) -> None:
    steps = np.cumsum(np.random.default_rng(0).normal(size=(600, 2)), axis=0).astype(np.float32)
    np.savez(tmp_path / "data.npz", actions=steps, episode_ends=np.arange(60, 601, 60))
    arguments: list[str | Path] = [
        "--data",
        tmp_path / "data.npz",
        "--tokenizer",
        kind,
        "--preset",
        "tiny",
        "--action-horizon",
        "16",
    ]
    learned = kind in ("quest", "oat")
    done = oat("fit", *arguments, *(["--steps", "30"] if learned else []), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    tokenizer = TOKENIZERS[kind].load(tmp_path / "run" / "best" if learned else tmp_path / "run")
    chunks = np.stack([steps[:16], steps[100:116]])
    assert tokenizer.decode(tokenizer.encode(chunks)).shape == (2, 16, 2)
    picture = tmp_path / "picture.png"
    shown = oat("inspect", tmp_path / "run", "--data", tmp_path / "data.npz", "--json", "--picture", picture)
    assert shown.returncode == 0, shown.stderr
    own, *rivals = json.loads(shown.stdout)
    assert own["kind"] == kind
    assert {rival["kind"] for rival in rivals} == {"bin", "fast", "rvq"} - {kind}
    assert own["chunks"] == 60  # the windows of the one episode held out
    assert len(own["mse"]) == (8 if kind in ("oat", "rvq") else 1)
    assert {each["stability"]["pairs"] for each in (own, *rivals)} == {59}  # all but the last, which nothing follows
    assert picture.stat().st_size > 20_000
    if kind in ("oat", "rvq"):  # its tables have the others beside it
        table = oat("inspect", tmp_path / "run", "--data", tmp_path / "data.npz", "--picture", picture).stdout
        assert "rate and distortion" in table
        assert "tokens that change when chunks hardly do" in table
    if learned:
        assert "training" in done.stderr
        again = oat("fit", *arguments, "--steps", "30", "--out", tmp_path / "run")
        assert again.returncode == 1
        assert "--resume" in again.stderr
        more = oat("fit", *arguments, "--steps", "40", "--out", tmp_path / "run", "--resume")
        assert more.returncode == 0, more.stderr
        last = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]
        assert json.loads(last)["step"] == 40
