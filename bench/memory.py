"""What a server process and its children hold in memory, as Linux counts it."""

from pathlib import Path

from bench.figures import NotThere


def resident_mb(pid: int) -> float:
    return sum(_status_mb(each, "VmRSS") for each in _family(pid))


def peak_mb(pid: int) -> float:
    """The most since the start or the last `forget_peak`."""
    return sum(_status_mb(each, "VmHWM") for each in _family(pid))


def forget_peak(pid: int) -> None:
    """From now on the peak is a new one. Raises NotThere."""
    try:
        for each in _family(pid):
            Path(f"/proc/{each}/clear_refs").write_text("5")
    except OSError as error:
        raise NotThere(f"peaks of memory cannot be measured here: {error}") from error


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [pid, *(member for child in _words(children) for member in _family(int(child)))]


def _words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def _status_mb(pid: int, field: str) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError as error:
        raise NotThere(f"memory cannot be measured here: {error}") from error
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":")), 0.0)
