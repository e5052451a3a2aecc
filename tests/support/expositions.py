"""The recorded pages of `tests/data/expositions`, and pages written down in a test."""

from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "data" / "expositions"
PAGES = tuple(sorted(path.name for path in DIRECTORY.glob("*.prom")))
TWO_ENGINES = "vllm-0.32-two-engines.prom"


def exposition(name: str) -> str:
    """The page of that file name."""
    return (DIRECTORY / name).read_text(encoding="utf-8")


def many_engines(count: int) -> str:
    """The page of a server with `count` engines, made of the two-engine page's first engine."""
    page = []
    for line in exposition(TWO_ENGINES).splitlines():
        if 'engine="0"' in line:
            page += [line.replace('engine="0"', f'engine="{index}"') for index in range(count)]
        elif 'engine="1"' not in line:
            page.append(line)
    return "\n".join(page) + "\n"


def series(name: str, value: float | str, **labels: str) -> str:
    """One line of a page; label values are not escaped."""
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}\n"


def gauge(name: str, value: float | str, engine: str = "0", model_name: str = "m", **labels: str) -> str:
    """One line of an engine, under vLLM's own prefix."""
    return series(f"vllm:{name}", value, engine=engine, model_name=model_name, **labels)
