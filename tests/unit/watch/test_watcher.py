"""Steps that are followed: what each waits for, what makes an outlier, and that nothing reaches the job."""

from __future__ import annotations

import gc
import os
import sys

import pytest

from stepscope import watch
from stepscope.collect import active
from stepscope.formats.ring import layout
from stepscope.formats.ring.read import read_ring
from stepscope.watch import phases, watcher
from stepscope.watch.settings import Settings, parse
from stepscope.watch.watcher import Watcher

MS = 1_000_000


class Clock:
    """Time passes only where a test says so."""

    def __init__(self):
        self.ns = 10**9

    def __call__(self):
        return self.ns

    def sleep(self, ms):
        self.ns += int(ms * MS)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(watcher, "_now", made)
    monkeypatch.setattr(phases, "_now", made)
    return made


@pytest.fixture
def watched(tmp_path, clock):
    made = Watcher(Settings(record=0, rings=str(tmp_path / "rings")))
    made.open()
    yield made
    made.stop()


def steps(made, clock, count, ms=10):
    for _ in range(count):
        clock.sleep(ms)
        made.step()


def rows(made):
    made.digest()
    return read_ring(made.ring_path).rows


def test_each_step_but_the_first_is_a_row(watched, clock):
    steps(watched, clock, 5)
    found = rows(watched)
    assert found["step"].tolist() == [1, 2, 3, 4]
    assert (found["end"] - found["start"]).tolist() == [10 * MS] * 4


def test_a_slow_step_is_an_outlier(watched, clock):
    steps(watched, clock, 60)
    steps(watched, clock, 1, ms=50)
    steps(watched, clock, 3)
    assert [int(row["step"]) for row in rows(watched) if row["flags"] & layout.OUTLIER] == [60]
    assert rows(watched)["flags"][-1] >> layout.LIMIT_SHIFT == 15 * MS


def test_what_a_step_waits_for(watched, clock):
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __init__(self, ms):
            self.ms = ms

        def __len__(self):
            return 50

        def __getitem__(self, number):
            clock.sleep(self.ms)
            return number

    train, evaluation = iter(DataLoader(Slow(3))), DataLoader(Slow(7))

    class Weights:
        def __reduce__(self):
            clock.sleep(20)
            return (int, ())

    def loop(number):
        next(train)
        if number == 3:
            torch.save({"weights": Weights()}, os.devnull)
        clock.sleep(10)
        watched.step()
        if number == 5:
            for _ in evaluation:
                pass

    gc.disable()
    try:
        for number in range(8):
            loop(number)
    finally:
        gc.enable()
    found = rows(watched)
    assert found["data_wait"].tolist() == [3 * MS] * 7
    assert found["checkpoint"].tolist() == [0, 0, 20 * MS, 0, 0, 0, 0]
    assert found["other_loader"].tolist() == [0, 0, 0, 0, 0, 350 * MS, 0]
    assert (found["flags"] & 7).tolist() == [0, 0, layout.CHECKPOINT, 0, 0, layout.EVALUATION, 0]


def test_loaders_of_training_and_of_an_evaluation(clock):
    made = phases.Phases()

    class Iterator:
        def __init__(self, ms):
            self._dataset, self.ms = self, ms

    fetch = made._around_next(lambda iterator: clock.sleep(iterator.ms))
    one, two, evaluation = Iterator(5), Iterator(7), Iterator(100)

    def step(*iterators):
        for iterator in iterators:
            fetch(iterator)
        other = made.settle_others() if made.others else 0
        data, made.data = made.data, 0
        return data // MS, other // MS

    assert step(one, two) == (7, 5)  # nobody knows yet whose the first one is
    assert [step(one, two) for _ in range(3)] == [(12, 0)] * 3
    assert step(one, two, evaluation) == (12, 100)
    assert step(one, two) == (12, 0)
    assert step(evaluation, one, two) == (12, 100)
    assert step(evaluation) == (100, 0)  # another phase of training
    again = Iterator(3)
    again._dataset = evaluation
    assert [step(again), step(again), step(again, one)] == [(3, 0), (3, 0), (3, 5)]


def test_garbage_collections_are_counted(watched, clock):
    watched.step()

    class Cycle:
        def __del__(self):
            clock.sleep(4)

    cycle = Cycle()
    cycle.self = cycle
    del cycle
    gc.collect()
    watched.step()
    assert rows(watched)["gc"].tolist() == [4 * MS]


def test_checkpoints_and_evaluations_do_not_move_the_limit(watched, clock):
    steps(watched, clock, 60)
    watched.digest()
    before = watched._limit.ns
    for _ in range(60):
        began = watched._phases.begin("save_checkpoint", None, "default")
        clock.sleep(1)
        watched._phases.end(began, "default")
        steps(watched, clock, 1, ms=400)
    assert not (rows(watched)["flags"] & layout.OUTLIER).any()
    assert watched._limit.ns == before


