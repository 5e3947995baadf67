"""The section that plays videos of episodes beside each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from oat.report.page_data import PageData
from oat.report.plots import Colours
from oat.report.sections.section import Section
from oat.report.videos import Video


@dataclass(frozen=True)
class VideosSection(Section):
    """Show videos side by side, each with what became of the episode."""

    template: ClassVar[str] = "videos.html"
    videos: Sequence[Video] = ()


def videos_section(data: PageData, colours: Colours) -> Section | None:
    """Show the videos that were chosen, and say how many were not."""
    if not data.videos:
        return None
    introduction = "The predicted path is drawn in: yellow is executed, blue is what the next chunk replaces."
    if data.videos_left_out:
        others = "video was" if data.videos_left_out == 1 else "videos were"
        introduction += f" {data.videos_left_out} more {others} left out to keep this page small."
    return VideosSection("videos", "Rollouts", introduction, videos=data.videos)
