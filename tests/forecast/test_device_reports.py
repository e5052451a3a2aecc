"""What went wrong on other people's GPUs, with their numbers. Each name tells the public report it comes from."""

import pytest

from exporter.forecast.allocations import next_allocations
from exporter.forecast.card_budget import over_budget
from exporter.forecast.device import DeviceForecaster, DeviceOptions
from exporter.forecast.startup import Start, start_faults
from tests.forecast.readings import GIB, MIB, device, follow


def gib(size: float) -> int:
    return int(size * GIB)


def mib(size: float) -> int:
    return int(size * MIB)


def test_vllm_57475_graph_capture_died_at_098() -> None:
    """22.36 GiB card, 136 MiB wanted with 120.88 MiB free: predicted; 0.98 is called risky there, 0.96 is not."""
    seen = DeviceForecaster().observe(device(0.0, gib(22.36), mib(120.88)), {"cuda_graphs": mib(136)})
    assert seen.predicted
    start = Start(total=gib(22.36), utilization=0.98, weights=gib(18), kv=gib(2.97))
    assert any("0.96 or less is safer" in fault for fault in start_faults(start))
    assert start_faults(Start(total=gib(22.36), utilization=0.96, weights=gib(15))) == ()
    assert start_faults(Start(total=gib(80), utilization=0.98, weights=gib(15))) == ()


def test_vllm_57475_graphs_are_a_term_of_their_own_with_a_margin() -> None:
    """Graphs that just fit by the estimate are called too tight; with a sixth to spare they are not."""
    tight = Start(total=gib(24), utilization=0.95, weights=gib(15), graphs=gib(1.15), kv=gib(7.7))
    roomy = Start(total=gib(24), utilization=0.95, weights=gib(15), graphs=gib(1.1), kv=gib(7.7))
    assert any("CUDA graphs may not fit" in fault for fault in start_faults(tight))
    assert start_faults(roomy) == ()


def test_vllm_53013_an_absurd_graph_estimate_is_called_suspect() -> None:
    """118.65 GiB for graphs on a GB300 is more than a quarter of its 278 GiB: a fault of the estimate."""
    faults = start_faults(Start(total=gib(278), utilization=0.85, weights=gib(100), graphs=gib(118.65)))
    assert len(faults) == 1
    assert "118.6 GiB for CUDA graphs is more than a quarter of the card" in faults[0]


def test_vllm_51590_a_process_beyond_its_own_budget() -> None:
    """0.95 of CUDA's 33,689,829,376 bytes are 29.81 GiB; 31.18 used are 1.37 GiB over it, and next to nothing is free.

    nvidia-smi's total of 32,623 MiB is CUDA's and the driver's reserved part together, so the share is taken of the
    first alone.
    """
    total, cuda = 32623 * MIB, 33689829376
    used = gib(31.18)
    reading = device(0.0, total, cuda - used, reserved=total - cuda)
    assert int(0.95 * cuda) == pytest.approx(gib(29.81), rel=1e-3)
    assert over_budget(reading, 0.95) == pytest.approx(gib(1.37), rel=0.01)
    seen = DeviceForecaster(DeviceOptions(gpu_memory_utilization=0.95)).observe(reading, {"logits_chunk": gib(0.375)})
    assert seen.headroom_bytes == cuda - used
    assert seen.predicted, "headroom is what is measured, not utilisation × total"


def test_235b_on_l40s_graphs_lie_on_top_of_the_budget() -> None:
    """Budget 39.98 GiB of 44.42 with 3.45 GiB of graphs on top: 1.0 GiB with a peak of activations on, 2.4 without."""
    start = Start(
        total=gib(44.42),
        utilization=0.9,
        weights=gib(27.72),
        activation=gib(1.4),
        non_torch=gib(0.21),
        graphs=gib(3.45),
        kv=11423138508,
    )
    assert start.left_after_start == pytest.approx(gib(1.0), rel=0.01)
    assert start.left_after_start + start.activation == pytest.approx(gib(2.4), rel=0.01)
    assert start.budget == pytest.approx(gib(39.98), rel=1e-3)


