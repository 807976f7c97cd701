"""What was measured: printed, as JSON, and as the README's table."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.figures import BY_NAME, FIGURES, Figure, Ratio, Sample

START, END = "<!-- bench -->", "<!-- /bench -->"
HEAD = ("| # | figure | median | min–max | must | aim |", "|---|---|---|---|---|---|")


@dataclass(slots=True)
class Results:
    samples: dict[str, list[Ratio]] = field(default_factory=dict)
    #: Why a figure could not be measured.
    missing: dict[str, str] = field(default_factory=dict)
    failed: bool = False

    def add(self, sample: Sample) -> None:
        for name, ratio in sample.items():
            self.samples.setdefault(name, []).append(ratio)

    def leave_out(self, names: Iterable[str], why: str) -> None:
        self.missing.update(dict.fromkeys(names, why))

    def fail(self, names: Iterable[str]) -> None:
        self.failed = True
        self.leave_out(names, "it failed; see above")

    def measured(self) -> list[Figure]:
        return [figure for figure in FIGURES if figure.name in self.samples]

    def values(self, name: str) -> list[float]:
        return [ratio.value for ratio in self.samples[name]]

    def to_json(self) -> dict[str, dict[str, Any]]:
        """By figure; `of` is the number of rounds."""
        found: dict[str, dict[str, Any]] = {figure.name: self._entry(figure) for figure in self.measured()}
        for name, why in self.missing.items():
            bounds = {"must": BY_NAME[name].must, "aim": BY_NAME[name].aim}
            found[name] = {"min": None, "median": None, "max": None, "of": 0, **bounds, "not_there": why}
        return found

    def _entry(self, figure: Figure) -> dict[str, Any]:
        values, samples = self.values(figure.name), self.samples[figure.name]
        return {
            "min": min(values),
            "median": median(values),
            "max": max(values),
            "of": len(values),
            "must": figure.must,
            "aim": figure.aim,
            "met": figure.met(median(values), figure.must),
            "unit": figure.unit,
            "ours": median(ratio.ours for ratio in samples),
            "theirs": median(ratio.theirs for ratio in samples),
        }

    def lines(self) -> list[str]:
        """For a terminal."""
        shown = []
        width = 2 + max(map(len, (*self.samples, *self.missing)), default=0)
        for figure in self.measured():
            entry = self._entry(figure)
            spread = f"{entry['median']:8.3g}  ({entry['min']:.3g}–{entry['max']:.3g} of {entry['of']})"
            sides = f"{entry['ours']:,.4g}" + (f" ÷ {entry['theirs']:,.4g}" if figure.unit != "MB" else "")
            verdict = _verdict(figure, entry["median"])
            shown.append(f"{figure.name:<{width}}{spread:32} {verdict:22} {sides} {figure.unit}")
        return shown + [f"{name:<{width}}not there: {why}" for name, why in self.missing.items()]

    def rows(self) -> dict[str, str]:
        """The README's lines by figure."""
        return {figure.name: self._row(figure) for figure in self.measured()}

    def _row(self, figure: Figure) -> str:
        values = self.values(figure.name)
        middle = f"{median(values):.3g}"
        if not figure.met(median(values), figure.must):
            middle += " (missed)"
        spread = f"{min(values):.3g}–{max(values):.3g}"
        bounds = f"{_bound(figure, figure.must)} | {_bound(figure, figure.aim)}"
        return f"| {figure.name} | {figure.what} | {middle} | {spread} | {bounds} |"


def _bound(figure: Figure, bound: float | None) -> str:
    return "" if bound is None else f"{'≥' if figure.more_is_better else '≤'} {bound:g}"


def _verdict(figure: Figure, value: float) -> str:
    if figure.must is None:
        return ""
    if figure.met(value, figure.aim):
        return f"aim {_bound(figure, figure.aim)} met"
    return f"must {_bound(figure, figure.must)} {'met' if figure.met(value, figure.must) else 'MISSED'}"


def rewrite(readme: Path, rows: dict[str, str]) -> None:
    """Put these rows into the table between the markers; rows that were not measured this time stay."""
    text = readme.read_text()
    before, opening, rest = text.partition(START)
    table, closing, after = rest.partition(END)
    if not opening or not closing:
        sys.exit(f"{readme} has no {START} … {END}")
    held = {line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("| ")} | rows
    lines = [*HEAD, *(held[figure.name] for figure in FIGURES if figure.name in held)]
    readme.write_text(before + opening + "\n" + "\n".join(lines) + "\n" + closing + after)
