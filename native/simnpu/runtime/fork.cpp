// SPDX-License-Identifier: Apache-2.0
#include "runtime/fork.h"

#include <c10/util/Exception.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <vector>

#include "records.h"

namespace simnpu {
namespace {

using std::chrono::steady_clock;

constexpr auto kMostWait = std::chrono::seconds(10);  // for kernels: longer ones, or such that need the interpreter
constexpr auto kPeersWait = std::chrono::milliseconds(20);  // for threads of gloo to get to where they wait

std::atomic<bool> threads_started{false};
std::atomic<bool> forked{false};
thread_local Worker* this_worker = nullptr;
thread_local int holds = 0;  // of this thread

}  // namespace

class Forks {
 public:
  void add(Worker* worker) {
    std::lock_guard lock(mutex_);
    workers_.push_back(worker);
  }

  void tell() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  void wait_until_over() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [] { return Worker::forks_.load() == 0; });
  }

  void hold() {
    Worker::forks_.fetch_add(1);
    if (holds++ > 0 || forked.load())
      return;
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, steady_clock::now() + kMostWait, [&] { return !any(Worker::State::working); }))
      say("stepscope: the process forks although a kernel of the simulated NPU runs; the child may hang\n");
    if (any(Worker::State::with_peers))
      changed_.wait_until(lock, steady_clock::now() + kPeersWait, [&] { return !any(Worker::State::with_peers); });
  }

  void release() {
    holds--;
    // A forked child has no workers, and its copy of the condition still counts those that waited: it would wait for them.
    if (Worker::forks_.fetch_sub(1) == 1 && threads_started.load() && !forked.load())
      tell();
  }

  static Forks& all() {
    static auto* one = new Forks;
    return *one;
  }

  static void before() {
    hold_workers();
    held_over_forks().lock();
    all().mutex_.lock();
  }

  static void in_parent() {
    all().mutex_.unlock();
    held_over_forks().unlock();
    release_workers();
  }

  static void in_child() {
    forked = forked.load() || threads_started.load();
    if (forked.load())
      recording_flag = activities_flag = false;
    Worker::forks_ = 0;
    holds = 0;
    all().mutex_.unlock();
    held_over_forks().unlock();
  }

 private:
  bool any(Worker::State state) const {
    // A kernel may fork itself: its own worker is where it is.
    return std::any_of(workers_.begin(), workers_.end(),
                       [&](Worker* worker) { return worker != this_worker && worker->state_.load() == state; });
  }

  static void say(const char* text) {
    [[maybe_unused]] const auto done = write(2, text, strlen(text));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Worker*> workers_;
};

namespace {

[[maybe_unused]] const int fork_watch = [] {
  Forks::all();  // made before a fork can want them
  held_over_forks();
  return pthread_atfork(&Forks::before, &Forks::in_parent, &Forks::in_child);
}();

}  // namespace

bool in_forked_child() {
  return forked.load(std::memory_order_relaxed);
}

void check_not_forked() {
  TORCH_CHECK(
      !in_forked_child(),
      "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the 'spawn' start method");
}

void expect_forks_with_threads() {
  threads_started = true;
}

Worker::Worker() {
  Forks::all().add(this);
}

void Worker::begin() {
  this_worker = this;
  resume();
}

void Worker::rest(State how) {
  state_.store(how);
  if (C10_UNLIKELY(forks_.load() > 0))
    Forks::all().tell();
}

void Worker::resume() {
  for (;;) {
    state_.store(State::working);
    if (C10_LIKELY(forks_.load() == 0))  // both in one order for all threads: either we see the fork, or it sees us
      return;
    rest(State::resting);
    Forks::all().wait_until_over();
  }
}

Rest::Rest(For whom) : worker_(this_worker) {
  if (worker_)
    worker_->rest(whom == For::peers ? Worker::State::with_peers : Worker::State::resting);
}

Rest::~Rest() {
  if (worker_)
    worker_->resume();
}

void hold_workers() {
  Forks::all().hold();
}

void release_workers() {
  Forks::all().release();
}

std::mutex& held_over_forks() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace simnpu
