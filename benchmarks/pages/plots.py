"""Plots of questions: medians, with a line from the lowest round to the highest."""

from __future__ import annotations

import math
import re
from pathlib import Path

from benchmarks.pages.harness import Contender, Question

DOTS_PER_INCH = 80
WIDTH_INCHES, ROW_INCHES, FRAME_INCHES = 8.0, 0.3, 1.2
OURS, OTHERS, LINE = "#2a6fbb", "#9aa5b1", "#333333"
# Above this ratio a linear axis would show only the slow ones.
LOGARITHMIC_FROM = 15.0
OURS_BEGIN = ("kbatch", "encode", "decode", "send", "append", "embedded")


def name_of(question: Question) -> str:
    """Return the file name of the plot."""
    return re.sub(r"[^a-z0-9]+", "-", question.title.lower()).strip("-") + ".png"


def draw(question: Question, path: Path) -> None:
    """Write a PNG. Raise ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    contenders = list(reversed(question.contenders))
    medians = [contender.median for contender in contenders]
    height = FRAME_INCHES + ROW_INCHES * len(contenders)
    figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = [OURS if contender.name.startswith(OURS_BEGIN) else OTHERS for contender in contenders]
    axes.barh(
        [contender.name for contender in contenders],
        medians,
        xerr=[*zip(*map(_spread, contenders), strict=True)],
        color=colours,
        error_kw={"ecolor": LINE, "elinewidth": 1, "capsize": 2},
    )
    is_logarithmic = max(medians) > LOGARITHMIC_FROM * max(min(medians), 1e-9)
    if is_logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(10 ** math.floor(math.log10(max(min(medians), 1e-9))), max(medians) * 4)
    else:
        axes.set_xlim(0, max(contender.median + _spread(contender)[1] for contender in contenders) * 1.15)
    for row, contender in enumerate(contenders):
        end = contender.median + _spread(contender)[1]
        axes.annotate(f"{contender.median:,.4g}", (end, row), (4, 0), textcoords="offset points", va="center")
    axes.set_xlabel(question.unit + (", logarithmic" if is_logarithmic else ""))
    axes.set_title(question.title, fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})


def _spread(contender: Contender) -> tuple[float, float]:
    return contender.median - min(contender.timings), max(contender.timings) - contender.median
