"""The section on adaptive depth: where along an episode a policy used how many tokens, beside what happened there."""

from oat.report.page_data import PageData
from oat.report.plots import STRIP_MARGIN, Colours, Figure, Trace, choose_colours, plot_text
from oat.report.sections.section import Part, Section
from oat.report.token_courses import PARTS, EpisodeCourse, TokenCourses


def depth_section(data: PageData, colours: Colours) -> Section | None:
    """Show policies that decide for each chunk how many tokens it needs: on average, and in single episodes."""
    if not data.depths:
        return None
    introduction = (
        "A stopping rule decided for each chunk how many tokens it needs: on average, and in single episodes."
    )
    if data.depths_left_out:
        others = "policy is" if data.depths_left_out == 1 else "policies are"
        introduction += f" {data.depths_left_out} more {others} left out to keep this page small."
    parts = [
        Part(f"{courses.policy}, {courses.protocol}", figures=_figures(f"depth-{number}", courses, colours))
        for number, courses in enumerate(data.depths)
    ]
    return Section("depth", "Tokens over time", introduction, parts)


def _figures(name: str, courses: TokenCourses, colours: Colours) -> list[Figure]:
    colour = colours[courses.method]
    deepest = max(max(each.tokens) for each in courses.examples)
    examples = [
        _episode_figure(f"{name}-{number}", episode, colour, deepest) for number, episode in enumerate(courses.examples)
    ]
    return [_mean_figure(name, courses), *examples]


def _mean_figure(name: str, courses: TokenCourses) -> Figure:
    """Draw the mean number of tokens along episodes, a line for each task."""
    colours = choose_colours(courses.means)
    places = [100 * part / (PARTS - 1) for part in range(PARTS)]
    traces: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": plot_text(task),
            "x": places,
            "y": means,
            "line": {"color": colours[task], "width": 2},
            "hovertemplate": f"{plot_text(task)}: %{{y:.2f}} tokens<extra></extra>",
        }
        for task, means in courses.means.items()
    ]
    return Figure(
        name,
        "Tokens per chunk along an episode",
        f"Means over {courses.episodes} episodes, which differ in length: 100 % is the end of each.",
        traces,
        {
            "xaxis": {"title": {"text": "% of the episode"}},
            "yaxis": {"title": {"text": "tokens per chunk"}, "rangemode": "tozero"},
            "showlegend": True,
        },
    )


def _episode_figure(name: str, episode: EpisodeCourse, colour: str, deepest: int) -> Figure:
    """Draw the tokens of each chunk of one episode, where it was executed, below frames of its film."""
    ends = [*episode.starts[1:], episode.steps]
    bars: Trace = {
        "type": "bar",
        "x": list(episode.starts),
        "y": list(episode.tokens),
        "width": [max(1, end - start) for start, end in zip(episode.starts, ends, strict=True)],
        "offset": 0,
        "marker": {"color": colour, "line": {"color": "rgba(255,255,255,0.6)", "width": 1}},
        "hovertemplate": "from step %{x}: %{y} tokens<extra></extra>",
    }
    caption = f"One episode, {episode.outcome} in {episode.steps} steps; a bar is as wide as its chunk was executed."
    if episode.frames:
        caption += " Each frame is from the middle of the steps that it covers."
    layout = {
        "xaxis": {"title": {"text": "step"}, "range": [0, episode.steps], "automargin": False},
        "yaxis": {"title": {"text": "tokens per chunk"}, "range": [0, deepest + 0.3], "automargin": False},
        "margin": STRIP_MARGIN,
    }
    return Figure(name, episode.task, caption, [bars], layout, 220 if episode.frames else 360, episode.frames)
