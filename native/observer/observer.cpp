// SPDX-License-Identifier: Apache-2.0
// The library's surface: plain C functions, called through ctypes. No exception leaves them.
#include "python_calls.h"
#include "session.h"

namespace observer {
namespace {

// ---- operators

template <bool kInputs, bool kGlobal>
std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  Stream* stream = current_stream();
  // A thread may still have a callback of its own from an older capture when all threads are recorded.
  if (__builtin_expect(!stream || stream->global != kGlobal, 0))
    return nullptr;
  Busy busy(stream);
  if (__builtin_expect(!busy.recording, 0))
    return nullptr;
  const char* name = fn.name();
  uint8_t scope = static_cast<uint8_t>(fn.scope());
  // The names of user ranges may all be different: they are written out, not numbered.
  bool inside = fn.scope() == at::RecordScope::USER_SCOPE;
  uint32_t inputs = Texts::kNone;
  size_t addresses = 0;
  if (kInputs) {
    bool named = wants_tensors(stream->options);
    try {
      bool with_values = (stream->options & kFlops) && !strcmp(name, "aten::conv2d");
      inputs = describe_inputs(*stream, fn.inputs(), named, with_values);
      addresses = named ? stream->address_count : 0;
    } catch (...) {  // a tensor that does not tell its sizes
      inputs = Texts::kNone;
    }
  }
  size_t length = inside ? std::min<size_t>(strlen(name), 32768) : 0;
  uint32_t number = inside ? static_cast<uint32_t>(length) : stream->name_number(name);
  size_t extra = padded(length) + addresses * 8;
  char* place = number == Texts::kNone ? nullptr : stream->reserve(kOpSize + extra);
  if (__builtin_expect(!place, 0)) {
    stream->count_dropped();
    return nullptr;
  }
  new (place) Head{Kind::Op, scope, static_cast<uint8_t>(inside ? kNameInside : 0), {0}, static_cast<uint32_t>(extra / 8)};
  Op* op = new (place + sizeof(Head)) Op;
  op->end.store(0, std::memory_order_relaxed);
  op->sequence = fn.seqNr();
  op->forward_thread = static_cast<uint32_t>(fn.forwardThreadId());
  op->end_thread = stream->thread;
  op->name = number;
  op->inputs = inputs;
  if (inside)
    memcpy(place + kOpSize, name, length);
  if (addresses)
    copy_numbers(place + kOpSize + padded(length), reinterpret_cast<const int64_t*>(stream->addresses.data()), addresses);
  op->start = tick();
  stream->publish(kOpSize + extra);
  return std::unique_ptr<at::ObserverContext>(op);
}

void on_end(const at::RecordFunction& fn, at::ObserverContext* context) {
  if (!context)
    return;
  uint64_t now = tick();
  Op* op = static_cast<Op*>(context);
  if (__builtin_expect(fn.isAsync(), 0)) {
    op->head().flags |= kAsync;
    op->end_thread = static_cast<uint32_t>(syscall(SYS_gettid));
  }
  op->end.store(now, std::memory_order_release);
}

at::RecordFunctionCallback callback(uint32_t options) {
  bool inputs = wants_inputs(options);
  bool global = options & kAllThreads;
  at::RecordFunctionCallback made(inputs ? (global ? &on_start<true, true> : &on_start<true, false>)
                                         : (global ? &on_start<false, true> : &on_start<false, false>),
                                  &on_end);
  made.needsInputs(inputs);
  return made;
}

// ---- memory

struct Reporter final : torch::profiler::impl::ProfilerStateBase {
  using Config = torch::profiler::impl::ProfilerConfig;
  Reporter() : ProfilerStateBase(Config(torch::profiler::impl::ProfilerState::Disabled, false, true)) {}
  bool memoryProfilingEnabled() const override {
    return session().recording.load(std::memory_order_relaxed);
  }
  void reportMemoryUsage(void* address, int64_t size, size_t allocated, size_t reserved, c10::Device device) override {
    Stream* stream = current_stream();
    if (!stream || !(stream->options & kMemory) || ((stream->options & kHostMemoryOnly) && !device.is_cpu()))
      return;
    Busy busy(stream);
    if (!busy.recording)
      return;
    char* place = stream->reserve(sizeof(MemoryEvent));
    if (!place) {
      stream->count_dropped();
      return;
    }
    new (place) MemoryEvent{{Kind::Memory, static_cast<uint8_t>(device.type()), static_cast<uint8_t>(device.index()), {1}, 0},
                            tick(),
                            reinterpret_cast<uint64_t>(address),
                            size,
                            allocated,
                            reserved};
    stream->publish(sizeof(MemoryEvent));
  }
  torch::profiler::impl::ActiveProfilerType profilerType() override {
    return torch::profiler::impl::ActiveProfilerType::NONE;
  }
};

std::shared_ptr<c10::DebugInfoBase>& reporter() {
  static auto* one = new std::shared_ptr<c10::DebugInfoBase>(std::make_shared<Reporter>());
  return *one;
}

bool reports_here() {
  return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == reporter().get();
}

void end_reports_here() {
  if (!reports_here())
    return;
  try {
    c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
  } catch (...) {  // something else lies on top of ours; ours is silent from now on
  }
}

}  // namespace

