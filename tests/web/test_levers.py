from exporter.web.levers import levers


def test_levers_come_with_flag_gain_and_cost_greatest_first() -> None:
    """Each lever says what it gives, the exact flag and what it costs; the one that helps most is first."""
    told = levers({"max_num_seqs=48": 0.8, "kv_cache_dtype=fp8": 2.0, "gpu_memory_utilization": 1.1})
    assert [(lever.effect, lever.flag) for lever in told] == [
        ("2.0 × the capacity", "--kv-cache-dtype fp8"),
        ("20 % less demand", "--max-num-seqs 48"),
        ("10 % more capacity", "--gpu-memory-utilization"),
    ]
    assert all(lever.cost for lever in told)


def test_a_lever_without_effect_is_not_offered() -> None:
    """What changes less than one percent, or makes no sense, is no advice."""
    assert levers({"max_num_seqs": 1.0, "max_model_len": 0.995, "kv_cache_dtype=fp8": 0.0}) == ()


def test_an_unknown_lever_is_still_told() -> None:
    """A lever this table does not know has its name as flag and no cost; replicas are no flag of vLLM."""
    unknown, replicas = levers({"new_knob=3": 3.0, "replicas=2": 0.5})
    assert (unknown.flag, unknown.cost) == ("--new-knob 3", None)
    assert replicas.flag is None
