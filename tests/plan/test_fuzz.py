"""However a config.json is damaged, `plan` answers or refuses; it never fails with anything else."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.errors import InputError
from exporter.plan.answer import as_json, make_plan
from exporter.plan.arguments import parse_arguments
from tests.kv.truth import cases

CONFIGS = [case["config"] for case in cases()]
REQUEST = parse_arguments(["--model-config", "x", "--gpu", "H100", "--context", "1000", "--allow-long-max-model-len"])
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.integers(-5, 5), st.text(max_size=5), st.none()), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


@given(data=st.data())
@settings(deadline=None, max_examples=150)
def test_damaged_values_are_refused_or_planned(data: st.DataObject) -> None:
    """Any few values of a real config may be anything."""
    config: dict[str, Any] = dict(data.draw(st.sampled_from(CONFIGS)))
    for name in data.draw(st.lists(st.sampled_from(sorted(config)), min_size=1, max_size=3)):
        config[name] = data.draw(values)
    _answers_or_refuses(config)


@given(
    config=st.dictionaries(st.sampled_from(["model_type", "architectures", "text_config", "num_hidden_layers"]), values)
)
@settings(deadline=None, max_examples=60)
def test_meagre_files_are_refused_or_planned(config: dict[str, Any]) -> None:
    """Nor does it matter how little is in the file."""
    _answers_or_refuses(config)


def _answers_or_refuses(config: dict[str, Any]) -> None:
    try:
        answer = as_json(make_plan(config, REQUEST))
    except InputError:
        return
    assert answer["num_gpu_blocks"] >= 0
