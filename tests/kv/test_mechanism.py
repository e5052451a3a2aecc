"""The rules of groups, pages, states and ranks, one by one."""

from dataclasses import replace

import pytest

from exporter.errors import InputError
from exporter.kv.architecture import Attention, read_architecture
from exporter.kv.demand import GroupDemand
from exporter.kv.dtypes import attention_cell_bytes, element_bytes, latent_cell_bytes
from exporter.kv.grouping import make_groups
from exporter.kv.layers import LayerCache
from exporter.kv.options import EngineOptions
from exporter.kv.placement import kv_heads_per_rank, stage_shares
from exporter.kv.sizing import held_blocks, request_demand, size
from exporter.kv.states import StateShape
from tests.kv.truth import config

GIB = 2**30
OPTIONS = EngineOptions(max_model_len=32768)


def _layers(count: int, kind: str, *, page: int = 65536, window: int | None = None) -> list[LayerCache]:
    return [LayerCache(f"{kind}{i}", kind, 16, page, window=window) for i in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("full", "sliding", "sizes"),
    [
        (5, 29, [5, 5, 5, 5, 5, 4, 5]),
        (12, 12, [12, 12]),
        (13, 12, [12, 13]),
        (10, 50, [10, 10, 10, 10, 10, 10]),
        (20, 30, [15, 15, 20]),
        (1, 3, [1, 1, 1, 1]),
    ],
)
def test_types_split_into_groups_of_one_size(full: int, sliding: int, sizes: list[int]) -> None:
    """The smaller type sets the size, unless the larger is less than half again as large."""
    groups = make_groups([*_layers(sliding, "sliding", window=512), *_layers(full, "full")])
    assert [len(group.layers) for group in groups] == sizes


def test_a_page_that_divides_grows_in_tokens_and_one_that_does_not_is_padded() -> None:
    """Pages of all layers end up as large as the largest."""
    doubled, padded, large = (
        *_layers(1, "sliding", page=32768, window=512),
        *_layers(1, "chunked", page=40960),
        *_layers(1, "full"),
    )
    groups = make_groups([doubled, padded, large])
    assert [(g.first.block_size, g.first.page_bytes) for g in groups] == [(32, 65536), (16, 65536), (16, 65536)]


def test_an_mla_page_cannot_be_padded() -> None:
    """A latent cache next to a page that it does not divide is refused, as vLLM refuses it."""
    with pytest.raises(InputError, match="cannot be padded"):
        make_groups([*_layers(1, "mla", page=18432), *_layers(1, "sliding", page=65536, window=512)])


def test_layers_of_one_type_lie_side_by_side() -> None:
    """Full attention layers of different heads share one table, and a block holds all their pages."""
    groups = make_groups([*_layers(2, "full"), *_layers(1, "mla", page=18432)])
    assert [group.bytes_per_block for group in groups] == [2 * 65536 + 18432]


def test_without_the_hybrid_manager_windows_hold_everything() -> None:
    """Local layers are allocated like full attention, so one group remains."""
    options = replace(OPTIONS, disable_hybrid_kv_cache_manager=True)
    pool = size(config("gemma-3-4b-text"), options, GIB)
    assert [len(group.layers) for group in pool.groups] == [34]
    assert pool.blocks_per_request == (2048,)


@pytest.mark.parametrize(
    ("context", "held"), [(1, 1), (16, 1), (17, 2), (4096, 256), (4097, 257), (4111, 257), (4112, 256), (20000, 256)]
)
def test_a_window_gives_back_what_fell_out_of_it(context: int, held: int) -> None:
    """Mistral's 4,096 tokens lie in 256 or 257 blocks, whatever the context."""
    pool = size(config("mistral-7b-v0.1"), OPTIONS, GIB)
    assert held_blocks(pool, OPTIONS, context) == held


