// SPDX-License-Identifier: Apache-2.0
#include "runtime/runtime.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

namespace simnpu {
namespace {

constexpr int kStreamPool = 32;
constexpr int kNaps = 16;
constexpr auto kNap = std::chrono::microseconds(50);
constexpr size_t kWorkspaceMargin = 32, kWorkspaceRounding = 2 << 20, kWorkspaceAlignment = 512;

std::atomic<int> hosts_waiting{0};
std::atomic<uint64_t> connections{0};
std::atomic<uint32_t> events{0};

double number_from(const char* variable, double otherwise) {
  const char* text = getenv(variable);
  if (!text || !*text)
    return otherwise;
  char* end = nullptr;
  double value = strtod(text, &end);
  return *end || value < 0 ? otherwise : value;
}

Slowness read_slowness() {
  Slowness slow;
  const char* text = getenv("STEPSCOPE_SIM_SLOW");
  std::istringstream words(text ? text : "");
  for (std::string word; words >> word;) {
    char name[64];
    long long first = 0, second = 0;
    double value = 0;
    if (sscanf(word.c_str(), "kernel=%63[^:]:%lf", name, &value) == 2) {
      slow.kernel = std::string("aten::") + name;
      slow.kernel_factor = value;
    } else if (sscanf(word.c_str(), "link=%lld-%lld:%lf", &first, &second, &value) == 3) {
      slow.links.push_back({{first, second}, value});
    } else if (sscanf(word.c_str(), "launch_us=%lf", &value) == 1) {
      slow.launch_ns = static_cast<int64_t>(value * 1e3);
    } else if (sscanf(word.c_str(), "malloc_ms=%lf", &value) == 1) {
      slow.malloc_ns = static_cast<int64_t>(value * 1e6);
    }
  }
  return slow;
}

Settings read_settings() {
  Settings s{};
  // One for each process that torchrun starts here.
  double processes = number_from("LOCAL_WORLD_SIZE", 1);
  s.devices = std::max(1, static_cast<int>(number_from("STEPSCOPE_SIM_DEVICES", std::max(2.0, processes))));
  s.queue_depth = std::max<size_t>(1, static_cast<size_t>(number_from("STEPSCOPE_SIM_QUEUE_DEPTH", 4096)));
  s.memory_bytes = static_cast<size_t>(number_from("STEPSCOPE_SIM_MEMORY_GB", 16) * (1ull << 30));
  s.threads = std::max(1, static_cast<int>(number_from("STEPSCOPE_SIM_THREADS", 1)));
  s.kernel_time = number_from("STEPSCOPE_SIM_KERNEL_TIME", 0);
  s.link_time = number_from("STEPSCOPE_SIM_LINK_TIME", s.kernel_time);
  s.blocking = number_from("ASCEND_LAUNCH_BLOCKING", 0) > 0;
  s.task_queue = number_from("TASK_QUEUE_ENABLE", 1) > 0 && !s.blocking;
  s.workspaces = s.task_queue && number_from("TASK_QUEUE_ENABLE", 1) >= 2;
  s.slow = read_slowness();
  return s;
}

void start_thread(const char* name, std::function<void()> body) {
  std::thread([name = std::string(name), body = std::move(body)] {
    pthread_setname_np(pthread_self(), name.c_str());
    prctl(PR_SET_TIMERSLACK, 1000ul);
    body();
  }).detach();
}

// Of this thread only: at::set_num_threads would change the whole process.
void set_kernel_threads(int count) {
  (void)at::get_num_threads();  // torch sets its own number the first time a thread asks
  for (const char* name : {"omp_set_num_threads", "MKL_Set_Num_Threads_Local"})
    if (auto set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, name)))
      set(count);
}

// A collective is launched task by task on hardware: each of the calls finds its place in the span of all.
void fill_launch(const TaskRecord& record) {
  constexpr int64_t kCallNs = 100;
  if (C10_UNLIKELY(record.calls > 1))
    while (now_ns() < record.launch_start + kCallNs * record.calls) {
    }
}

