# SPDX-License-Identifier: Apache-2.0
"""One profiler's captures, one after the other: the primitives that its state machine calls (docs/formats/profiler-api.md 5)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepscope.collect import budget, info_file, messages, metadata, paths, simulated, spool, termination
from stepscope.collect.analysis_process import analyse_capture
from stepscope.collect.clocks import Moment, now
from stepscope.collect.current_capture import CurrentCapture
from stepscope.collect.foreign_profiler import ForeignProfilers
from stepscope.collect.guard import warn_on_failure
from stepscope.collect.marks import stages
from stepscope.collect.marks.api import Marks, range_end, range_start
from stepscope.collect.settings import Place, Settings, Switches
from stepscope.collect.simulated import SimulatedDevice
from stepscope.collect.sources import loader_workers
from stepscope.collect.sources.gc_pauses import GcPauses
from stepscope.collect.sources.host_sampler import HostSampler
from stepscope.collect.sources.os_calls import OsCalls
from stepscope.collect.tiers import choice as tiers


class Recording(CurrentCapture):
    """Makes captures: `init` opens one, `start` and `stop` bound what is recorded, `finalize` closes it.

    Args:
        settings: what to record.
        place: gives the folder for the next capture.
        user_metadata: keys that go into each capture.
        trace_id_callback: gives the id of a capture; None makes a random one.
    """

    def __init__(
        self,
        settings: Settings,
        place: Callable[[], Place],
        user_metadata: metadata.Metadata,
        trace_id_callback: Callable[[], Any] | None = None,
    ):
        super().__init__()
        self.settings = settings
        self.trace_id = ""
        self.trace_id_callback = trace_id_callback
        self.limit: str | None = None
        self._place, self._metadata = place, user_metadata
        self._where: Place | None = None
        self._tier: tiers.Tier | None = None
        self._report = tiers.TierReport()
        self._sources: list[GcPauses | HostSampler | OsCalls | SimulatedDevice | budget.Watch] = []
        self._simulated: SimulatedDevice | None = None
        self._marks: Marks | None = None
        self._step_mark = 0
        self._began: Moment | None = None
        self._analysing = False
        self._foreign = ForeignProfilers(self._give_way, self._take_back)

    def init(self) -> None:
        place = self._place()
        where = replace(place, parent=paths.resolve_path(place.parent))
        parent = paths.writable_folder(self.settings.spool or where.parent)
        budget.refuse_full_disk(parent)
        self._where, self._began, self.limit, self._report = where, None, None, tiers.TierReport()
        self._tier = tiers.choose(self.settings)
        self.trace_id = metadata.trace_id(self.trace_id_callback)
        self._folder = paths.new_capture_folder(parent, where.worker)
        # Written first, so that a killed process leaves at least its settings and the relation of the clocks.
        self._write_info(complete=False)

    def warmup(self) -> None:
        assert self._tier is not None
        assert self._folder is not None
        self._tier.prepare(self._folder)

    def start(self) -> None:
        self.warmup()
        assert self._tier is not None
        assert self._folder is not None
        self._start_sources(self._folder)
        self._began = now()
        self._tier.start()
        self._recording = True
        self._foreign.start()
        if "CPU" in self.settings.activities:
            loader_workers.open_for(self._folder / "FRAMEWORK")
        if not self._tier.streams:
            termination.arm()
        # Last, so that a limit always finds something to end.
        watch = budget.Watch(self._folder, self.settings.budget, self._on_limit)
        self._sources.append(watch)
        watch.start()

    def stop(self) -> None:
        """End recording, unless it has ended already, for instance at a limit."""
        termination.disarm()  # before taking the lock, for which a signal handler would wait
        with self._stopping:  # the watching thread may reach a limit at the same moment
            if not self._recording:
                return
            self._recording = False
            loader_workers.close()
            self._foreign.stop()
            self._end_marks()  # before the tier: open ranges end on the device too
            assert self._tier is not None
            self._report = self._tier.stop()
        # If the folder is gone nothing is kept, and closing the capture reports it.
        if self._report.limit and self._folder is not None and self._folder.is_dir():
            self._report_limit(self._report.limit)
        self._stop_sources()

    def finalize(self) -> None:
        if self._folder is None:
            return
        self.stop()
        self._write_info(complete=True)
        about_device = simulated.metadata() if simulated.is_recorded(self.settings) else {}
        info_file.write_metadata(self._folder, {**self._metadata.values, **about_device}, self.trace_id)

    def delete(self) -> None:
        """Remove the capture, as when training ends during the warm-up."""
        self.abandon()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def abandon(self) -> None:
        """Release what recording holds, whatever state it is in; what reached the disk stays."""
        self._recording = False
        self._foreign.stop()
        loader_workers.close()
        self._end_marks()
        sources, self._sources = self._sources, []
        for item in sources:
            item.stop()
        if self._tier is not None:
            self._tier.discard()

    def saved(self) -> None:
        """Called after the user's handler: move the capture to its destination if it was written to a spool folder."""
        if not self._analysing and self._folder is not None and self._where is not None:
            self._folder = _move_from_spool(self._folder, self._where, self.settings)
        self._analysing = False

    def analyse(self, *, background: bool = False) -> None:
        """Analyse the capture just finished, in another process."""
        if self._folder is None:
            messages.warning("nothing was recorded; there is nothing to analyse")
            return
        folder, where = self._folder, self._where
        assert where is not None
        self._analysing = background
        afterwards = (lambda: _ignore(_move_from_spool(folder, where, self.settings))) if background else (lambda: None)
        op_args = bool(self.settings.experimental.get("record_op_args"))
        analyse_capture(folder, background=background, op_args=op_args, afterwards=afterwards)

    def push_step(self, name: str) -> None:
        if self._recording and self._tier is not None:
            self._tier.push(name)
            self._step_mark = range_start(name, stages.current_stream())

    def pop_step(self) -> None:
        if self._recording and self._tier is not None:
            range_end(self._step_mark)
            self._tier.pop()

    def stop_at_limit(self) -> None:
        """Called at each step: end the recording if a limit was reached since the last one."""
        if self.limit and self._recording:
            self.stop()

    def enable_child_thread(self, switches: Switches) -> None:
        if self._recording and self._tier is not None:
            self._tier.enable_child_thread(switches)
        else:
            messages.once(messages.warning, "no profiler is recording; this thread is not recorded")

    def disable_child_thread(self) -> None:
        if self._tier is not None:
            self._tier.disable_child_thread()

    def forget(self) -> None:
        super().forget()
        self._tier, self._sources, self._marks, self._simulated = None, [], None, None

    def _start_sources(self, folder: Path) -> None:
        framework = folder / "FRAMEWORK"
        threshold, host_sys = self.settings.gc_threshold_ms, self.settings.host_sys
        if threshold is not None or host_sys or self.settings.marks:
            paths.ensure_folder(framework)
        if threshold is not None:
            self._sources.append(GcPauses(framework, threshold))
        if host_sys:
            self._sources.append(HostSampler(framework, host_sys))
        if "osrt" in host_sys:
            self._sources.append(OsCalls(framework))
        if simulated.is_recorded(self.settings):
            self._simulated = SimulatedDevice(folder, self.settings, self._flush_host)
            self._sources.append(self._simulated)
        if self.settings.budget.max_bytes is not None and self._tier is not None and not self._tier.streams:
            messages.once(messages.warning, "max_bytes has no effect here: torch's own profiler keeps its records in memory")
        for item in self._sources:
            item.start()
        if self.settings.marks:  # after the device, which records their device part
            self._marks = Marks(framework, self.settings, by_vendor=self._tier is not None and self._tier.name == "ascend")
            self._marks.start()

    def _flush_host(self) -> None:
        """Called on the thread that writes the device's records."""
        tier = self._tier
        if tier is not None and self._recording:
            tier.flush()

    def _stop_sources(self) -> None:
        sources, self._sources = self._sources, []
        for item in sources:
            item.stop()

    def _end_marks(self) -> None:
        marks, self._marks = self._marks, None
        if marks is not None:
            marks.stop()

    def _on_limit(self, limit: str) -> None:
        """Called on the watching thread. If only the starting thread may stop the tier, `stop_at_limit` does at the next step."""
        self._report_limit(limit)
        if self._tier is not None:
            warn_on_failure("ending the capture", self.stop if self._tier.stops_anywhere else self._tier.silence)

    def _give_way(self) -> None:
        """The script starts torch's own profiler on this thread."""
        if not self._recording or self._tier is None:
            return
        lost = self._tier.give_way()
        if lost is None:
            self._report_limit("the script starts torch.profiler, and both cannot record")
            self.stop()
        elif lost:
            messages.once(messages.warning, f"the script's torch.profiler runs: {lost} is reported to it until it ends, not to us")

    def _take_back(self) -> None:
        if self._recording and self._tier is not None:
            self._tier.take_back()

    def _report_limit(self, limit: str) -> None:
        if self.limit is None:
            self.limit = limit
            messages.warning(f"the capture ends early ({limit}); the data recorded so far are in {self.prof_path}")

    def _write_info(self, *, complete: bool) -> None:
        assert self._folder is not None
        assert self._tier is not None
        collector: dict[str, Any] = {"tier": self._tier.name, "device": self._device(), "pid": os.getpid(), "complete": complete}
        collector |= self._report.collector
        dropped = dict(self._report.dropped)
        if simulated.is_recorded(self.settings):
            collector |= simulated.about()
            dropped |= self._simulated.dropped if self._simulated else {}
        if self.limit:
            collector["limit"] = self.limit
        content = info_file.info(self.settings, self._began, now(), collector)
        if dropped:
            content["dropped"] = dropped
        info_file.write_info(self._folder, {**content, **self._report.info})

    def _device(self) -> str:
        return next((name.lower() for name in ("NPU", "CUDA") if name in self.settings.activities), "cpu")


def _move_from_spool(folder: Path, where: Place, settings: Settings) -> Path:
    """Move a capture from the spool folder to its destination, in the background; returns where it will be."""
    if settings.spool is None or not folder.is_dir():
        return folder
    arguments = folder.with_name(f"{folder.name}_op_args")
    for item in (arguments, folder) if arguments.is_dir() else (folder,):
        spool.move_in_background(item, where.parent)
    return where.parent / folder.name


def _ignore(_value: object) -> None:
    """For callbacks whose result is not used."""