def test_steps_of_a_capture_are_not_judged(watched, clock):
    class Profiler:
        def end_with_process(self): ...

        forget_after_fork = end_with_process

    steps(watched, clock, 3)
    profiler = Profiler()
    assert active.claim(profiler)
    steps(watched, clock, 2)
    active.release(profiler)
    steps(watched, clock, 3)
    assert [int(row["step"]) for row in rows(watched) if row["flags"] & layout.RECORDING] == [3, 4, 5]
    watched.stop()
    assert not active._on_begin


def test_a_profiler_that_begins_when_nobody_was_found_is_seen(watched, clock, monkeypatch):
    """In another thread, between the question who runs and what follows from the answer."""

    class Profiler:
        pass

    profiler, running = Profiler(), active.running

    def begin_after_the_answer():
        found = running()
        monkeypatch.setattr(active, "running", running)
        assert active.claim(profiler)
        return found

    steps(watched, clock, 3)
    watched._phases.unusual = True
    monkeypatch.setattr(active, "running", begin_after_the_answer)
    steps(watched, clock, 3)
    active.release(profiler)
    steps(watched, clock, 3)
    assert [int(row["step"]) for row in rows(watched) if row["flags"] & layout.RECORDING] == [4, 5, 6]


def test_rows_go_on_where_the_ring_begins_again_after_unusual_steps(watched, clock):
    for number in range(layout.ROWS + 50):
        if number % 1000 == 0:
            watched._phases.end(watched._phases.begin("save_checkpoint", None, "default"), "default")
            watched._phases.unusual = True
        steps(watched, clock, 1)
    assert rows(watched)["step"].tolist() == list(range(51, layout.ROWS + 50))


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path, clock, capsys):
    (tmp_path / "file").write_text("")
    made = Watcher(Settings(record=0, rings=str(tmp_path / "file")))
    steps(made, clock, 40)
    steps(made, clock, 1, ms=90)
    made.digest()
    assert [each.step for each in made._outliers] == [40]  # the rule needs no file
    made.stop()
    assert capsys.readouterr().err.count("keeps no ring") == 1


def test_a_fault_of_ours_ends_the_watch_and_nothing_else(watched, clock, capsys):
    steps(watched, clock, 2)
    watched._cells = memoryview(b"")
    steps(watched, clock, 3)
    assert capsys.readouterr().err.count("training continues") == 1


def test_patches_are_removed(watched):
    torch = pytest.importorskip("torch")
    patched = torch.save
    watched.stop()
    assert torch.save is not patched


@pytest.fixture
def fresh(monkeypatch):
    monkeypatch.setattr(watch, "_watch", None)
    yield
    if watch._watch is not None:
        watch._watch.stop()


@pytest.mark.slow  # half a second and more
def test_steps_of_an_optimizer_and_of_forked_children(tmp_path, fresh):
    torch = pytest.importorskip("torch")
    from torch.optim import Optimizer

    prepare = Optimizer._patch_step_function
    step = torch.optim.SGD.step
    try:
        handle = watch(record=0, rings=str(tmp_path))
        assert handle.ring is None  # no optimizer yet: a launcher leaves no ring
        parameter = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for _ in range(4):
            optimizer.step()
        own = handle.ring
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(3):
                    optimizer.step()
                code = 0 if handle.ring not in (None, own) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        optimizer.step()
        handle.step()  # from here on the loop counts
        optimizer.step()
        assert read_ring(own).rows["step"].tolist() == [1, 2, 3, 4, 5]
        other = next(path for path in tmp_path.glob("*.ring") if path != own)
        assert read_ring(other).rows["step"].tolist() == [1, 2]
    finally:
        Optimizer._patch_step_function = prepare
        torch.optim.SGD.step = step


def test_wrong_settings_are_one_warning(fresh, capsys):
    handle = watch("speed=11")
    handle.step()
    assert "unknown word 'speed=11'" in capsys.readouterr().err
    assert handle.ring is None
    assert watch._watch is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", Settings()),
        ("", Settings()),
        ("0", None),
        ("off", None),
        ("k=2.5,record=0,ranks=0+4:6,port=9000", Settings(k=2.5, record=0, ranks=(0, 4, 5, 6), port=9000)),
        ("otlp=http://a:4318,histogram=off,job=x", Settings(otlp="http://a:4318", histogram=False, job="x")),
    ],
)
def test_settings(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize("text", ["k=0", "k=nan", "record=-1", "port=0", "port=70000", "otlp=a:1", "ranks=x", "histogram=2", "k"])
def test_wrong_settings(text):
    with pytest.raises(ValueError, match=text.partition("=")[0]):
        parse(text)


def test_the_module_is_light():
    """`stepscope.watch` runs in every training process; the columnar engine is not needed there."""
    import subprocess

    script = "import sys, stepscope.watch; print([n for n in ('torch', 'polars', 'numpy', 'waitress') if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
