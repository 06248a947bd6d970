// SPDX-License-Identifier: Apache-2.0
// One capture at a time: which threads record, the writer thread, start and stop.
#pragma once
#include <linux/membarrier.h>
#include <pthread.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include "writer.h"

#ifdef OBSERVER_DYNAMIC_TLS
#define OBSERVER_TLS
#else
#define OBSERVER_TLS __attribute__((tls_model("initial-exec")))
#endif

namespace observer {

enum class Phase { Idle, Prepared, Recording };

struct Session {
  std::mutex mutex;  // of everything below that is not atomic; never taken per record
  std::condition_variable wake;
  std::timed_mutex writing;  // held by the writer's thread while it writes, and over a fork
  std::atomic<bool> recording{false};
  Phase phase = Phase::Idle;
  uint32_t options = 0;
  uint64_t generation = 0;
  uint64_t most_bytes = 0;
  bool ending = false;
  bool flush_wanted = false;
  uint64_t drains_begun = 0, drains_done = 0;
  std::condition_variable drained;
  uint64_t silent_since = 0;  // tick from which nothing is recorded; 0 while something is
  std::atomic<bool> limit_reached{false};
  std::vector<std::unique_ptr<Stream>> streams;  // of all threads that ever recorded; reused when their thread is gone
  std::vector<Stream*> joined;                   // new in this capture, not yet known to the writer
  std::thread thread;
  Pool pool;
  Callees callees;
  Writer writer{pool, callees};
  uint64_t dropped = 0;
  at::CallbackHandle global_handle = 0;
  uint64_t next_range = 1;
  std::unordered_map<uint64_t, Op*> ranges;  // ranges that may end on another thread
};

// Replaced in a forked child, where locks and threads of the parent mean nothing. Never destroyed: threads may outlive main.
inline std::atomic<Session*> the_session{nullptr};
inline uint64_t generations = 0;

inline Session& session() {
  return *the_session.load(std::memory_order_relaxed);
}

inline thread_local OBSERVER_TLS Stream* t_stream = nullptr;

struct ThreadState {
  at::CallbackHandle handle = 0;  // of the callback of this thread, 0 for none
  uint64_t handle_generation = 0;
  uint32_t options = 0;
  bool ended = false;
  ~ThreadState() {
    ended = true;
    if (t_stream)
      t_stream->dead.store(true, std::memory_order_release);
    t_stream = nullptr;
  }
};
inline thread_local ThreadState t_state;

inline bool has_membarrier = false;

struct Busy {
  Stream* stream;
  bool recording;
  OBSERVER_HOT explicit Busy(Stream* s) : stream(s) {
    s->busy.store(1, std::memory_order_relaxed);
    // Stop makes every core see this order by a membarrier, so that it costs nothing here.
    if (__builtin_expect(has_membarrier, 1))
      std::atomic_signal_fence(std::memory_order_seq_cst);
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
    recording = s->live.load(std::memory_order_relaxed);
  }
  OBSERVER_HOT ~Busy() {
    stream->busy.store(0, std::memory_order_release);
  }
};

inline void wake_writer() {
  session().wake.notify_one();
}

void report_memory_of_this_thread();

// Let this thread record; null when nothing is recorded or this thread is not asked for.
__attribute__((noinline)) inline Stream* join_session() {
  Session& s = session();
  if (!s.recording.load(std::memory_order_relaxed) || t_state.ended)
    return nullptr;
  // A callback left over from a capture that has ended: its thread did not ask for this one.
  if (t_state.handle && t_state.handle_generation != s.generation && !(s.options & kAllThreads))
    return nullptr;
  Stream* mine = t_stream;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    if (!s.recording.load(std::memory_order_relaxed))
      return nullptr;
    if (!mine) {
      for (auto& stream : s.streams)
        if (stream->dead.load(std::memory_order_acquire) && stream->generation != s.generation)
          mine = stream.get();
      if (!mine) {
        s.streams.push_back(std::make_unique<Stream>());
        mine = s.streams.back().get();
      }
    }
    bool own = t_state.handle && t_state.handle_generation == s.generation;
    mine->attach(s.pool, wake_writer, own ? t_state.options : s.options, s.options & kAllThreads, s.generation);
    mine->live.store(true, std::memory_order_relaxed);
    s.joined.push_back(mine);
  }
  t_stream = mine;
  if (mine->options & kMemory)
    report_memory_of_this_thread();
  return mine;
}

OBSERVER_HOT Stream* current_stream() {
  Stream* stream = t_stream;
  if (__builtin_expect(stream && stream->live.load(std::memory_order_relaxed), 1))
    return stream;
  return join_session();
}

}  // namespace observer
