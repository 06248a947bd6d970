"""The fused operators of torch_npu give what plain formulas give, forwards and backwards, in one kernel each."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from npu_process import on_npu  # noqa: E402
from torch.nn import functional  # noqa: E402


def attention(q, k, v, *, hidden=None, pse=0.0, scale=0.5):
    """Of batch, head, position, channel."""
    scores = q @ k.transpose(-1, -2) * scale + pse
    return torch.softmax(scores if hidden is None else scores.masked_fill(hidden, -float("inf")), -1) @ v


def rotated(x):
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def turned(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def rms(x, gamma):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * gamma


def swiglu(x, dim=-1):
    gate, value = x.chunk(2, dim)
    return functional.silu(gate) * value


UPPER = torch.ones(6, 6, dtype=torch.bool).triu(1)
HALF = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(3)) < 0.3
PAIRS = torch.arange(6) // 3

# name -> shapes of the inputs that learn, the operator, the plain formula
FORMULAS = {
    "swiglu": ([(4, 6, 8)], lambda n, x: n.npu_swiglu(x), swiglu),
    "swiglu-dim": ([(4, 6, 8)], lambda n, x: n.npu_swiglu(x, dim=1), lambda x: swiglu(x, 1)),
    "silu": ([(5, 7)], lambda n, x: n.npu_silu(x), functional.silu),
    "mish": ([(5, 7)], lambda n, x: n.npu_mish(x), functional.mish),
    "fast_gelu": ([(5, 7)], lambda n, x: n.fast_gelu(x), lambda x: x * torch.sigmoid(1.702 * x)),
    "masked-softmax": (
        [(2, 1, 6, 6)],
        lambda n, x: n.npu_scaled_masked_softmax(x, HALF.to(x.device), 0.5),
        lambda x: torch.softmax((x * 0.5).masked_fill(HALF, -10000.0), -1),
    ),
    "rms_norm": ([(2, 6, 8), (8,)], lambda n, x, g: n.npu_rms_norm(x, g)[0], rms),
    "add_rms_norm": (
        [(2, 6, 8), (2, 6, 8), (8,)],
        lambda n, a, b, g: torch.cat(n.npu_add_rms_norm(a, b, g)[::2]),
        lambda a, b, g: torch.cat([rms(a + b, g), a + b]),
    ),
    "rotary-half": (
        [(2, 6, 3, 8), (1, 6, 1, 8), (1, 6, 1, 8)],
        lambda n, x, c, s: n.npu_rotary_mul(x, c, s),
        lambda x, c, s: x * c + rotated(x) * s,
    ),
    "rotary-interleave": (
        [(2, 6, 3, 8), (1, 6, 1, 8), (1, 6, 1, 8)],
        lambda n, x, c, s: n.npu_rotary_mul(x, c, s, "interleave"),
        lambda x, c, s: x * c + turned(x) * s,
    ),
    "transpose-first": (
        [(2, 6, 3, 8)],
        lambda n, x: n.npu_confusion_transpose(x, [0, 2, 1, 3], [2, 3, 48], True),
        lambda x: x.permute(0, 2, 1, 3).reshape(2, 3, 48),
    ),
    "transpose-last": (
        [(2, 6, 24)],
        lambda n, x: n.npu_confusion_transpose(x, [0, 2, 1, 3], [2, 6, 3, 8], False),
        lambda x: x.reshape(2, 6, 3, 8).permute(0, 2, 1, 3),
    ),
    "attention": (
        [(2, 4, 6, 8)] * 3,
        lambda n, q, k, v: n.npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.5)[0],
        attention,
    ),
    "attention-mask-and-bias": (
        [(2, 4, 6, 8)] * 3 + [(1, 4, 6, 6)],
        lambda n, q, k, v, p: n.npu_fusion_attention(q, k, v, 4, "BNSD", pse=p, atten_mask=HALF.to(q.device), scale=0.5)[0],
        lambda q, k, v, p: attention(q, k, v, hidden=HALF, pse=p),
    ),
    "attention-causal-BSH-shared-heads": (
        [(2, 6, 32), (2, 6, 16), (2, 6, 16)],
        lambda n, q, k, v: n.npu_fusion_attention(q, k, v, 4, "BSH", scale=0.5, sparse_mode=2, atten_mask=UPPER.to(q.device))[0],
        lambda q, k, v: attention(
            q.view(2, 6, 4, 8).transpose(1, 2),
            *(x.view(2, 6, 2, 8).transpose(1, 2).repeat_interleave(2, 1) for x in (k, v)),
            hidden=UPPER,
        ).transpose(1, 2).flatten(2),
    ),
    "attention-SBH-corner": (
        [(3, 2, 32), (6, 2, 32), (6, 2, 32)],
        lambda n, q, k, v: n.npu_fusion_attention(q, k, v, 4, "SBH", scale=0.5, sparse_mode=3)[0],
        lambda q, k, v: attention(
            *(x.view(-1, 2, 4, 8).permute(1, 2, 0, 3) for x in (q, k, v)), hidden=UPPER[3:]
        ).permute(2, 0, 1, 3).flatten(2),
    ),
    "attention-sequences-in-one": (
        [(6, 4, 8)] * 3,
        lambda n, q, k, v: n.npu_fusion_attention(
            q, k, v, 4, "TND", scale=0.5, actual_seq_qlen=[3, 6], actual_seq_kvlen=[3, 6]
        )[0],
        lambda q, k, v: attention(*(x.transpose(0, 1) for x in (q, k, v)), hidden=PAIRS[:, None] != PAIRS).transpose(0, 1),
    ),
    "prompt-attention-BSND": (
        [(2, 6, 4, 8)] * 3,
        lambda n, q, k, v: n.npu_prompt_flash_attention(q, k, v, num_heads=4, input_layout="BSND", scale_value=0.5),
        lambda q, k, v: attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2),
    ),
}  # fmt: skip


def torch_npu():
    from stepscope import compat

    compat.install()
    import torch_npu

    return torch_npu


@on_npu
def test_values_and_gradients_are_those_of_the_formulas():
    names, generator = torch_npu(), torch.Generator().manual_seed(0)
    for name, (shapes, operator, formula) in FORMULAS.items():
        plain = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
        for _ in range(2):  # learned, then queued
            ours = [x.detach().to("npu").requires_grad_() for x in plain]
            out = operator(names, *ours)
            upstream = torch.randn(out.shape, generator=generator)
            found = torch.autograd.grad(out, ours, upstream.to("npu"))
        expected = formula(*plain)
        torch.testing.assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
        for number, (gradient, right) in enumerate(zip(found, torch.autograd.grad(expected, plain, upstream), strict=True)):
            torch.testing.assert_close(
                gradient.cpu(), right, rtol=1e-4, atol=1e-5, msg=lambda text, at=(name, number): f"{at}: {text}"
            )


@on_npu
def test_each_is_one_kernel():
    from stepscope.simnpu.records import KERNEL, Records

    names = torch_npu()
    x, gamma = torch.randn(2, 6, 8, device="npu", requires_grad=True), torch.ones(8, device="npu")
    heads = torch.randn(2, 4, 6, 8, device="npu")

    def calls():
        torch.autograd.grad(names.npu_rms_norm(x, gamma)[0].sum(), x)
        names.npu_fusion_attention(heads, heads, heads, 4, "BNSD")

    calls()  # learned
    records = Records()
    records.start()
    calls()
    torch.npu.synchronize()
    records.stop()
    described = [records.description(task["description"]) for task in records.tasks() if task["kind"] == KERNEL]
    kernels = [one["operator"] for one in described]
    assert kernels == [
        "npu::npu_rms_norm",
        "aten::sum.dim_IntList",
        "aten::fill_.Scalar",  # the gradient that backward() begins with
        "npu::npu_rms_norm_backward",
        "npu::npu_fusion_attention_v1",
    ]
    assert described[0]["name"] == "aclnnRmsNorm_RmsNorm_RmsNorm"
    assert (described[-1]["type"], described[-1]["core"]) == ("FlashAttentionScore", "MIX_AIC")
    assert described[-1]["flops"] == 2 * (2 * 2 * 4 * 6 * 6 * 8)  # two products of matrices


@on_npu
def test_dropout_of_attention_repeats_with_its_seed():
    names = torch_npu()
    q = torch.randn(2, 4, 6, 8, device="npu")
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        out, *_rest, size = names.npu_fusion_attention(q, q, q, 4, "BNSD", scale=0.5, keep_prob=0.5)
        assert size == 2 * 4 * 6 * 6
        runs.append(out.cpu())
    assert torch.equal(runs[0], runs[1])
    for one, other in itertools.combinations([runs[0], runs[2], attention(*[q.cpu()] * 3)], 2):
        assert not torch.allclose(one, other)
