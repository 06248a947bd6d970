// SPDX-License-Identifier: Apache-2.0
// What happened on the simulated device, as fixed structs that a recorder drains through the C functions below.
//
// Times are nanoseconds of CLOCK_MONOTONIC_RAW, the clock of the observer's files; 0 means "did not happen".
// Nothing is recorded, and no clock is read, while recording is off.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

namespace simnpu {

enum class TaskKind : uint8_t {
  kernel = 0,
  copy_h2d = 1,
  copy_d2h = 2,
  copy_d2d = 3,
  event_record = 4,
  event_wait = 5,
  collective = 6,
  mark = 7
};

constexpr uint8_t kTaskFailed = 1;  // the kernel threw; its fault surfaces at the next synchronisation
constexpr uint8_t kTaskAwaited = 2;  // the host waited for it: data-dependent result, or first sight of a signature

// One task from the host's call to its end on the device. Written by the stream's worker when the task ends.
struct TaskRecord {
  int64_t enqueue_start;  // host thread hands the task to the task queue (0 with TASK_QUEUE_ENABLE=0)
  int64_t enqueue_end;
  int64_t dequeue_start;  // dequeue thread takes it out (0 with TASK_QUEUE_ENABLE=0)
  int64_t dequeue_end;
  int64_t launch_start;  // runtime call that puts the task on its stream; inside the dequeue span, or on the host thread
  int64_t launch_end;
  int64_t start;  // on the device
  int64_t end;
  uint64_t connection;  // joins enqueue, dequeue, launch and device task; unique in the process, from 1
  uint64_t bytes;  // moved by a copy or a collective; marks: number of the mark; else 0
  uint32_t description;  // kernels and collectives: number for simnpu_description, else 0
  uint32_t task;  // number of the task in its stream, from 1
  uint32_t host_thread;  // operating system's thread numbers
  uint32_t launch_thread;
  int32_t device;
  int32_t stream;  // number of the stream in its device, 0 is the default stream
  uint32_t event;  // events: number of the event; collectives: running number in its group, from 0; marks: which side; else 0
  TaskKind kind;
  uint8_t flags;  // kTask*
  uint16_t calls;  // of the runtime, if more than one: a collective is launched transfer by transfer, inside the span above
  int64_t modelled_ns;  // duration the kernel-time model asked for, 0 without a model
  uint64_t correlation;  // left to an activity profiler that numbers operators
};
static_assert(sizeof(TaskRecord) == 128);

enum class TransferKind : uint8_t { memcpy = 0, reduce_inline = 1, notify_wait = 2, notify_record = 3 };

// The numbers that HCCL uses for them.
enum class Transport : uint8_t { sdma = 0, local = 2 };
enum class Link : uint8_t { on_chip = 0, hccs = 1 };

constexpr uint8_t kTransferMaster = 1;  // on the plane that stands for the operator
constexpr uint8_t kTransferModelled = 2;  // its times divide a measured span; else its end is measured

// One link-level task of a collective: what hardware would run instead of the one task above.
struct TransferRecord {
  int64_t start;  // inside the collective's span; no two overlap on one stream
  int64_t end;
  uint64_t connection;  // of the collective
  uint64_t bytes;
  uint64_t notify;  // equal on both sides, 0 where nothing is notified
  uint32_t task;  // numbered with the tasks of its stream
  int32_t device;
  int32_t stream;  // the collective's own for plane 0, else one on which only transfers run
  int32_t src_rank;  // this rank, counted inside the group
  int32_t dst_rank;  // the other side; -1 for a copy inside the device
  uint16_t plane;
  TransferKind kind;
  Transport transport;
  Link link;
  uint8_t data_type;  // HCCL's number
  uint8_t reduce_op;  // HCCL's number, 255 where nothing is reduced
  uint8_t flags;  // kTransfer*
  uint32_t reserved;
};
static_assert(sizeof(TransferRecord) == 72);

enum class MemoryKind : uint8_t { malloc = 0, free = 1, block_free = 2 };

constexpr uint8_t kWorkspaceComponent = 1;  // the memory that kernels need besides their tensors

// One event of an allocator, with its totals on the device after it.
struct MemoryRecord {
  int64_t time;
  uint64_t address;
  int64_t size;  // bytes; negative when given back
  int64_t allocated;
  int64_t reserved;
  int64_t active;
  uint64_t stream;  // handle of the stream, as torch sees it
  uint32_t thread;
  int16_t device;
  MemoryKind kind;
  uint8_t component;  // 0: caching allocator, or kWorkspaceComponent
};
static_assert(sizeof(MemoryRecord) == 64);

enum class Call : uint16_t {
  synchronize_stream = 1,
  synchronize_device = 2,
  synchronize_event = 3,
  malloc = 4,
  free = 5,
  malloc_host = 6,
  free_host = 7,
  create_stream = 8,
};

// One call of the runtime that launches nothing.
struct CallRecord {
  int64_t start;
  int64_t end;
  uint64_t value;  // bytes of memory calls, number of the stream or event of the others
  uint32_t thread;
  Call call;
  int16_t device;
};
static_assert(sizeof(CallRecord) == 32);

inline std::atomic<bool> recording_flag{false};
inline std::atomic<bool> activities_flag{false};
inline std::atomic<uint64_t> records_lost{0};
inline thread_local uint64_t current_correlation = 0;  // operator of this thread, as the activity profiler numbers them

inline std::atomic<bool> numbers_flag{false};

// Whether the numbers that an operator is called with are attributes: then each of them has a description of its own.
inline bool tells_numbers() {
  return numbers_flag.load(std::memory_order_relaxed);
}

inline bool recording() {
  return recording_flag.load(std::memory_order_relaxed);
}

// Somebody wants the times of tasks: the recorder, or an activity profiler with a buffer of its own.
inline bool timing() {
  return recording() || activities_flag.load(std::memory_order_relaxed);
}

// Records of one writer, in chunks. Bounded: what nobody drains is counted as lost.
template <class Record>
class RecordBuffer {
 public:
  void add(const Record& record) {
    std::lock_guard lock(mutex_);
    if (chunks_.empty() || chunks_.back().size() == kChunk) {
      if (chunks_.size() == kChunks) {
        records_lost.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      chunks_.emplace_back().reserve(kChunk);
    }
    chunks_.back().push_back(record);
  }

  size_t drain(Record* to, size_t room) {
    std::lock_guard lock(mutex_);
    size_t count = 0;
    while (count < room && !chunks_.empty()) {
      std::vector<Record>& oldest = chunks_.front();
      const size_t taken = std::min(room - count, oldest.size() - drained_);
      std::copy_n(oldest.begin() + static_cast<std::ptrdiff_t>(drained_), taken, to + count);
      count += taken;
      drained_ += taken;
      if (drained_ == oldest.size()) {
        chunks_.pop_front();
        drained_ = 0;
      }
    }
    return count;
  }

  void clear() {
    std::lock_guard lock(mutex_);
    chunks_.clear();
    drained_ = 0;
  }

 private:
  static constexpr size_t kChunk = 4096, kChunks = 256;
  std::mutex mutex_;
  std::deque<std::vector<Record>> chunks_;
  size_t drained_ = 0;  // of the oldest chunk
};

RecordBuffer<MemoryRecord>& memory_records();
RecordBuffer<CallRecord>& call_records();
RecordBuffer<TransferRecord>& transfer_records();
RecordBuffer<TaskRecord>& activity_records();  // for the activity profiler

}  // namespace simnpu

// The recorder's interface. Every function may be called from any thread, without the interpreter's lock.
extern "C" {
int simnpu_abi();  // changes with the structs
// 1 forgets what was not drained and starts, 2 does so and tells numbers among the attributes of operators, 0 stops.
void simnpu_record(int on);
size_t simnpu_drain_tasks(simnpu::TaskRecord* to, size_t room);  // all return how many were copied; 0: none left
size_t simnpu_drain_transfers(simnpu::TransferRecord* to, size_t room);
size_t simnpu_drain_memory(simnpu::MemoryRecord* to, size_t room);
size_t simnpu_drain_calls(simnpu::CallRecord* to, size_t room);
// Around a fork, on its thread: no kernel runs in between. A caller with the interpreter's lock leaves it to kernels meanwhile.
void simnpu_hold_workers();
void simnpu_release_workers();
void simnpu_wait_idle();  // until all that was queued has run; a fault stays for the next synchronisation
// Puts a mark into a stream, where it takes no time: side 0 is a moment, 1 and 2 are the ends of a range. -1: not recorded.
int simnpu_mark(int32_t device, int64_t stream, uint64_t number, uint32_t side);
uint64_t simnpu_lost();  // records for which there was no room, since the start
uint32_t simnpu_descriptions();  // how many there are; numbers start at 1
size_t simnpu_description(uint32_t number, char* to, size_t room);  // JSON; returns its length, copies what fits
}
