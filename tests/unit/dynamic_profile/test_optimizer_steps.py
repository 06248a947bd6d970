"""Steps of scripts that know nothing of a profiler, with torch's own optimizers."""

from __future__ import annotations

import threading

import pytest

torch = pytest.importorskip("torch", reason="optimizers are torch's")

from stepscope.dynamic_profile import optimizer_steps  # noqa: E402


@pytest.fixture
def counted(monkeypatch):
    """Calls of `made` and `count`; torch's optimizers are as before when the test is over."""
    calls = []
    Optimizer = torch.optim.Optimizer
    before = {kind: vars(kind).get("step") for kind in optimizer_steps._kinds(Optimizer)}
    monkeypatch.setattr(Optimizer, "_patch_step_function", Optimizer._patch_step_function)
    yield lambda: optimizer_steps.watch(lambda: calls.append("made"), lambda: calls.append("count")) and calls
    for kind, step in before.items():
        if step is not None:
            kind.step = step
        elif "step" in vars(kind):
            del kind.step


def weights():
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    return [weight]


def test_optimizers_made_before_and_after(counted):
    early = torch.optim.SGD(weights(), lr=0.1)
    calls = counted()
    late = torch.optim.Adam(weights())
    assert calls == ["made"]
    for _ in range(3):
        early.step()
        late.step()
    assert calls.count("count") == 3


def test_steps_within_steps_are_one(counted):
    calls = counted()

    class Own(torch.optim.SGD):
        def step(self, closure=None):
            self.inner.step()
            return super().step(closure)

    torch.optim.SGD(weights(), lr=0.1)  # so that the step of the class above counts by itself
    own = Own(weights(), lr=0.1)
    own.inner = torch.optim.Adam(weights())
    own.step()
    assert calls.count("count") == 1


def test_steps_of_other_threads_are_not_inside_one(counted):
    calls = counted()

    class Waiting(torch.optim.SGD):
        def step(self, closure=None):
            if threading.current_thread() is threading.main_thread():
                other = threading.Thread(target=late.step)
                other.start()
                other.join()
            return super().step(closure)

    torch.optim.SGD(weights(), lr=0.1)
    first, late = Waiting(weights(), lr=0.1), torch.optim.SGD(weights(), lr=0.1)
    first.step()  # the other thread's step ends first, so that one leads
    assert calls.count("count") == 1
    for _ in range(3):
        late.step()
    assert calls.count("count") == 4


def test_the_leader_that_is_gone_is_followed_by_the_next(counted):
    calls = counted()
    leader = torch.optim.SGD(weights(), lr=0.1)
    leader.step()
    del leader
    for number in range(3):
        torch.optim.SGD(weights(), lr=0.1).step()
        assert calls.count("count") == number + 2


def test_a_step_that_fails_is_none_and_its_exception_is_the_scripts(counted):
    calls = counted()

    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise ValueError("mine")

    failing, sound = Failing(weights(), lr=0.1), torch.optim.SGD(weights(), lr=0.1)
    with pytest.raises(ValueError, match="mine"):
        failing.step()
    assert "count" not in calls
    sound.step()
    assert calls.count("count") == 1


def test_what_else_hangs_on_step_works_on(counted):
    calls = counted()
    optimizer = torch.optim.SGD(weights(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    hooked = []
    optimizer.register_step_post_hook(lambda *_: hooked.append(calls.count("count")))
    losses = []
    optimizer.step(lambda: losses.append(1) or torch.tensor(1.0))
    scheduler.step()  # warns when it finds that no step came before
    torch.amp.GradScaler("cpu", enabled=False).step(optimizer)
    assert (calls.count("count"), hooked, losses) == (2, [0, 1], [1])


def test_two_who_count_both_count(counted):
    """PROF_CONFIG_PATH together with `stepscope run --profile`."""
    early = torch.optim.SGD(weights(), lr=0.1)
    calls = counted()
    again = counted()
    early.step()
    assert again is calls
    assert calls.count("count") == 2
    torch.optim.Adam(weights()).step()
    assert calls.count("made") >= 2
