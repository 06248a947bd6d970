// SPDX-License-Identifier: Apache-2.0
// Devices, streams, events and the task queue: what runs when, on which thread.
//
//   host thread --enqueue--> task queue of the device --dequeue thread: launch--> stream queue --worker: run-->
//
// Every task depends only on tasks issued before it, so bounded queues cannot lock each other up. Workers never
// need the interpreter's lock. What a fork does to them is told in fork.h.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "records.h"
#include "runtime/fork.h"

namespace simnpu {

// What is wrong with this process: STEPSCOPE_SIM_SLOW, words such as kernel=addmm:2.5 link=1-2:4 launch_us=50 malloc_ms=10.
struct Slowness {
  struct Link {
    int64_t ranks[2];
    double factor;
  };
  std::string kernel;  // operator whose kernels take longer
  double kernel_factor = 1;
  std::vector<Link> links;  // between two ranks of the job
  int64_t launch_ns = 0;  // that the host needs longer for each task
  int64_t malloc_ns = 0;  // that memory from the device takes longer
};

struct Settings {
  int devices;  // STEPSCOPE_SIM_DEVICES
  size_t queue_depth;  // STEPSCOPE_SIM_QUEUE_DEPTH: tasks the host may be ahead, per queue
  size_t memory_bytes;  // STEPSCOPE_SIM_MEMORY_GB of each device
  int threads;  // STEPSCOPE_SIM_THREADS: of one kernel
  double kernel_time;  // STEPSCOPE_SIM_KERNEL_TIME: factor on the modelled duration, 0 = as measured
  double link_time;  // STEPSCOPE_SIM_LINK_TIME: the same for collectives; kernel_time if absent
  bool task_queue;  // TASK_QUEUE_ENABLE, as on hardware
  bool workspaces;  // TASK_QUEUE_ENABLE=2: the dequeue thread allocates what kernels need besides their tensors
  bool blocking;  // ASCEND_LAUNCH_BLOCKING, as on hardware
  Slowness slow;
};
const Settings& settings();

int64_t now_ns();
void sleep_until(int64_t when_ns);
uint32_t thread_id();

struct Task {
  TaskRecord record{};
  std::exception_ptr* fault_of_caller = nullptr;  // set when somebody waits for this very task
  class Stream* stream = nullptr;
  size_t workspace = 0;  // bytes that the kernel needs besides its tensors
  virtual void run() = 0;
  virtual std::string name() const = 0;
  virtual void recorded() {}  // after its record was kept
  virtual ~Task() = default;
};

template <class Function>
struct FunctionTask final : Task {
  const char* label;
  Function function;
  FunctionTask(const char* label, Function function) : label(label), function(std::move(function)) {}
  void run() override {
    function();
  }
  std::string name() const override {
    return label;
  }
};

template <class Function>
std::unique_ptr<Task> make_task(const char* label, TaskKind kind, Function function) {
  auto task = std::make_unique<FunctionTask<Function>>(label, std::move(function));
  task->record.kind = kind;
  return task;
}

// Many producers, one consumer, bounded.
class TaskQueue {
 public:
  // A lazy consumer naps a moment before it sleeps, so that a busy host need not wake it for each task.
  explicit TaskQueue(bool lazy) : lazy_(lazy) {}
  // Blocks while full. Numbers the task if asked to, and tells when it was placed: afterwards it belongs to the consumer.
  uint64_t push(Task* task, std::atomic<uint64_t>* issued, int64_t* placed_ns);
  std::deque<Task*> take();  // blocks while empty
  void release();  // one taken task is done with
  void hurry();  // somebody waits: no naps

