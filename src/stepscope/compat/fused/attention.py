# SPDX-License-Identifier: Apache-2.0
"""Attention in one kernel, with the layouts, masks and results of torch_npu's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stepscope.compat.fused.operator import define, differentiable, sum_to_shape

_WIDE = 2147483647
_REPEATED = 8  # how often softmax_max and softmax_sum repeat each value, as on hardware
_MASKED = -40000.0
_POSITIONS = {"BSH": 1, "SBH": 0, "BSND": 1, "BNSD": 2, "TND": 0}


@dataclass(frozen=True)
class _Form:
    """How the tensors are laid out, and which queries see which keys."""

    head_num: int
    input_layout: str
    scale: float
    keep_prob: float
    pre_tockens: int
    next_tockens: int
    sparse_mode: int
    seed: int
    seq_q: list[int] | None
    seq_kv: list[int] | None

    def heads(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        """The tensor as batch, head, position, channel."""
        if self.input_layout == "BNSD":
            return x
        if self.input_layout == "BSND":
            return x.transpose(1, 2)
        if self.input_layout == "BSH":
            return x.unflatten(-1, (heads, -1)).transpose(1, 2)
        if self.input_layout == "SBH":
            return x.unflatten(-1, (heads, -1)).permute(1, 2, 0, 3)
        if self.input_layout == "TND":
            return x.transpose(0, 1).unsqueeze(0)
        raise ValueError(f"input_layout={self.input_layout!r} is not one of {', '.join(_POSITIONS)}")

    def back(self, x: torch.Tensor) -> torch.Tensor:
        """From batch, head, position, channel to the layout of the inputs."""
        turned = {
            "BNSD": lambda: x,
            "BSND": lambda: x.transpose(1, 2),
            "BSH": lambda: x.transpose(1, 2).flatten(2),
            "SBH": lambda: x.permute(2, 0, 1, 3).flatten(2),
            "TND": lambda: x.squeeze(0).transpose(0, 1),
        }[self.input_layout]()
        return turned.contiguous()

    def key_heads(self, query: torch.Tensor, key: torch.Tensor) -> int:
        """How many heads keys have: fewer than queries where several share one."""
        if self.input_layout in ("BSH", "SBH"):
            return int(key.shape[-1] * self.head_num // query.shape[-1])
        return int(key.shape[1] if self.input_layout in ("BNSD", "TND") else key.shape[2])

    def hidden(self, rows: int, columns: int, mask: torch.Tensor | None) -> torch.Tensor | None:
        """True where a query may not see a key; None if every query sees every key."""
        i, j = torch.arange(rows)[:, None], torch.arange(columns)[None, :]
        hidden: torch.Tensor | None
        if self.sparse_mode in (0, 1):
            hidden = None if mask is None else mask.bool()
            if hidden is not None and self.sparse_mode == 0 and min(self.pre_tockens, self.next_tockens) < max(rows, columns):
                hidden = hidden | (j < i - self.pre_tockens) | (j > i + self.next_tockens)
        elif self.sparse_mode == 2:
            hidden = j > i
        elif self.sparse_mode == 3:
            hidden = j > i + columns - rows
        elif self.sparse_mode == 4:
            corner = i + columns - rows
            hidden = (j < corner - self.pre_tockens) | (j > corner + self.next_tockens)
        else:
            raise ValueError(f"sparse_mode={self.sparse_mode} is not supported by the simulated NPU; use 0 to 4")
        if self.seq_q is None or self.seq_kv is None:
            return hidden
        apart = _segment(self.seq_q, rows)[:, None] != _segment(self.seq_kv, columns)[None, :]
        return apart if hidden is None else hidden | apart

    def kept(self, shape: torch.Size) -> torch.Tensor | None:
        """The scaled dropout mask; the same for one seed, so that the gradient uses it again."""
        if self.keep_prob >= 1:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        return (torch.rand(shape, generator=generator) < self.keep_prob) / self.keep_prob


def _segment(ends: list[int], length: int) -> torch.Tensor:
    """The sequence that each position belongs to, from the ends of the sequences."""
    return torch.searchsorted(torch.tensor(ends), torch.arange(length), right=True)


@dataclass(frozen=True)
class _Weights:
    """Softmax of the scores, and its inputs."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    share: torch.Tensor
    top: torch.Tensor
    total: torch.Tensor
    hidden: torch.Tensor | None