void report_memory_of_this_thread() {
  // The slot belongs to whoever took it first, torch.profiler included.
  if (!c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE))
    c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, reporter());
}

namespace {

// ---- writer thread

constexpr auto kFlushEvery = std::chrono::milliseconds(100);
constexpr auto kMostFlushWait = std::chrono::seconds(1);

void take_joined(Session& s) {
  for (Stream* stream : s.joined)
    s.writer.follow(stream);
  s.joined.clear();
}

// Our own ranges that are open end here; their threads do not touch them any more.
void close_ranges(Session& s) {
  for (auto& stream : s.streams) {
    if (stream->generation != s.generation)
      continue;
    for (Op* op : stream->ranges)
      if (op)
        Stream::close_range(op, stream->thread);
    stream->ranges.clear();
    if (stream->step)
      Stream::close_range(stream->step, stream->thread);
    stream->step = nullptr;
  }
  for (auto& [id, op] : s.ranges)
    Stream::close_range(op, op->end_thread);
  s.ranges.clear();
}

// Nobody records after this returns, except operators that are still open: they end in chunks nobody reuses.
void silence(Session& s, std::unique_lock<std::mutex>& lock) {
  s.recording.store(false);
  for (auto& stream : s.streams)
    stream->live.store(false);
  if (has_membarrier)
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
  std::vector<Stream*> all;
  for (auto& stream : s.streams)
    all.push_back(stream.get());
  lock.unlock();
  for (Stream* stream : all)
    while (stream->busy.load(std::memory_order_acquire))
      std::this_thread::yield();
  lock.lock();
  close_ranges(s);
  if (!s.silent_since)
    s.silent_since = tick();
}

void write_until_the_end() {
  Session& s = session();
  pthread_setname_np(pthread_self(), "stepscope-write");
  std::unique_lock<std::mutex> lock(s.mutex);
  while (!s.ending) {
    if (!s.flush_wanted)
      s.wake.wait_for(lock, kFlushEvery);
    if (s.ending)
      break;
    s.flush_wanted = false;
    uint64_t drain = ++s.drains_begun;
    take_joined(s);
    lock.unlock();
    bool over;
    {
      std::lock_guard<std::timed_mutex> writing(s.writing);
      s.writer.drain(false, 0);
      over = (s.most_bytes && s.writer.bytes() >= s.most_bytes) || s.writer.error();
    }
    lock.lock();
    s.drains_done = drain;
    s.drained.notify_all();
    if (over && s.recording.load()) {
      s.limit_reached = true;
      silence(s, lock);
    }
  }
  take_joined(s);
  s.drained.notify_all();
  lock.unlock();
  std::lock_guard<std::timed_mutex> writing(s.writing);
  s.writer.drain(true, s.silent_since);
  s.writer.finish();
}

// ---- fork

constexpr auto kMostForkWait = std::chrono::seconds(1);  // a disk may hang
thread_local Session* t_forking = nullptr;  // whose writer this thread holds

// The writer pauses between two writes: what it shares with the rest of the process is whole in the child.
void before_fork() {
  Session& s = session();
  t_forking = s.writing.try_lock_for(kMostForkWait) ? &s : nullptr;
}

void after_fork() {
  if (t_forking)
    t_forking->writing.unlock();
  t_forking = nullptr;
}

void in_child() {
  t_forking = nullptr;
  Session* parents = the_session.load();
  parents->writer.files.each([](File& file) { file.abandon(); });
  the_session.store(new Session);  // the parent's is leaked: its locks may be held by threads that are gone
  session().generation = ++generations;
  t_stream = nullptr;
}

void remove_own_callback() {
  if (t_state.handle)
    at::removeCallback(t_state.handle);
  t_state.handle = 0;
}

__attribute__((constructor)) void begin() {
  the_session.store(new Session);
  has_membarrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  pthread_atfork(before_fork, after_fork, in_child);
}

thread_local std::string t_error;

template <class F>
int guarded(F f) noexcept {
  try {
    return f();
  } catch (const std::exception& fault) {
    t_error = fault.what();
  } catch (...) {
    t_error = "unknown fault";
  }
  return -1;
}

int refuse(const char* why) {
  t_error = why;
  return -1;
}

}  // namespace
}  // namespace observer

