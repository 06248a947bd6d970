"""Models on the simulated NPU learn exactly what they learn on the CPU."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from npu_process import on_npu  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

STEPS = 4


class Attention(nn.Module):
    """A causal block that calls the fused kernel itself."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = self.mix(x).view(2, 5, 3, 4, 4).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class LastOfRnn(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = getattr(nn, kind)(8, 16, num_layers=2, batch_first=True, **options)

    def forward(self, x):
        return self.rnn(x)[0]


def tokens():
    return torch.randint(0, 10, (4, 6))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), lambda: torch.randn(5, 8)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5)
        ),
        lambda: torch.randn(2, 3, 8, 8),
    ),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, groups=1), lambda: torch.randn(2, 3, 8, 8)),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True),
        lambda: torch.randn(2, 5, 16),
    ),
    "attention": (Attention, lambda: torch.randn(2, 5, 16)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(10, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)), tokens),
}
RNNS = {
    "lstm": lambda: LastOfRnn("LSTM"),
    "gru": lambda: LastOfRnn("GRU", bidirectional=True),
    "rnn": lambda: LastOfRnn("RNN", nonlinearity="relu", bias=False),
    "lstm-projected": lambda: LastOfRnn("LSTM", proj_size=4),
}


def losses_of(model, batch, optimizer="AdamW", **options):
    optimizer = getattr(torch.optim, optimizer)(model.parameters(), lr=0.05, **options)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(step)  # the same dropout everywhere
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def trained_on_both(make, batch, **options):
    torch.manual_seed(1)
    model, data = make(), batch()
    other = copy.deepcopy(model).to("npu")
    cpu = losses_of(model, data, **options)
    npu = losses_of(other, data.to("npu"), **options)
    return cpu, npu, model, other


@pytest.mark.parametrize("name", MODELS)
@on_npu
def test_losses_and_weights_are_those_of_the_cpu(name):
    make, batch = MODELS[name]
    cpu, npu, model, other = trained_on_both(make, batch, foreach=True)
    assert npu == cpu
    assert len(set(cpu)) == STEPS
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs.cpu())


@pytest.mark.parametrize("name", RNNS)
@on_npu
def test_recurrent_networks_use_fused_cells(name):
    # The CPU takes other kernels for these, so the last bit may differ, which Adam would turn into a whole step.
    cpu, npu, model, other = trained_on_both(RNNS[name], lambda: torch.randn(2, 5, 8), optimizer="SGD")
    assert npu == pytest.approx(cpu, rel=1e-5)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.allclose(ours, theirs.cpu(), atol=1e-5)


@pytest.mark.parametrize(
    ("optimizer", "options"),
    [
        ("SGD", {"momentum": 0.9}),
        ("SGD", {"fused": True}),
        ("Adam", {"foreach": False}),
        ("Adam", {"fused": True}),
        ("AdamW", {"foreach": True}),
        ("AdamW", {"fused": True}),
        ("RMSprop", {}),
        ("Adagrad", {"fused": True}),
    ],
)
@on_npu
def test_optimizers(optimizer, options):
    torch.manual_seed(0)
    model, data = nn.Linear(8, 8), torch.randn(4, 8)
    other = copy.deepcopy(model).npu()
    for one, batch in ((model, data), (other, data.npu())):
        steps = getattr(torch.optim, optimizer)(one.parameters(), lr=0.01, **options)
        for _ in range(STEPS):
            steps.zero_grad()
            one(batch).square().sum().backward()
            steps.step()
    assert torch.equal(model.weight, other.weight.cpu())


@on_npu
def test_mixed_precision_with_a_scaled_loss():
    torch.manual_seed(0)
    model, data = MODELS["embedding"][0](), tokens()
    other = copy.deepcopy(model).npu()
    losses = {}
    for device, one, batch in (("cpu", model, data), ("npu", other, data.npu())):
        optimizer, scaler = torch.optim.AdamW(one.parameters(), lr=0.01, foreach=True), torch.amp.GradScaler(device, init_scale=8.0)
        losses[device] = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = one(batch).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses[device].append(loss.item())
        assert scaler.get_scale() == 8.0
    assert losses["npu"] == losses["cpu"]
    assert len(set(losses["cpu"])) == STEPS
    assert torch.equal(model[0].weight, other[0].weight.cpu())


@on_npu
def test_dropout_does_not_depend_on_what_the_host_draws():
    x, masks = torch.ones(4096, device="npu"), []
    for draws in (0, 3):
        torch.manual_seed(0)
        functional.dropout(x, 0.5)
        for _ in range(draws):
            torch.rand(7)
        masks.append(functional.dropout(x, 0.5).cpu())
    assert torch.equal(*masks)
    assert 0 < masks[0].count_nonzero() < 4096