// While a host thread waits, queues are served at once.
struct Waiting {
  Waiting() {
    hosts_waiting.fetch_add(1);
  }
  ~Waiting() {
    hosts_waiting.fetch_sub(1);
  }
};

struct CurrentPlace {
  int device = 0;
  std::vector<int64_t> streams = std::vector<int64_t>(settings().devices, 0);
};
thread_local CurrentPlace place;

}  // namespace

RecordBuffer<MemoryRecord>& memory_records() {
  static auto* buffer = new RecordBuffer<MemoryRecord>;
  return *buffer;
}

RecordBuffer<CallRecord>& call_records() {
  static auto* buffer = new RecordBuffer<CallRecord>;
  return *buffer;
}

RecordBuffer<TransferRecord>& transfer_records() {
  static auto* buffer = new RecordBuffer<TransferRecord>;
  return *buffer;
}

RecordBuffer<TaskRecord>& activity_records() {
  static auto* buffer = new RecordBuffer<TaskRecord>;
  return *buffer;
}

const Settings& settings() {
  static const Settings once = read_settings();
  return once;
}

void sleep_until(int64_t when_ns) {
  for (int64_t left = when_ns - now_ns(); left > 0; left = when_ns - now_ns()) {
    timespec t{static_cast<time_t>(left / 1000000000), static_cast<long>(left % 1000000000)};
    nanosleep(&t, nullptr);
  }
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

uint32_t thread_id() {
  static thread_local uint32_t id = static_cast<uint32_t>(syscall(SYS_gettid));
  return id;
}

// ---------------------------------------------------------------------------------------------------- task queue

uint64_t TaskQueue::push(Task* task, std::atomic<uint64_t>* issued, int64_t* placed_ns) {
  uint64_t ticket = 0;
  bool wake;
  {
    std::unique_lock lock(mutex_);
    if (C10_UNLIKELY(held_.load() >= settings().queue_depth)) {
      blocked_.fetch_add(1);
      Waiting hurried;
      if (consumer_ == Consumer::napping)
        filled_.notify_one();
      room_.wait(lock, [&] { return held_.load() < settings().queue_depth; });
      blocked_.fetch_sub(1);
    }
    if (issued)
      ticket = issued->fetch_add(1) + 1;
    if (placed_ns)
      *placed_ns = now_ns();
    tasks_.push_back(task);
    held_.fetch_add(1);
    wake = consumer_ == Consumer::asleep || (consumer_ == Consumer::napping && hosts_waiting.load() > 0);
  }
  if (wake)
    filled_.notify_one();
  return ticket;
}

std::deque<Task*> TaskQueue::take() {
  std::unique_lock lock(mutex_);
  for (int naps = 0; tasks_.empty();) {
    if (lazy_ && naps++ < kNaps) {
      consumer_ = Consumer::napping;
      filled_.wait_for(lock, kNap, [&] { return !tasks_.empty() && hosts_waiting.load() > 0; });
    } else {
      consumer_ = Consumer::asleep;
      filled_.wait(lock, [&] { return !tasks_.empty(); });
    }
  }
  consumer_ = Consumer::awake;
  std::deque<Task*> batch;
  batch.swap(tasks_);
  return batch;
}

void TaskQueue::release() {
  held_.fetch_sub(1);
  if (C10_UNLIKELY(blocked_.load() > 0)) {
    std::lock_guard lock(mutex_);
    room_.notify_all();
  }
}

void TaskQueue::hurry() {
  std::lock_guard lock(mutex_);
  if (consumer_ == Consumer::napping)
    filled_.notify_one();
}

// ---------------------------------------------------------------------------------------------------- workspaces

// docs/formats/framework.md 4.3: a block that grows is one malloc of its own, and so is each loan of it.
size_t Workspaces::lend(Stream& stream, size_t bytes) {
  Block& block = blocks_[&stream];
  if (block.size < bytes + kWorkspaceMargin) {
    if (block.address) {
      CallSpan span(Call::free, stream.device.number, block.size);
      reserved_ -= static_cast<int64_t>(block.size);
      report(MemoryKind::free, block, stream, -static_cast<int64_t>(block.size));
      ::free(block.address);
    }
    block.size = (bytes + kWorkspaceMargin + kWorkspaceRounding - 1) / kWorkspaceRounding * kWorkspaceRounding;
    CallSpan span(Call::malloc, stream.device.number, block.size);
    block.address = aligned_alloc(kWorkspaceAlignment, block.size);  // nobody writes to it: it takes addresses, not memory
    if (!block.address)
      return block.size = 0;
    reserved_ += static_cast<int64_t>(block.size);
    report(MemoryKind::malloc, block, stream, static_cast<int64_t>(block.size));
  }
  allocated_ += static_cast<int64_t>(block.size);
  report(MemoryKind::malloc, block, stream, static_cast<int64_t>(block.size));
  return block.size;
}

void Workspaces::give_back(Stream& stream, size_t size) {
  allocated_ -= static_cast<int64_t>(size);
  report(MemoryKind::free, blocks_[&stream], stream, -static_cast<int64_t>(size));
}

void Workspaces::report(MemoryKind kind, const Block& block, Stream& stream, int64_t size) const {
  if (recording())
    memory_records().add({now_ns(), reinterpret_cast<uint64_t>(block.address), size, allocated_, reserved_, allocated_,
                          reinterpret_cast<uint64_t>(&stream), thread_id(), static_cast<int16_t>(stream.device.number), kind,
                          kWorkspaceComponent});
}

// -------------------------------------------------------------------------------------------------------- stream

Stream::Stream(Device& device, int number) : device(device), number(number) {
  char name[16];
  snprintf(name, sizeof name, "npu%d.s%d", device.number, number);
  start_thread(name, [this] { work(); });
}

uint64_t Stream::submit(std::unique_ptr<Task> owned, int64_t called_ns) {
  check_not_forked();
  if (C10_UNLIKELY(settings().slow.launch_ns))
    sleep_until(now_ns() + settings().slow.launch_ns);
  Task* task = owned.release();
  task->stream = this;
  TaskRecord& r = task->record;
  r.connection = connections.fetch_add(1, std::memory_order_relaxed) + 1;
  r.device = device.number;
  r.stream = number;
  r.host_thread = thread_id();
  if (called_ns)
    r.correlation = current_correlation;
  uint64_t ticket;
  // Numbered under the queue's lock, so that tickets are in the order of execution.
  if (settings().task_queue) {
    r.enqueue_start = called_ns;
    ticket = device.queue_.push(task, &issued_, called_ns ? &r.enqueue_end : nullptr);
  } else {
    r.launch_start = called_ns;
    r.launch_thread = r.host_thread;
    if (called_ns)
      fill_launch(r);
    ticket = queue_.push(task, &issued_, called_ns ? &r.launch_end : nullptr);
  }
  if (C10_UNLIKELY(settings().blocking))
    wait(ticket);
  return ticket;
}

void Stream::launch(Task* task) {
  TaskRecord& r = task->record;
  const bool timed = r.enqueue_start != 0;
  if (timed)
    r.dequeue_start = now_ns();
  const size_t lent = task->workspace ? device.workspaces_.lend(*this, task->workspace) : 0;
  if (timed) {
    r.launch_start = now_ns();
    fill_launch(r);
  }
  r.launch_thread = thread_id();
  queue_.push(task, nullptr, timed ? &r.launch_end : nullptr);
  if (lent)
    device.workspaces_.give_back(*this, lent);
}

void Stream::await(uint64_t ticket) {
  if (done_.load() >= ticket)
    return;
  check_not_forked();
  Waiting hurried;
  device.queue_.hurry();
  queue_.hurry();
  std::unique_lock lock(done_mutex_);
  waiters_.fetch_add(1);
  done_changed_.wait(lock, [&] { return done_.load() >= ticket; });
  waiters_.fetch_sub(1);
}

void Stream::wait(uint64_t ticket) {
  await(ticket);
  device.throw_pending_fault();
}

void Stream::finish() {
  await(issued_.load());
}

void Stream::synchronize() {
  synchronize(issued_.load());
}

void Stream::synchronize(uint64_t ticket) {
  CallSpan span(Call::synchronize_stream, device.number, static_cast<uint64_t>(number));
  wait(ticket);
}

bool Stream::idle() const {
  return done_.load() >= issued_.load();
}

void Stream::work() {
  worker_.begin();
  at::DisableRecordFunctionGuard unobserved;
  at::AutoDispatchBelowADInplaceOrView plain_kernels;
  set_kernel_threads(settings().threads);
  set_current_device(device.number);  // whose generator kernels draw from
  for (;;) {
    for (Task* task : next_tasks()) {
      worker_.between_tasks();
      task->record.task = ++launched_;
      execute(*task);
      delete task;
      queue_.release();
      done_.fetch_add(1);
      if (waiters_.load() > 0) {
        std::lock_guard lock(done_mutex_);
        done_changed_.notify_all();
      }
    }
  }
}

std::deque<Task*> Stream::next_tasks() {
  const Rest idle;
  return queue_.take();
}

void Stream::execute(Task& task) {
  TaskRecord& r = task.record;
  // A task called before recording began has no launch: it is left out whole.
  const bool recorded = r.launch_start && timing();
  const int64_t start = recorded || r.modelled_ns ? now_ns() : 0;
  try {
    task.run();
  } catch (const std::exception& fault) {
    r.flags |= kTaskFailed;
    if (task.fault_of_caller) {
      *task.fault_of_caller = std::current_exception();
    } else {
      auto* error = dynamic_cast<const c10::Error*>(&fault);
      device.fail(task.name() + " failed on npu:" + std::to_string(device.number) + ", stream " + std::to_string(number) + ": " +
                  (error ? error->what_without_backtrace() : fault.what()));
    }
  }
  int64_t end = start ? now_ns() : 0;
  if (r.modelled_ns && end < start + r.modelled_ns) {
    end = start + r.modelled_ns;  // how late a sleeper wakes is no property of the kernel
    const Rest asleep;
    sleep_until(end);
  }
  if (recorded) {
    r.start = start;
    r.end = end;
    if (r.dequeue_start)
      r.dequeue_end = r.launch_end;  // nothing follows the launch
    if (recording()) {
      records.add(r);
      task.recorded();
    }
    if (activities_flag.load(std::memory_order_relaxed))
      activity_records().add(r);
  }
}

// -------------------------------------------------------------------------------------------------------- device

Device::Device(int number) : number(number) {
  streams_.resize(1 + kStreamPool);
}

Stream& Device::stream(int64_t wanted) {
  check_not_forked();
  expect_forks_with_threads();  // before a lock is taken that a child would find taken
  if (settings().task_queue)
    std::call_once(started_, [this] { start_thread("acl_thread", [this] { dequeue(); }); });
  std::lock_guard lock(mutex_);
  TORCH_CHECK(wanted >= 0 && wanted < static_cast<int64_t>(streams_.size()), "npu:", number, " has no stream ", wanted);
  auto& stream = streams_[static_cast<size_t>(wanted)];
  if (!stream)
    stream = std::make_unique<Stream>(*this, static_cast<int>(wanted));
  return *stream;
}

int64_t Device::new_stream() {
  check_not_forked();
  int64_t wanted;
  {
    std::lock_guard lock(mutex_);
    wanted = 1 + made_++ % kStreamPool;
  }
  CallSpan span(Call::create_stream, number, static_cast<uint64_t>(wanted));
  stream(wanted);
  return wanted;
}

int64_t Device::reserve_stream() {
  std::lock_guard lock(mutex_);
  streams_.emplace_back();
  return static_cast<int64_t>(streams_.size()) - 1;
}

std::vector<Stream*> Device::streams() {
  std::lock_guard lock(mutex_);
  std::vector<Stream*> all;
  for (auto& stream : streams_)
    if (stream)
      all.push_back(stream.get());
  return all;
}

void Device::synchronize() {
  check_not_forked();
  CallSpan span(Call::synchronize_device, number, 0);
  for (Stream* stream : streams())
    stream->wait(stream->issued_.load());
}

void Device::dequeue() {
  for (;;) {
    for (Task* task : queue_.take()) {
      task->stream->launch(task);
      queue_.release();
    }
  }
}

void Device::fail(const std::string& what) {
  std::lock_guard lock(fault_mutex_);
  if (!faulty_.load())
    fault_ = what;
  faulty_ = true;
}

void Device::throw_pending_fault() {
  if (C10_LIKELY(!faulty_.load(std::memory_order_acquire)))
    return;
  std::string what;
  {
    std::lock_guard lock(fault_mutex_);
    if (!faulty_.exchange(false))
      return;
    what.swap(fault_);
  }
  TORCH_CHECK(false, what);
}

int device_count() {
  return settings().devices;
}

Device& device(int number) {
  static auto* devices = [] {
    auto* all = new std::vector<std::unique_ptr<Device>>;
    for (int i = 0; i < device_count(); i++)
      all->push_back(std::make_unique<Device>(i));
    return all;
  }();
  TORCH_CHECK(number >= 0 && number < device_count(), "there is no npu:", number, ", STEPSCOPE_SIM_DEVICES is ", device_count());
  return *(*devices)[static_cast<size_t>(number)];
}

int current_device() {
  return place.device;
}

void set_current_device(int number) {
  TORCH_CHECK(number >= 0 && number < device_count(), "there is no npu:", number, ", STEPSCOPE_SIM_DEVICES is ", device_count());
  place.device = number;
}

int64_t current_stream_number(int device) {
  return place.streams[static_cast<size_t>(device)];
}

Stream& current_stream(int number) {
  static thread_local std::vector<Stream*> last(static_cast<size_t>(device_count()), nullptr);
  Stream*& stream = last[static_cast<size_t>(number)];
  if (C10_UNLIKELY(!stream || stream->number != current_stream_number(number)))
    stream = &device(number).stream(current_stream_number(number));
  return *stream;
}

void set_current_stream(int device, int64_t number) {
  place.streams[static_cast<size_t>(device)] = number;
}

// --------------------------------------------------------------------------------------------------------- event

void Event::record(Stream& stream) {
  check_not_forked();
  if (!state_) {
    state_ = std::make_shared<State>();
    state_->number = events.fetch_add(1) + 1;
  }
  uint64_t wanted;
  {
    std::lock_guard lock(state_->mutex);
    wanted = ++state_->wanted;
    state_->stream = &stream;
  }
  const int64_t called = timing() ? now_ns() : 0;
  auto task = make_task("event record", TaskKind::event_record, [state = state_, wanted] {
    std::lock_guard lock(state->mutex);
    state->reached = std::max(state->reached, wanted);
    state->time_ns = now_ns();
    state->changed.notify_all();
  });
  task->record.event = state_->number;
  stream.submit(std::move(task), called);
}

void Event::block(Stream& stream) {
  if (!state_)
    return;
  check_not_forked();
  uint64_t wanted;
  {
    std::lock_guard lock(state_->mutex);
    wanted = state_->wanted;
  }
  const int64_t called = timing() ? now_ns() : 0;
  auto task = make_task("event wait", TaskKind::event_wait, [state = state_, wanted] {
    const Rest waiting;
    std::unique_lock lock(state->mutex);
    state->changed.wait(lock, [&] { return state->reached >= wanted; });
  });
  task->record.event = state_->number;
  stream.submit(std::move(task), called);
}

void Event::synchronize() {
  if (!state_)
    return;
  check_not_forked();
  Stream* stream;
  {
    CallSpan span(Call::synchronize_event, state_->stream->device.number, state_->number);
    Waiting hurried;
    state_->stream->device.queue_hurry();
    std::unique_lock lock(state_->mutex);
    const uint64_t wanted = state_->wanted;
    stream = state_->stream;
    state_->changed.wait(lock, [&] { return state_->reached >= wanted; });
  }
  stream->device.throw_pending_fault();
}

bool Event::query() const {
  if (!state_)
    return true;
  check_not_forked();
  std::lock_guard lock(state_->mutex);
  return state_->reached >= state_->wanted;
}

int64_t Event::time_ns() {
  TORCH_CHECK(state_, "the event was never recorded");
  synchronize();
  std::lock_guard lock(state_->mutex);
  return state_->time_ns;
}

}  // namespace simnpu