using namespace observer;

#define API extern "C" __attribute__((visibility("default")))

API int stepscope_observer_abi() {
  return 4;
}

API const char* stepscope_observer_error() {
  return t_error.c_str();
}

// 0 idle, 1 prepared, 2 recording, 3 stopped itself: limit reached or files cannot be written
API int stepscope_observer_phase() {
  Session& s = session();
  return s.limit_reached ? 3 : static_cast<int>(s.phase);
}

API int stepscope_observer_prepare(const char* folder, uint32_t options, uint64_t most_bytes) {
  return guarded([&] {
    Session& s = session();
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.phase != Phase::Idle)
      return refuse("a capture is already prepared or running in this process");
    s.options = options;
    s.most_bytes = most_bytes;
    s.generation = ++generations;
    s.ending = false;
    s.flush_wanted = false;
    s.silent_since = 0;
    s.limit_reached = false;
    s.joined.clear();
    s.ranges.clear();
    {
      std::lock_guard<std::mutex> callees_lock(s.callees.mutex);
      s.callees.texts.clear();
    }
    s.writer.begin(folder);
    s.pool.fill(16);
    s.thread = std::thread(write_until_the_end);
    s.phase = Phase::Prepared;
    return 0;
  });
}

API int stepscope_observer_start() {
  return guarded([] {
    Session& s = session();
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      if (s.phase != Phase::Prepared)
        return refuse("prepare comes first");
      s.phase = Phase::Recording;
      s.recording = true;
    }
    remove_own_callback();
    if (s.options & kAllThreads) {
      s.global_handle = at::addGlobalCallback(callback(s.options));
    } else {
      t_state.handle = at::addThreadLocalCallback(callback(s.options));
      t_state.handle_generation = s.generation;
      t_state.options = s.options;
    }
    current_stream();
    return 0;
  });
}

struct Report {
  uint64_t ops, memory, calls, marks, bytes, dropped, threads, unfinished;
  int64_t error, limit_reached;
};

API int stepscope_observer_stop(Report* report) {
  return guarded([&] {
    Session& s = session();
    std::unique_lock<std::mutex> lock(s.mutex);
    if (s.phase == Phase::Idle)
      return refuse("nothing is running");
    silence(s, lock);
    s.ending = true;
    lock.unlock();
    if (s.global_handle)
      at::removeCallback(s.global_handle);
    s.global_handle = 0;
    remove_own_callback();
    end_reports_here();
    s.wake.notify_all();
    s.thread.join();
    auto threads = s.writer.threads();
    auto& files = s.writer.files;
    *report = {
        files.ops.records,   files.memory.records,
        files.calls.records, files.marks.records,
        s.writer.bytes(),    0,
        threads.size(),      0,
        s.writer.error(),    s.limit_reached && !s.writer.error(),
    };
    for (auto& thread : threads)
      report->dropped += thread.dropped;
    s.pool.shrink(16);
    lock.lock();
    s.phase = Phase::Idle;
    return 0;
  });
}

