// SPDX-License-Identifier: Apache-2.0
#include "communication/arrivals.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>

namespace simnpu {
namespace {

constexpr size_t kHead = 64;  // the token, and in the last byte whether messages lost their order
constexpr size_t kSlots = 256;  // operators one rank may be ahead of another

}  // namespace

size_t Arrivals::bytes(int size) {
  const auto n = static_cast<size_t>(size);
  return kHead + (n + 2 * n * n) * kSlots * sizeof(Slot);
}

Arrivals::Arrivals(int size, int file, const std::string& token) : size_(size) {
  struct stat facts;
  if (file < 0 || token.size() >= kHead || fstat(file, &facts) != 0 || static_cast<size_t>(facts.st_size) < bytes(size))
    return;
  void* memory = mmap(nullptr, bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED)
    return;
  if (memcmp(memory, token.data(), token.size()) == 0)
    memory_ = memory;
  else
    munmap(memory, bytes(size));
}

Arrivals::~Arrivals() {
  if (memory_)
    munmap(memory_, bytes(size_));
}

Arrivals::Slot* Arrivals::slot(const Meeting& meeting, int rank, int64_t number) const {
  if (!memory_)
    return nullptr;
  const auto n = static_cast<size_t>(size_);
  const size_t pair = static_cast<size_t>(meeting.from) * n + static_cast<size_t>(meeting.to);
  const size_t row = meeting.kind == Meeting::collective ? static_cast<size_t>(rank)
                                                         : n + pair + (meeting.kind == Meeting::receive ? n * n : 0);
  auto* slots = reinterpret_cast<Slot*>(static_cast<char*>(memory_) + kHead);
  return slots + row * kSlots + static_cast<size_t>(number) % kSlots;
}

void Arrivals::enter(const Meeting& meeting, int rank, int64_t number, int64_t time_ns) {
  if (Slot* at = slot(meeting, rank, number)) {
    at->number.store(0);
    at->time_ns.store(time_ns);
    at->number.store(number);
  }
}

void Arrivals::forget_order() {
  if (memory_)
    static_cast<std::atomic<char>*>(memory_)[kHead - 1] = 1;
}

int64_t Arrivals::entered(const Meeting& meeting, int rank, int64_t number) const {
  const Slot* at = slot(meeting, rank, number);
  if (!at || at->number.load() != number)
    return 0;
  if (meeting.kind != Meeting::collective && static_cast<std::atomic<char>*>(memory_)[kHead - 1])
    return 0;
  const int64_t time = at->time_ns.load();
  return at->number.load() == number ? time : 0;
}

}  // namespace simnpu
