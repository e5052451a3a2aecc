"""The arithmetic of the KV cache: pure functions, no clock, no network.

From a parsed config.json and vLLM's flags to the pool, and to what one request holds of it:

>>> from exporter.kv.options import EngineOptions
>>> from exporter.kv.sizing import held_blocks, request_demand, size
>>> llama = {"model_type": "llama", "num_key_value_heads": 8, "torch_dtype": "bfloat16"}
>>> options = EngineOptions(max_model_len=8192)
>>> pool = size(llama, options, 16 * 2**30)
>>> pool.num_gpu_blocks, pool.bytes_per_block, pool.kv_cache_size_tokens, pool.max_concurrency
(8192, 2097152, 131072, 16.0)
>>> held_blocks(pool, options, 5000), request_demand(pool, options).blocks(5000)
(313, 313)
"""