// Record nothing from here on, on any thread; stop comes later. For limits, which pass on a thread that may not stop.
API int stepscope_observer_silence() {
  return guarded([] {
    Session& s = session();
    std::unique_lock<std::mutex> lock(s.mutex);
    if (s.phase == Phase::Recording && s.recording.load())
      silence(s, lock);
    return 0;
  });
}

// Write out what was recorded until now, so that records of other sources that refer to it can follow. Waits for the writer,
// but not longer than a disk that hangs is worth.
API int stepscope_observer_flush() {
  return guarded([] {
    Session& s = session();
    std::unique_lock<std::mutex> lock(s.mutex);
    if (s.phase != Phase::Recording || s.ending)
      return 0;
    uint64_t wanted = s.drains_begun + 1;  // one that is on its way may have passed what was recorded last
    s.flush_wanted = true;
    s.wake.notify_one();
    s.drained.wait_for(lock, kMostFlushWait, [&] { return s.drains_done >= wanted || s.ending; });
    return 0;
  });
}

API int stepscope_observer_thread(uint64_t index, uint64_t* out) {
  auto threads = session().writer.threads();
  if (index >= threads.size())
    return -1;
  memcpy(out, &threads[index], sizeof threads[index]);
  return 0;
}

// ---- threads

API int stepscope_observer_enable_thread(uint32_t options) {
  return guarded([&] {
    Session& s = session();
    if (!s.recording)
      return refuse("no capture is running");
    if (s.options & kAllThreads)
      return 0;
    if (t_state.handle && t_state.handle_generation == s.generation)
      return refuse("this thread is already recorded");
    remove_own_callback();
    t_state.handle_generation = s.generation;
    t_state.options = options;
    t_state.handle = at::addThreadLocalCallback(callback(options & ~kAllThreads));
    current_stream();
    return 0;
  });
}

// Give the place of a profiler on this thread up (0) or take it again (1), where torch tells of memory. Returns whether it is ours.
API int stepscope_observer_report_memory(int on) {
  return guarded([&] {
    Stream* stream = on ? current_stream() : nullptr;
    if (!on)
      end_reports_here();
    else if (stream && (stream->options & kMemory))
      report_memory_of_this_thread();
    return static_cast<int>(reports_here());
  });
}

API int stepscope_observer_disable_thread() {
  return guarded([] {
    if (!t_state.handle)
      return refuse("this thread is not recorded");
    remove_own_callback();
    end_reports_here();
    return 0;
  });
}

// ---- ranges and marks of our own

API void stepscope_observer_push(const char* name, size_t length) {
  guarded([&] {
    Stream* stream = current_stream();
    if (!stream)
      return 0;
    Busy busy(stream);
    if (busy.recording)
      stream->ranges.push_back(stream->open_range(name, length, static_cast<uint8_t>(at::RecordScope::USER_SCOPE)));
    return 0;
  });
}

API void stepscope_observer_pop() {
  Stream* stream = current_stream();
  if (!stream)
    return;
  Busy busy(stream);
  if (!busy.recording || stream->ranges.empty())
    return;
  if (Op* op = stream->ranges.back())
    Stream::close_range(op, stream->thread);
  stream->ranges.pop_back();
}

// End the step of this thread, if one is open, and begin the next; length 0 only ends.
API void stepscope_observer_step(const char* name, size_t length) {
  Stream* stream = current_stream();
  if (!stream)
    return;
  Busy busy(stream);
  if (!busy.recording)
    return;
  if (stream->step)
    Stream::close_range(stream->step, stream->thread);
  stream->step = length ? stream->open_range(name, length, static_cast<uint8_t>(at::RecordScope::USER_SCOPE)) : nullptr;
}