def test_vllm_14239_less_free_than_one_chunk_of_logprobs() -> None:
    """154,880 entries need 302.5 MiB for a chunk of prompt logprobs; with 218.81 free it is predicted, even idle."""
    allocations = next_allocations({"vocab_size": 154880})
    assert allocations["logits_chunk"] == mib(302.5)
    seen = follow(lambda t: device(t, gib(96), mib(218.81)), 900, allocations)
    assert all(assessment.predicted for assessment in seen)
    assert seen[-1].growth_bytes_per_second == 0.0


def test_vllm_38830_hybrid_models_have_logits_too() -> None:
    """A hybrid, quantised model whose sizes are nested gets the same allocations."""
    config = {
        "model_type": "qwen3_5",
        "quantization_config": {"quant_method": "gptq"},
        "text_config": {
            "vocab_size": 248320,
            "hidden_size": 5120,
            "layer_types": ["linear_attention", "full_attention"],
        },
    }
    found = next_allocations(config, max_num_batched_tokens=8192)
    assert found["logits_chunk"] == 1024 * 248320 * 2
    assert found["logits"] == 8192 * 248320 * 4


def test_vllm_12610_growth_only_under_traffic_is_found() -> None:
    """At 0.95 and eager: memory that climbs in minutes of traffic and rests in minutes of idleness ends in a crash."""

    def held(t: float) -> int:
        pairs, rest = divmod(t, 480)
        return int((pairs * 240 + max(0.0, rest - 240)) * 0.5 * MIB)

    seen = follow(lambda t: device(t, gib(24), gib(1.1) - held(t)), 3900)
    first = next(assessment for assessment in seen if assessment.predicted)
    assert first.time < 3600
    assert first.time_to_exhaustion_seconds is not None


def test_vllm_12610_the_step_after_the_first_requests_is_not_a_leak() -> None:
    """Lazy workspaces at the first requests are one step, and never an alarm."""
    seen = follow(lambda t: device(t, gib(24), gib(1.1) - (mib(600) if t > 1500 else 0)), 5000)
    assert {assessment.state for assessment in seen} == {"ok"}


