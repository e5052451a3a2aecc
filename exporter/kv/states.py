"""State-space and linear-attention layers: a state per request, constant in the context length.

Shapes are those of vLLM's `MambaStateShapeCalculator`: a convolution's last inputs and a recurrent state, both split
over tensor-parallel ranks. Speculative decoding lengthens the convolution's memory by the draft tokens.
"""

from dataclasses import dataclass
from typing import Literal

from exporter.errors import InputError
from exporter.kv.dtypes import element_bytes
from exporter.kv.options import EngineOptions

StateKind = Literal["mamba1", "mamba2", "gated_delta", "delta_kda", "short_conv", "linear"]


@dataclass(frozen=True, slots=True)
class StateShape:
    """The state of one layer of the whole model.

    `conv_dim` channels of `conv_kernel - 1` past inputs; `heads × head_dim × state_dim` elements of recurrent state.
    Mamba2 also has `groups × state_dim` twice among its channels, with the groups extended so that each rank holds
    those of its heads.
    """

    kind: StateKind
    conv_dim: int
    conv_kernel: int
    heads: int
    head_dim: int
    state_dim: int
    groups: int = 0

    def bytes_per_rank(self, options: EngineOptions, model_dtype: str) -> int:
        """Bytes of the state of one request on one rank. Raises `InputError` if ranks do not divide it."""
        conv_bytes, state_bytes = self._dtypes(options, model_dtype)
        tp = options.tensor_parallel_size
        conv = 0
        if self.conv_kernel:
            channels = self.conv_dim
            if self.kind == "mamba2":
                groups = self.groups if self.groups % tp == 0 else tp
                channels += 2 * groups * self.state_dim
            past = self.conv_kernel - 1
            if self.kind in ("mamba2", "gated_delta", "delta_kda"):
                past += options.speculative_tokens
            conv = _divided(channels, tp, "convolution channels") * past
        state = _divided(self.heads, tp, "state heads") * self.head_dim * self.state_dim if self.heads else 0
        return conv * conv_bytes + state * state_bytes

    def _dtypes(self, options: EngineOptions, model_dtype: str) -> tuple[int, int]:
        cache = model_dtype if options.mamba_cache_dtype == "auto" else options.mamba_cache_dtype
        conv = element_bytes(cache)
        if self.kind in ("linear", "short_conv"):
            return conv, conv
        if options.mamba_ssm_cache_dtype != "auto":
            return conv, element_bytes(options.mamba_ssm_cache_dtype)
        return conv, 4 if self.kind == "delta_kda" else conv

    @property
    def checkpoint_blocks(self) -> int:
        """Blocks kept for a prefill checkpoint beside the running state: Mamba2 exports one inside a chunk."""
        return 1 if self.kind == "mamba2" else 0


def _divided(value: int, ranks: int, what: str) -> int:
    if value % ranks:
        raise InputError(
            f"{value} {what} do not divide over {ranks} tensor-parallel ranks; choose a divisor of {value}"
        )
    return value // ranks
