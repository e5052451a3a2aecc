"""What vLLM printed when it started, by version and by outcome."""

V1_TWO_LINES = """\
INFO 01-01 10:00:00 [core.py:134] Initializing a V1 LLM engine (v0.10.1.1) with config: \
model='Qwen/Qwen2-7B-Instruct', \
speculative_config=None, dtype=torch.bfloat16, max_seq_len=16384, tensor_parallel_size=2, pipeline_parallel_size=1, \
enforce_eager=False, kv_cache_dtype=auto
(VllmWorker rank=0) INFO Model loading took 7.1217 GiB and 3.1 seconds
(VllmWorker rank=1) INFO [gpu_model_runner.py:2007] Model loading took 7.1217 GiB and 3.3 seconds
(VllmWorker rank=0) INFO [gpu_worker.py:276] Available KV cache memory: 11.03 GiB
(VllmWorker rank=1) INFO [gpu_worker.py:276] Available KV cache memory: 11.01 GiB
INFO [kv_cache_utils.py:849] GPU KV cache size: 412,944 tokens
INFO [kv_cache_utils.py:853] Maximum concurrency for 16,384 tokens per request: 25.20x
INFO [kv_cache_utils.py:849] GPU KV cache size: 412,944 tokens
INFO [gpu_model_runner.py:2708] Graph capturing finished in 20 secs, took 0.65 GiB
"""
V1_ONE_LINE = """\
INFO [core.py:134] Initializing a V1 LLM engine (v0.32.0) with config: model='m', max_seq_len=8192, enforce_eager=False
INFO Available KV cache memory: 16.00 GiB
INFO GPU KV cache size: 131,072 tokens, Maximum concurrency for 8,192 tokens per request: 16.00x
"""
V0 = """\
INFO the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.90) = 21.22GiB
INFO model weights take 14.99GiB; non_torch_memory takes 0.35GiB; PyTorch activation peak memory takes 2.07GiB; \
the rest of the memory reserved for KV Cache is 3.81GiB.
INFO # GPU blocks: 1952, # CPU blocks: 2048
INFO Maximum concurrency for 20000 tokens per request: 1.56x
"""
REFUSED = """\
INFO [core.py:134] Initializing a V1 LLM engine (v0.29.1) with config: model='m', max_seq_len=196608
ValueError: To serve at least one request with the model's max seq len (196608), (23.25 GiB KV cache is \
needed, which is \
larger than the available KV cache memory (22.5 GiB). Based on the available memory, the estimated \
maximum model length is \
190272. Try increasing `gpu_memory_utilization`
"""
NEGATIVE = """\
INFO model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes 1.42GiB; \
the rest of the memory reserved for KV Cache is -1.05GiB.
ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.
"""
USAGE = (
    "INFO Free memory on device (44.0/44.42 GiB) on startup. Desired GPU memory utilization is (0.9, 39.98 GiB). "
    "Actual usage is 27.72 GiB for weight, 1.4 GiB for peak activation, 0.21 GiB for non-torch memory, "
    "and 3.45 GiB for CUDAGraph memory.\n"
)