def _weights(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, pse: torch.Tensor | None, mask: torch.Tensor | None, form: _Form
) -> _Weights:
    shared = form.key_heads(query, key)
    q = form.heads(query, form.head_num).float()
    k, v = (form.heads(x, shared).float().repeat_interleave(q.shape[1] // shared, 1) for x in (key, value))
    scores = q @ k.transpose(-1, -2) * form.scale
    if pse is not None:
        scores = scores + pse.float()
    hidden = form.hidden(q.shape[2], k.shape[2], mask)
    if hidden is not None:
        scores = scores.masked_fill(hidden, _MASKED)
    top = scores.amax(-1, keepdim=True)
    powers = torch.exp(scores - top)
    total = powers.sum(-1, keepdim=True)
    return _Weights(q, k, v, powers / total, top, total, hidden)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, pse: torch.Tensor | None, mask: torch.Tensor | None, *form: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    wanted = _Form(*form)
    weights = _weights(query, key, value, pse, mask, wanted)
    kept = wanted.kept(weights.share.shape)
    share = weights.share if kept is None else weights.share * kept
    out = wanted.back(share @ weights.value).to(query.dtype)
    return out, weights.top.repeat(1, 1, 1, _REPEATED), weights.total.repeat(1, 1, 1, _REPEATED)


def _attend_grad(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    pse: torch.Tensor | None,
    mask: torch.Tensor | None,
    *form: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    wanted = _Form(*form)
    weights = _weights(query, key, value, pse, mask, wanted)
    kept = wanted.kept(weights.share.shape)
    upstream = wanted.heads(grad, wanted.head_num).float()
    share = weights.share if kept is None else weights.share * kept
    of_share = upstream @ weights.value.transpose(-1, -2)
    if kept is not None:
        of_share = of_share * kept
    of_scores = weights.share * (of_share - (of_share * weights.share).sum(-1, keepdim=True))
    if weights.hidden is not None:
        of_scores = of_scores.masked_fill(weights.hidden, 0.0)
    shared = wanted.key_heads(query, key)
    of_query = of_scores @ weights.key * wanted.scale
    of_key = of_scores.transpose(-1, -2) @ weights.query * wanted.scale
    of_value = share.transpose(-1, -2) @ upstream
    of_pse = torch.empty(0) if pse is None else sum_to_shape(of_scores, pse)
    of_key, of_value = (x.unflatten(1, (shared, -1)).sum(2) for x in (of_key, of_value))
    return (
        wanted.back(of_query).to(query.dtype),
        wanted.back(of_key).to(key.dtype),
        wanted.back(of_value).to(value.dtype),
        of_pse,
    )


_TENSORS = "Tensor query, Tensor key, Tensor value, Tensor? pse, Tensor? atten_mask"
_FORM = (
    "int head_num, str input_layout, float scale, float keep_prob, int pre_tockens, int next_tockens, int sparse_mode, int seed, "
    "int[]? actual_seq_qlen, int[]? actual_seq_kvlen"
)
_forward = define(f"npu_fusion_attention_v1({_TENSORS}, {_FORM}) -> (Tensor, Tensor, Tensor)", _attend)
_backward = define(
    f"npu_fusion_attention_grad_v1(Tensor grad, {_TENSORS}, {_FORM}) -> (Tensor, Tensor, Tensor, Tensor)", _attend_grad
)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:5])
    ctx.form = inputs[5:]


def _gradients(ctx: Any, grad: torch.Tensor | None, *_of_statistics: torch.Tensor | None) -> tuple[Any, ...]:
    if grad is None:
        return (None,) * (5 + len(ctx.form))
    of_query, of_key, of_value, of_pse = _backward(grad, *ctx.saved_tensors, *ctx.form)
    return of_query, of_key, of_value, None if ctx.saved_tensors[3] is None else of_pse, *[None] * (1 + len(ctx.form))


differentiable("npu_fusion_attention_v1", saves=_keep, backward=_gradients)


def npu_fusion_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    head_num: int,
    input_layout: str,
    pse: torch.Tensor | None = None,
    padding_mask: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _WIDE,
    next_tockens: int = _WIDE,
    inner_precise: int = 0,
    prefix: Any = None,
    actual_seq_qlen: Any = None,
    actual_seq_kvlen: Any = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int, int, int]:
    """Attention for training: its result, the softmax's maxima and sums, and the dropout's seed, offset and size.

    Dropout takes its seed from torch's generator of the CPU, so `torch.manual_seed` makes it repeat.
    """
    seed = int(torch.randint(2**31, ())) if keep_prob < 1 else 0
    form = (head_num, input_layout, scale, keep_prob, pre_tockens, next_tockens, sparse_mode, seed)
    out, top, total = _forward(query, key, value, pse, atten_mask, *form, actual_seq_qlen, actual_seq_kvlen)
    size = math.prod(top.shape[:-1]) * key.shape[_POSITIONS[input_layout]] if keep_prob < 1 else 0
    return out, top, total, query.new_empty(0), seed, 0, size


def npu_prompt_flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    num_heads: int = 1,
    scale_value: float = 1.0,
    input_layout: str = "BSH",
    atten_mask: torch.Tensor | None = None,
    pse_shift: torch.Tensor | None = None,
    pre_tokens: int = _WIDE,
    next_tokens: int = 0,
    sparse_mode: int = 0,
    **_of_hardware: Any,
) -> torch.Tensor:
    """Attention for inference, over whole prompts."""
    if sparse_mode == 0 and atten_mask is not None:
        pre_tokens = next_tokens = _WIDE
    form = (num_heads, input_layout, scale_value, 1.0, pre_tokens, next_tokens, sparse_mode, 0, None, None)
    out: torch.Tensor = _forward(query, key, value, pse_shift, atten_mask, *form)[0]
    return out


def npu_incre_flash_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, num_heads: int = 1, **options: Any
) -> torch.Tensor:
    """Attention for inference, of one new position."""
    return npu_prompt_flash_attention(query, key, value, num_heads=num_heads, **options)


OPERATORS: dict[str, Callable[..., Any]] = {
    "npu_fusion_attention": npu_fusion_attention,
    "npu_prompt_flash_attention": npu_prompt_flash_attention,
    "npu_incre_flash_attention": npu_incre_flash_attention,
}