 private:
  enum class Consumer { awake, napping, asleep };
  const bool lazy_;
  std::mutex mutex_;
  std::condition_variable filled_, room_;
  std::deque<Task*> tasks_;
  std::atomic<size_t> held_{0};
  std::atomic<int> blocked_{0};
  Consumer consumer_ = Consumer::awake;
};

class Device;

// One block per stream, which grows to the largest request and is lent to one kernel after the other. Totals are of all
// streams. Only the dequeue thread of the device uses it, so it needs no lock, and children of a fork have no use for it.
class Workspaces {
 public:
  size_t lend(class Stream& stream, size_t bytes);  // returns the size of the block
  void give_back(class Stream& stream, size_t size);

 private:
  struct Block {
    void* address = nullptr;
    size_t size = 0;
  };
  void report(MemoryKind kind, const Block& block, class Stream& stream, int64_t size) const;
  std::unordered_map<const class Stream*, Block> blocks_;
  int64_t allocated_ = 0, reserved_ = 0;
};

class Stream {
 public:
  Stream(Device& device, int number);
  // Returns the ticket to wait for.
  uint64_t submit(std::unique_ptr<Task> task, int64_t called_ns);
  void wait(uint64_t ticket);  // throws the device's pending fault
  void finish();  // waits for all that was submitted and leaves the fault to others
  void synchronize();  // both are calls of the runtime
  void synchronize(uint64_t ticket);
  bool idle() const;
  // For tasks that stand for several: numbers that follow the running task's. Called by its worker only.
  uint32_t take_task_numbers(uint32_t count) {
    launched_ += count;
    return launched_ - count + 1;
  }

  Device& device;
  const int number;
  RecordBuffer<TaskRecord> records;

 private:
  friend class Device;
  void launch(Task* task);
  void await(uint64_t ticket);
  void work();
  std::deque<Task*> next_tasks();
  void execute(Task& task);

  Worker& worker_ = *new Worker;
  TaskQueue queue_{false};
  std::atomic<uint64_t> issued_{0}, done_{0};
  std::atomic<int> waiters_{0};
  uint32_t launched_ = 0;
  std::mutex done_mutex_;
  std::condition_variable done_changed_;
};

class Device {
 public:
  explicit Device(int number);
  Stream& stream(int64_t number);
  int64_t new_stream();  // from a pool, like on hardware
  int64_t reserve_stream();  // a number outside the pool, for one purpose; its worker starts when it is first used
  void synchronize();
  std::vector<Stream*> streams();
  void fail(const std::string& what);  // keeps the first fault
  void throw_pending_fault();
  void queue_hurry() {
    queue_.hurry();
  }

  const int number;

 private:
  friend class Stream;
  void dequeue();
  TaskQueue queue_{true};
  Workspaces workspaces_;
  std::once_flag started_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
  int64_t made_ = 0;
  std::mutex fault_mutex_;
  std::atomic<bool> faulty_{false};
  std::string fault_;
};

Device& device(int number);
int device_count();
int current_device();
void set_current_device(int number);
Stream& current_stream(int device);
int64_t current_stream_number(int device);
void set_current_stream(int device, int64_t number);

// A point in a stream. Recording it again moves it; waits refer to the recording that was newest when they were issued.
class Event {
 public:
  void record(Stream& stream);
  void block(Stream& stream);  // later tasks of the stream wait
  void synchronize();
  bool query() const;
  int64_t time_ns();  // waits for it

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t wanted = 0, reached = 0;
    int64_t time_ns = 0;
    Stream* stream = nullptr;
    uint32_t number = 0;
  };
  std::shared_ptr<State> state_;
};

// A runtime call that launches nothing, recorded from construction to destruction.
class CallSpan {
 public:
  CallSpan(Call call, int device, uint64_t value)
      : record_{recording() ? now_ns() : 0, 0, value, 0, call, static_cast<int16_t>(device)} {}
  ~CallSpan() {
    if (record_.start) {
      record_.end = now_ns();
      record_.thread = thread_id();
      call_records().add(record_);
    }
  }
  CallSpan(const CallSpan&) = delete;

 private:
  CallRecord record_;
};

}  // namespace simnpu
