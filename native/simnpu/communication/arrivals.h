// SPDX-License-Identifier: Apache-2.0
// When each rank of a group entered each of its operators: processes of one machine write it into memory they share.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace simnpu {

// Who entered what: rows of the shared table.
struct Meeting {
  enum Kind : uint8_t { collective, send, receive } kind;
  int from, to;  // ranks of a message
};

class Arrivals {
 public:
  // Takes a file that all ranks opened and that begins with `token`; without one (-1) nothing is shared.
  Arrivals(int size, int file, const std::string& token);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;

  static size_t bytes(int size);
  void enter(const Meeting& meeting, int rank, int64_t number, int64_t time_ns);
  // From now on nobody can tell which message is the n-th of a pair.
  void forget_order();
  // 0: not known (not there yet, long past, or on another machine)
  int64_t entered(const Meeting& meeting, int rank, int64_t number) const;

 private:
  struct Slot {
    std::atomic<int64_t> number, time_ns;
  };
  Slot* slot(const Meeting& meeting, int rank, int64_t number) const;
  const int size_;
  void* memory_ = nullptr;
};

}  // namespace simnpu