def test_vllm_15039_an_adapter_widens_the_reserve_with_the_batch() -> None:
    """One adapter of rank 8 on a 70B over 4 GPUs: the reserve above 8,000 batched tokens is twice that above 4,000."""
    config = {"vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672}
    four, eight = (
        next_allocations(config, max_num_batched_tokens=tokens, tensor_parallel_size=4, lora_rank=8)
        for tokens in (4096, 8192)
    )
    assert eight["lora_activations"] == 2 * four["lora_activations"] > mib(200)


def test_vllm_55827_two_starts_at_once_charge_each_other() -> None:
    """0.35 and 0.20 of 32 GB: one after the other leaves 4.72 and 2.82 GiB for KV, together 1.84 and -3.21."""
    first = Start(total=gib(32), utilization=0.35, weights=gib(6.48))
    second = Start(total=gib(32), utilization=0.20, weights=gib(3.58))
    assert first.kv_bytes == pytest.approx(gib(4.72), rel=1e-6)
    assert second.kv_bytes == pytest.approx(gib(2.82), rel=1e-6)
    first_together = Start(total=gib(32), utilization=0.35, weights=gib(6.48), others_grow=gib(2.88))
    second_together = Start(total=gib(32), utilization=0.20, weights=gib(3.58), others_grow=gib(6.03))
    assert first_together.kv_bytes == pytest.approx(gib(1.84), rel=1e-6)
    assert second_together.kv_bytes == pytest.approx(gib(-3.21), rel=1e-6)
    assert any("the start fails: 3.21 GiB are lacking" in fault for fault in start_faults(second_together))


def test_vllm_55827_a_shared_card_is_labelled() -> None:
    """Each instance is told apart from the other by its processes, and the card is called shared."""
    reading = device(0.0, gib(32), gib(14), this_process=gib(11.2), other_processes=gib(6.4))
    seen = DeviceForecaster(DeviceOptions(gpu_memory_utilization=0.35)).observe(reading)
    assert seen.shared
    assert seen.over_budget_bytes == 0, "the neighbour's memory is not charged to this server's budget"


def test_vllm_56830_memory_that_a_neighbour_gives_back_is_not_vllms() -> None:
    """Free memory that rises from 82.94 to 90.17 GiB is the neighbour's 7.23 GiB; the server's own stays."""
    total, own = gib(140), gib(40)
    before = device(0.0, total, gib(82.94), this_process=own, other_processes=total - own - gib(82.94))
    after = device(1.0, total, gib(90.17), this_process=own, other_processes=total - own - gib(90.17))
    assert before.other_processes is not None
    assert after.other_processes is not None
    assert before.other_processes - after.other_processes == pytest.approx(gib(7.23), rel=1e-6)
    forecaster = DeviceForecaster()
    assert forecaster.observe(before).state == forecaster.observe(after).state == "ok"


@pytest.mark.parametrize(("total", "free", "wants"), [(21.98, 156.94, 270.0), (24.0, 47.06, 784.0)])
def test_vllm_13267_a_full_card_and_not_fragmentation(total: float, free: float, wants: float) -> None:
    """Free memory below what one allocation may want is predicted, whatever PyTorch has reserved."""
    seen = DeviceForecaster().observe(device(0.0, gib(total), mib(free)), {"logits_chunk": mib(wants)})
    assert seen.predicted
    assert seen.next_allocation_bytes == {"logits_chunk": mib(wants)}
    assert seen.headroom_bytes == mib(free)


def test_vllm_15105_the_sampler_is_sized_by_max_num_seqs() -> None:
    """V1's 1,024 sequences on a vocabulary of 151,936 are 594 MiB of logits; 256 are a quarter of it."""
    config = {"vocab_size": 151936}
    assert next_allocations(config, max_num_seqs=1024)["sampler"] == 1024 * 151936 * 4
    assert next_allocations(config, max_num_seqs=256)["sampler"] == 1024 * 151936


@pytest.mark.parametrize("utilization", [0.80, 0.93])
def test_qwen_on_one_5090_utilization_cannot_fix_graph_memory(utilization: float) -> None:
    """Capture lacked 784 MiB with 47.06 MiB free at 0.80 and 0.93 alike: the advice is graphs, not utilisation."""
    start = Start(
        total=gib(31.4), utilization=utilization, weights=gib(28), graphs=mib(784), kv=gib(31.4 - 28) - mib(47.06)
    )
    (fault,) = (fault for fault in start_faults(start) if "CUDA graphs" in fault)
    assert "--enforce-eager" in fault
    assert "gpu_memory_utilization moves only what is left for KV" in fault


def test_a_tenant_of_3_6_gb_kept_a_server_restarting() -> None:
    """0.35 of 24 GB with 3.6 held by another service leaves -2.81 for KV: the failure is told before the next start."""
    start = Start(total=gib(24), utilization=0.35, weights=gib(7.61), others=gib(3.6), others_grow=gib(3.6))
    assert start.kv_bytes == pytest.approx(gib(-2.81), rel=1e-6)
    (fault,) = start_faults(start)
    assert "3.6 GiB of it held by other processes" in fault


def test_vllm_7553_far_below_the_budget_is_no_fault() -> None:
    """14,214 of 24,564 MiB at 0.9 is 7,893 MiB below what was allowed, and ok."""
    reading = device(0.0, 24564 * MIB, (24564 - 14214) * MIB)
    seen = DeviceForecaster(DeviceOptions(gpu_memory_utilization=0.9)).observe(reading)
    assert seen.over_budget_bytes == 14214 * MIB - int(0.9 * 24564 * MIB)
    assert seen.over_budget_bytes < 0
    assert seen.state == "ok"


def test_dcgm_exporter_271_the_share_is_taken_of_total_and_free() -> None:
    """Used and free do not add up to the total where the driver reserves: the verdict is the same with and without."""
    total, free = 24564 * MIB, 100 * MIB
    apart = DeviceForecaster().observe(device(0.0, total, free, reserved=400 * MIB))
    together = DeviceForecaster().observe(device(0.0, total, free))
    assert apart.headroom_bytes == together.headroom_bytes == free
    assert apart.probability == together.probability


def test_vllm_2140_an_allocation_larger_than_the_room_is_shown_beside_it() -> None:
    """A 7.75 GiB card that may want 1.16 GiB at once: both figures are exported, and a little risk, but no alarm."""
    wants = gib(1.16)
    seen = DeviceForecaster().observe(device(0.0, gib(7.75), gib(1.0)), {"logits": wants})
    assert (seen.next_allocation_bytes["logits"], seen.headroom_bytes) == (wants, gib(1.0))
    assert 0 < seen.probability[3600.0] < 0.03
    assert not seen.predicted