def test_async_scheduling_doubles_the_tokens_in_flight() -> None:
    """A window keeps its tokens and those of every batch that runs."""
    lazy = size(config("mistral-7b-v0.1"), OPTIONS, GIB)
    eager = size(config("mistral-7b-v0.1"), replace(OPTIONS, async_scheduling=True), GIB)
    assert lazy.blocks_per_request == (-(-(4095 + 2048) // 16) + 1,)
    assert eager.blocks_per_request == (-(-(4095 + 2 * 2048) // 16) + 1,)


def test_the_engines_inflated_need_is_reproduced() -> None:
    """(8192 + 5 × 2113) blocks of 10 layers with 256 KiB pages are 45.79 GiB; with 4,161 a window, 70.79 GiB."""
    layers = [*_layers(10, "full", page=262144), *_layers(50, "sliding", page=262144, window=1025)]
    for in_flight, need in ((2, 45.79), (4, 70.79)):
        options = EngineOptions(max_model_len=131072, max_num_batched_tokens=16384, pipeline_parallel_size=in_flight)
        groups = make_groups(layers)
        blocks = sum(group.first.max_blocks(options) for group in groups)
        assert blocks * groups[0].bytes_per_block / GIB == pytest.approx(need, abs=0.03)


def test_a_hybrid_request_holds_fixed_blocks_and_blocks_per_token() -> None:
    """A Qwen3-Next request holds one block in each of three state groups, and one per 1,056 tokens."""
    pool = size(config("qwen3-next-80b"), OPTIONS, 32 * GIB)
    demand = request_demand(pool, OPTIONS)
    assert set(demand.groups) == {GroupDemand(1, 1, 3), GroupDemand(1056, None, 1)}
    assert [demand.blocks(n) for n in (1, 1056, 1057, 8192)] == [4, 4, 5, 11]


def test_small_requests_fill_a_hybrid_by_count_not_by_tokens() -> None:
    """Eight short requests take a far larger share of a hybrid's pool than their tokens suggest."""
    pool = size(config("qwen3-next-80b"), replace(OPTIONS, num_gpu_blocks_override=512), 0)
    demand = request_demand(pool, OPTIONS)
    used = 8 * demand.blocks(200) / pool.usable_blocks
    by_tokens = 8 * 200 / pool.kv_cache_size_tokens
    assert used > 10 * by_tokens


def test_usage_counts_blocks_not_tokens() -> None:
    """Two requests of 17 tokens hold two blocks each, though 17 of 32 slots are filled."""
    pool = size(config("opt-125m"), replace(OPTIONS, max_model_len=2048, num_gpu_blocks_override=7), 0)
    held = request_demand(pool, OPTIONS).blocks(17)
    assert held == 2
    assert 2 * held / pool.usable_blocks == pytest.approx(0.667, abs=0.001)


def test_a_request_that_fits_the_model_but_not_the_pool_is_seen() -> None:
    """205,000 tokens against a pool of 0.77 of that: it would wait for ever."""
    pool = size(config("llama-3.1-8b"), EngineOptions(max_model_len=131072), 12 * GIB)
    assert pool.max_concurrency < 1
    assert not pool.fits


def test_the_state_page_sets_the_attention_block() -> None:
    """Attention blocks grow in kernel steps until their page holds a state, which is padded to it."""
    pool = size(config("jamba-1.5-mini"), OPTIONS, GIB)
    state, attention = pool.groups[0].first, pool.groups[-1].first
    assert (state.kind, attention.kind) == ("state", "full")
    assert state.page_bytes == attention.page_bytes == 144 * 4096
    half = size(config("jamba-1.5-mini"), replace(OPTIONS, mamba_ssm_cache_dtype="auto"), GIB)
    assert half.block_size < pool.block_size


def test_without_prefix_caching_a_state_is_one_block() -> None:
    """No state is kept for others, so a request holds one block a group whatever its length."""
    options = replace(OPTIONS, enable_prefix_caching=False)
    pool = size(config("jamba-1.5-mini"), options, GIB)
    assert pool.blocks_per_request[0] == 1
    assert held_blocks(pool, options, 145) == 7 + 2


def test_speculation_lengthens_the_state_and_adds_blocks() -> None:
    """A draft of three tokens lengthens the convolution's memory and keeps three more states."""
    options = replace(OPTIONS, speculative_tokens=3)
    pool = size(config("qwen3-next-80b"), options, 32 * GIB)
    assert pool.blocks_per_request[0] == 2 + 3
    assert pool.bytes_per_block >= size(config("qwen3-next-80b"), OPTIONS, GIB).bytes_per_block


def test_decode_context_parallelism_multiplies_tokens() -> None:
    """Each rank holds its share of a sequence, so the same blocks hold eight times the tokens."""
    one = size(config("deepseek-v3-tp8"), replace(OPTIONS, tensor_parallel_size=8), 40 * GIB)
    many = replace(OPTIONS, tensor_parallel_size=8, decode_context_parallel_size=8)
    eight = size(config("deepseek-v3-tp8"), many, 40 * GIB)
    assert eight.num_gpu_blocks == one.num_gpu_blocks
    assert eight.kv_cache_size_tokens == 8 * one.kv_cache_size_tokens
    assert held_blocks(eight, many, 129) == 2


def test_mla_is_whole_on_every_rank() -> None:
    """Tensor parallelism does not split a latent vector."""
    sizes = {
        size(config("deepseek-v3-tp8"), replace(OPTIONS, tensor_parallel_size=n), GIB).bytes_per_block for n in (1, 8)
    }
    assert sizes == {61 * 16 * 576 * 2}


def test_a_sparse_indexer_keeps_keys_beside_the_latent() -> None:
    """DeepSeek V3.2 stores 132 bytes of index keys per token and layer, in the same block."""
    sparse = {**config("deepseek-v3-tp8"), "model_type": "deepseek_v32", "index_topk": 2048, "index_head_dim": 128}
    pool = size(sparse, OPTIONS, GIB)
    assert pool.bytes_per_block == 61 * 16 * (576 * 2 + 132)
    assert len(pool.groups) == 1


@pytest.mark.parametrize(("heads", "ranks", "each"), [(8, 4, 2), (8, 8, 1), (8, 16, 1), (1, 8, 1)])
def test_kv_heads_are_split_or_replicated(heads: int, ranks: int, each: int) -> None:
    """Every rank holds at least one head."""
    assert kv_heads_per_rank(heads, ranks) == each


@pytest.mark.parametrize(("heads", "ranks"), [(8, 3), (3, 8)])
def test_heads_that_do_not_divide_are_refused(heads: int, ranks: int) -> None:
    """The engine neither splits a head nor replicates unevenly."""
    with pytest.raises(InputError, match="tensor-parallel"):
        kv_heads_per_rank(heads, ranks)


@pytest.mark.parametrize(
    ("layers", "stages", "shares"), [(32, 2, [16, 16]), (33, 2, [17, 16]), (34, 4, [8, 9, 9, 8]), (35, 4, [9, 9, 9, 8])]
)
def test_the_last_stage_gets_no_remainder(layers: int, stages: int, shares: list[int]) -> None:
    """Layers that do not divide go to the stages before the last, which has the head already."""
    assert stage_shares(layers, stages) == shares


@pytest.mark.parametrize(
    ("dtype", "cell"),
    [
        ("auto", 512),
        ("fp8", 256),
        ("fp8_e5m2", 256),
        ("float32", 1024),
        ("int8_per_token_head", 264),
        ("int4_per_token_head", 136),
        ("nvfp4", 144),
    ],
)
def test_bytes_of_one_head_of_one_token(dtype: str, cell: int) -> None:
    """K and V of 128 elements each, with the scales a dtype carries."""
    assert attention_cell_bytes(dtype, "bfloat16", 128, 128) == cell


@pytest.mark.parametrize(
    ("dtype", "cell"), [("auto", 1152), ("fp8", 576), ("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352), ("float32", 2304)]
)
def test_bytes_of_one_latent_vector(dtype: str, cell: int) -> None:
    """576 elements, or the fixed size of a packed layout."""
    assert latent_cell_bytes(dtype, "bfloat16", 576) == cell


def test_unknown_dtypes_are_named() -> None:
    """A dtype that does not exist is refused with those that do."""
    with pytest.raises(InputError, match="int3"):
        element_bytes("int3")
    with pytest.raises(InputError, match="int3"):
        attention_cell_bytes("int3", "bfloat16", 128, 128)


def test_states_that_do_not_divide_over_ranks_are_refused() -> None:
    """A state's heads are whole."""
    state = StateShape("mamba2", 128, 4, 7, 16, 16, 1)
    with pytest.raises(InputError, match="do not divide"):
        state.bytes_per_rank(replace(OPTIONS, tensor_parallel_size=2), "bfloat16")


def test_layers_that_share_a_cache_keep_none() -> None:
    """Gemma's last layers read the cache of earlier ones."""
    shared = {**config("gemma-4-text"), "num_kv_shared_layers": 10, "per_layer_config": None}
    pool = size(shared, OPTIONS, GIB)
    assert sum(len(group.layers) for group in pool.groups) == 20
    kinds = read_architecture(shared).caches
    assert all(isinstance(cache, Attention) and cache.shared for layer in kinds[20:] for cache in layer)


def test_the_configs_of_old_checkpoints_have_the_same_layers() -> None:
    """A Gemma-3 file without layer_types, or with nothing but its type, follows the pattern of its type."""
    whole = config("gemma-3-4b-text")
    bare = {key: value for key, value in whole.items() if key not in ("layer_types", "_sliding_window_pattern")}
    assert size(bare, OPTIONS, GIB).groups == size(whole, OPTIONS, GIB).groups


def test_a_draft_layer_takes_its_share_of_the_pool() -> None:
    """Llama-3.1 8B with an EAGLE layer has 33 layers in the pool: 51.63 GiB are about 410,128 tokens."""
    options = EngineOptions(131072, draft_layers=1, speculative_tokens=3, speculative_method="eagle")
    pool = size(config("llama-3.1-8b"), options, int(51.63 * GIB))
    assert pool.bytes_per_block == 33 * 65536
    assert pool.kv_cache_size_tokens == pytest.approx(410128, rel=0.005)


def test_a_draft_writes_ahead() -> None:
    """With three tokens drafted, the slot of the third decides."""
    options = replace(OPTIONS, draft_layers=1, speculative_tokens=3, speculative_method="eagle")
    pool = size(config("llama-3.1-8b"), options, GIB)
    assert [held_blocks(pool, options, n) for n in (13, 14)] == [1, 2]


def test_a_draft_of_a_windowed_model_looks_back_at_everything() -> None:
    """Its layer joins full attention, and gpt-oss becomes 13 and 12 layers in groups of 13."""
    options = replace(OPTIONS, draft_layers=1, speculative_tokens=3, speculative_method="eagle3")
    pool = size(config("gpt-oss-20b"), options, GIB)
    assert [len(group.layers) for group in pool.groups] == [12, 13]
    assert pool.bytes_per_block == 13 * 32768


def test_decode_context_parallelism_is_refused_where_vllm_refuses_it() -> None:
    """Windows cannot be split over ranks, and the ranks must divide."""
    with pytest.raises(InputError, match="sliding windows"):
        size(config("gpt-oss-20b"), replace(OPTIONS, tensor_parallel_size=8, decode_context_parallel_size=2), GIB)
    with pytest.raises(InputError, match="does not divide"):
        size(config("llama-3.1-8b"), replace(OPTIONS, tensor_parallel_size=8, decode_context_parallel_size=3), GIB)


def test_layers_can_keep_their_dtype() -> None:
    """A layer skipped by index keeps two bytes an element beside FP8 layers of one."""
    options = replace(OPTIONS, kv_cache_dtype="fp8", kv_cache_dtype_skip_layers=("0", "31"))
    assert size(config("llama-3.1-8b"), options, GIB).bytes_per_block == 30 * 32768 + 2 * 65536
