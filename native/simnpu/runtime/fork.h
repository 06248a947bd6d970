// SPDX-License-Identifier: Apache-2.0
// What a fork needs: no worker inside a kernel. There it may hold a lock of torch's, or be half through the
// initialisation of a static variable, and the child would wait for it without end.
//
// So a fork holds the workers first: each goes on until it is at rest, and stays there until the child exists. At rest is
// who waits for tasks, for an event or for its modelled time, and who is between two tasks: queues are not drained. A
// collective that waits for other ranks rests too, or nobody could fork before they come.
//
// The child has no workers. All that would need them, or a lock that another thread may have held, asks
// in_forked_child() before: so no lock of the device matters there.
#pragma once
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>
#include <mutex>

namespace simnpu {

// Worker threads do not live in a forked child: using the device there must fail, not hang.
bool in_forked_child();
void check_not_forked();
void expect_forks_with_threads();  // from now on children cannot use the device

// A thread that runs kernels.
class Worker {
 public:
  Worker();  // at rest, on the thread that makes it; never destroyed
  Worker(const Worker&) = delete;
  void begin();  // on its own thread
  void between_tasks() {
    if (C10_UNLIKELY(forks_.load(std::memory_order_relaxed) > 0)) {
      rest(State::resting);
      resume();
    }
  }

 private:
  friend class Rest;
  friend class Forks;
  enum class State : uint8_t { working, resting, with_peers };
  void rest(State how);
  void resume();  // waits while the process forks

  static inline std::atomic<int> forks_{0};  // under way
  std::atomic<State> state_{State::resting};
};

// While it lives this thread, if it is a worker, holds no lock that matters and runs nothing of torch.
class Rest {
 public:
  enum class For : uint8_t { itself, peers };  // for peers: threads of gloo work meanwhile
  explicit Rest(For whom = For::itself);
  ~Rest();
  Rest(const Rest&) = delete;

 private:
  Worker* const worker_;
};

// Waits until no worker runs a kernel, some seconds at most, and keeps it so until released by the same thread. May be nested.
void hold_workers();
void release_workers();

// A lock that is held while the process forks, so that the child finds what it guards whole. For what is guarded but a
// moment, and never while something else is waited for.
std::mutex& held_over_forks();

}  // namespace simnpu