// A range that may end on another thread; 0 when nothing is recorded.
API uint64_t stepscope_observer_range_start(const char* name, size_t length) {
  uint64_t id = 0;
  guarded([&] {
    Stream* stream = current_stream();
    if (!stream)
      return 0;
    Busy busy(stream);
    Op* op = busy.recording ? stream->open_range(name, length, static_cast<uint8_t>(at::RecordScope::USER_SCOPE)) : nullptr;
    if (!op)
      return 0;
    Session& s = session();
    std::lock_guard<std::mutex> lock(s.mutex);
    id = s.next_range++;
    s.ranges.emplace(id, op);
    return 0;
  });
  return id;
}

API void stepscope_observer_range_end(uint64_t id) {
  guarded([&] {
    Stream* stream = current_stream();
    if (!stream)
      return 0;
    Busy busy(stream);
    if (!busy.recording)
      return 0;
    Session& s = session();
    std::lock_guard<std::mutex> lock(s.mutex);
    auto found = s.ranges.find(id);
    if (found == s.ranges.end())
      return 0;
    Op* op = found->second;
    s.ranges.erase(found);
    if (op->end_thread != stream->thread)
      op->head().flags |= kAsync;
    Stream::close_range(op, stream->thread);
    return 0;
  });
}

// Category as in torch.op_mark: 0/1 enqueue start/end, 2/3 dequeue start/end.
API void stepscope_observer_mark(uint8_t category, uint64_t correlation, const char* name, size_t length) {
  Stream* stream = current_stream();
  if (!stream)
    return;
  Busy busy(stream);
  if (!busy.recording)
    return;
  length = std::min<size_t>(length, 4096);
  char* place = stream->reserve(sizeof(MarkEvent) + padded(length));
  if (!place) {
    stream->count_dropped();
    return;
  }
  new (place) MarkEvent{{Kind::Mark, category, 0, {1}, static_cast<uint32_t>(padded(length) / 8)}, tick(), correlation, length};
  memcpy(place + sizeof(MarkEvent), name, length);
  stream->publish(sizeof(MarkEvent) + padded(length));
}

// ---- Python calls; the caller holds the GIL

API int stepscope_observer_trace(const void* module_code, const void* optimizer_code, const char* prefixes, int instances) {
  return guarded([&] {
    if (!python.find())
      return refuse("this Python lacks a function of its C API that the tracer needs");
    forget_callees();
    calls.module_code = module_code;
    calls.optimizer_code = optimizer_code;
    calls.wants_instances = instances;
    calls.prefixes.clear();
    for (const char* p = prefixes; *p;) {
      const char* end = strchrnul(p, '\n');
      calls.prefixes.emplace_back(p, end);
      p = *end ? end + 1 : end;
    }
    return 0;
  });
}

API int stepscope_observer_trace_thread(int skip) {
  return guarded([&] {
    if (!session().recording)
      return refuse("no capture is running");
    record_open_calls(skip);
    python.set_profile(profile, nullptr);
    return 0;
  });
}

API void stepscope_observer_untrace_thread() {
  if (!python.set_profile)
    return;
  python.set_profile(nullptr, nullptr);
  Stream* stream = t_stream;
  if (!stream)
    return;
  Busy busy(stream);
  if (busy.recording)
    stream->call_event(Kind::CloseCalls, 0, tick());
}

API uint64_t stepscope_observer_instances() {
  return calls.instances.size();
}

// A new reference to the weak reference of a module (kind 0) or optimizer (kind 1).
API void* stepscope_observer_instance(uint64_t index, uint64_t* key, uint64_t* kind) {
  const Instance& instance = calls.instances.at(index);
  *key = instance.number;
  *kind = instance.optimizer;
  python.retain(instance.reference);
  return instance.reference;
}

API void stepscope_observer_forget_callees() {
  if (python.release)
    forget_callees();
}
