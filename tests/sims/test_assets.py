"""Assets: a set with stand-ins is told from a benchmark's own, and a file that is missing is named in one line."""

from pathlib import Path

import pytest

from oat.errors import SimulatorError
from oat.sims.assets import explain_missing_files, has_stand_ins, stand_ins


def test_a_set_with_stand_ins_says_so_in_it_or_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "assets"
    folder.mkdir()
    for file, text in (
        (folder / "PROVENANCE.json", '{"plate.png": "stand-in"}'),
        (folder / "README.md", "# Assets\n\n## Stand-ins\n"),
        (tmp_path / "README.md", "# Assets\n\n## What is a stand-in\n"),
    ):
        assert not has_stand_ins(folder)
        file.write_text(text)
        assert has_stand_ins(folder)
        file.unlink()


def test_a_whole_download_is_no_stand_in(tmp_path: Path) -> None:
    """It may have a page about itself, or lie in a project that mentions stand-ins among other things."""
    folder = tmp_path / "assets"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# LIBERO's assets\n")
    (folder / "PROVENANCE.json").write_text('{"plate.png": "unmodified"}')
    (tmp_path / "README.md").write_text("# A project\n\nIt can do with stand-ins.\n")
    assert not has_stand_ins(folder)


def test_what_stood_for_assets_is_read_from_versions() -> None:
    assert stand_ins("oat 1.0, torch 2, robocasa 1.0.0, robosuite 1.5.2, stand-in kitchen") == ["stand-in kitchen"]
    assert stand_ins("oat 1.0, torch 2, robocasa 1.0.0, robosuite 1.5.2, full kitchens") == []


def test_a_missing_file_is_named_and_other_errors_are_not_touched(tmp_path: Path) -> None:
    import mujoco

    scene = f"<mujoco><asset><texture type='2d' file='{tmp_path}/wood.png'/></asset></mujoco>"
    with (
        pytest.raises(SimulatorError, match=r"^A kitchen's assets lack .*/wood\.png: fetch them with `fetch`$"),
        explain_missing_files("A kitchen", "fetch"),
    ):
        mujoco.MjModel.from_xml_string(scene)
    with (
        pytest.raises(SimulatorError, match=r"lack model\.xml: "),
        explain_missing_files("A kitchen", "fetch", lambda file: Path(file).name),
    ):
        (tmp_path / "model.xml").read_text()
    with pytest.raises(ValueError, match="XML"), explain_missing_files("A kitchen", "fetch"):
        mujoco.MjModel.from_xml_string("<mujoco")
