// SPDX-License-Identifier: Apache-2.0
// What Python calls: operators where a fault must become an exception, plain C for the recorder.
#include <torch/library.h>

#include <algorithm>
#include <cstring>

#include "communication/communicator.h"
#include "operators/kernels.h"
#include "operators/operators.h"
#include "runtime/generator.h"
#include "runtime/runtime.h"

namespace simnpu {

TORCH_LIBRARY(stepscope_npu, m) {
  m.def("register_operators() -> int", &register_operators);
  m.def("device_count() -> int", []() -> int64_t { return device_count(); });
  m.def("current_device() -> int", []() -> int64_t { return current_device(); });
  m.def("set_device(int device) -> ()", [](int64_t number) { set_current_device(static_cast<int>(number)); });
  m.def("synchronize(int device) -> ()", [](int64_t number) { device(static_cast<int>(number)).synchronize(); });
  m.def("default_generator(int device) -> Generator?", [](int64_t number) { return default_generator(static_cast<int>(number)); });
  m.def("communicating() -> bool", []() { return communicating(); });
  m.def("in_forked_child() -> bool", []() { return in_forked_child(); });
  m.def("memory_capacity() -> int", []() -> int64_t { return static_cast<int64_t>(settings().memory_bytes); });
}

}  // namespace simnpu

#define EXPORTED __attribute__((visibility("default")))

extern "C" {

EXPORTED int simnpu_abi() {
  return 2;
}

EXPORTED void simnpu_record(int on) {
  if (simnpu::in_forked_child())
    return;
  if (on && !simnpu::recording()) {
    simnpu::memory_records().clear();
    simnpu::call_records().clear();
    simnpu::transfer_records().clear();
    for (int i = 0; i < simnpu::device_count(); i++)
      for (simnpu::Stream* stream : simnpu::device(i).streams())
        stream->records.clear();
    simnpu::records_lost = 0;
  }
  simnpu::numbers_flag = on == 2;
  simnpu::recording_flag = on != 0;
}

EXPORTED size_t simnpu_drain_tasks(simnpu::TaskRecord* to, size_t room) {
  if (simnpu::in_forked_child())
    return 0;
  size_t count = 0;
  for (int i = 0; i < simnpu::device_count(); i++)
    for (simnpu::Stream* stream : simnpu::device(i).streams())
      count += stream->records.drain(to + count, room - count);
  return count;
}

EXPORTED size_t simnpu_drain_transfers(simnpu::TransferRecord* to, size_t room) {
  if (simnpu::in_forked_child())
    return 0;
  return simnpu::transfer_records().drain(to, room);
}

EXPORTED size_t simnpu_drain_memory(simnpu::MemoryRecord* to, size_t room) {
  if (simnpu::in_forked_child())
    return 0;
  return simnpu::memory_records().drain(to, room);
}

EXPORTED size_t simnpu_drain_calls(simnpu::CallRecord* to, size_t room) {
  if (simnpu::in_forked_child())
    return 0;
  return simnpu::call_records().drain(to, room);
}

EXPORTED void simnpu_hold_workers() {
  simnpu::hold_workers();
}

EXPORTED void simnpu_release_workers() {
  simnpu::release_workers();
}

EXPORTED void simnpu_wait_idle() {
  if (simnpu::in_forked_child())
    return;
  for (int i = 0; i < simnpu::device_count(); i++)
    for (simnpu::Stream* stream : simnpu::device(i).streams())
      stream->finish();
}

EXPORTED int simnpu_mark(int32_t device, int64_t stream, uint64_t number, uint32_t side) {
  if (!simnpu::recording() || simnpu::in_forked_child() || device < 0 || device >= simnpu::device_count())
    return -1;
  const int64_t called = simnpu::now_ns();
  try {
    auto task = simnpu::make_task("mark", simnpu::TaskKind::mark, [] {});
    task->record.bytes = number;
    task->record.event = side;
    simnpu::device(device).stream(stream).submit(std::move(task), called);
  } catch (const std::exception&) {  // no such stream
    return -1;
  }
  return 0;
}

EXPORTED uint64_t simnpu_lost() {
  return simnpu::records_lost.load();
}

EXPORTED uint32_t simnpu_descriptions() {
  return simnpu::descriptions();
}

EXPORTED size_t simnpu_description(uint32_t number, char* to, size_t room) {
  const std::string text = simnpu::description(number);
  memcpy(to, text.data(), std::min(room, text.size()));
  return text.size();
}
}
