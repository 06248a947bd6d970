// SPDX-License-Identifier: Apache-2.0
// What a thread records: one stream of records in chunks, written by that thread alone and read by the writer thread.
//
// No lock and no allocation per record: a record is placed behind the last one and published by one release store.
// Texts (operator names, descriptions of inputs) are written into the stream once and referred to by number.
#pragma once
#include <ATen/record_function.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "clock.h"

namespace observer {

enum Option : uint32_t {
  kShapes = 1,
  kMemory = 2,
  kStack = 4,
  kModules = 8,
  kFlops = 16,
  kAllThreads = 32,
  kHostMemoryOnly = 64,  // the device's own recorder writes its memory
};

inline bool wants_inputs(uint32_t options) {
  return options & (kShapes | kFlops);
}

// framework-raw.md 4.1: tensors are named only when a memory timeline could be made of them.
inline bool wants_tensors(uint32_t options) {
  return (options & kShapes) && (options & kMemory) && (options & (kStack | kModules));
}

enum class Kind : uint8_t {
  Op = 1,
  Name,
  Inputs,
  ForgetNames,
  ForgetInputs,
  Memory,
  Call,
  CCall,
  Return,
  CReturn,
  CloseCalls,
  Mark
};

enum Flag : uint8_t { kAsync = 1, kNameInside = 2 };

struct Head {
  Kind kind;
  uint8_t scope;  // Memory: device type; Mark: category
  uint8_t flags;  // Memory: device index
  std::atomic<uint8_t> gone;
  uint32_t words;  // 8-byte words behind the fixed part; Call: number of the callee
};
static_assert(sizeof(Head) == 8);

// An operator or range. It IS the context that torch hands from the start to the end callback, so the end callback
// finds it whatever thread it runs on, and nothing is allocated for it.
struct Op final : at::ObserverContext {
  uint64_t start;
  std::atomic<uint64_t> end;  // 0 while it runs
  int64_t sequence;
  uint32_t forward_thread, end_thread;
  uint32_t name, inputs;  // numbers in the stream; `name` is a length when the name is inside

  Head& head() {
    return reinterpret_cast<Head*>(this)[-1];
  }
  static void* operator new(size_t, void* place) {
    return place;
  }
  // torch destroys the context some time after the end callback, through the vtable pointer in this memory:
  // only from here on may the memory be used again.
  static void operator delete(void* place) {
    reinterpret_cast<Head*>(place)[-1].gone.store(1, std::memory_order_release);
  }
};
static_assert(sizeof(Op) == 48);
constexpr size_t kOpSize = sizeof(Head) + sizeof(Op);

struct MemoryEvent {
  Head head;
  uint64_t time, address;
  int64_t size;
  uint64_t allocated, reserved;
};

struct CallEvent {
  Head head;
  uint64_t time;
};

struct Definition {  // Name, Inputs
  Head head;
  uint32_t number, length;
};

struct MarkEvent {
  Head head;
  uint64_t time, correlation;
  uint64_t length;
};

inline size_t padded(size_t bytes) {
  return (bytes + 7) & ~size_t{7};
}

struct Chunk {
  static constexpr size_t kBytes = 256 * 1024;
  std::atomic<uint32_t> used{0};
  std::atomic<Chunk*> next{nullptr};
  uint32_t unfinished = 0;  // records the writer still waits for
  alignas(64) char bytes[kBytes];
};

// All chunks of the process. Its size bounds the memory of a capture; when it is empty records are dropped and counted.
class Pool {
 public:
  static constexpr size_t kMost = 160;  // 40 MiB

  void fill(size_t count) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (free_.size() < count && made_ < kMost) {
      Chunk* chunk = new Chunk;
      memset(chunk->bytes, 0, Chunk::kBytes);  // touch the pages now, not in a training step
      free_.push_back(chunk);
      made_++;
    }
    left_ = kMost - made_ + free_.size();
  }

  Chunk* take() {
    if (!left_.load(std::memory_order_relaxed))
      return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    Chunk* chunk = nullptr;
    if (!free_.empty()) {
      chunk = free_.back();
      free_.pop_back();
    } else if (made_ < kMost && (chunk = new (std::nothrow) Chunk)) {
      made_++;
    }
    left_ = kMost - made_ + free_.size();
    if (chunk) {
      chunk->used.store(0, std::memory_order_relaxed);
      chunk->next.store(nullptr, std::memory_order_relaxed);
      chunk->unfinished = 0;
    }
    return chunk;
  }

  void give(Chunk* chunk) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(chunk);
    left_ = kMost - made_ + free_.size();
  }

  // Keep a little for the next capture, return the rest to the system.
  void shrink(size_t keep) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (free_.size() > keep) {
      delete free_.back();
      free_.pop_back();
      made_--;
    }
    left_ = kMost - made_ + free_.size();
  }

 private:
  std::mutex mutex_;
  std::vector<Chunk*> free_;
  size_t made_ = 0;
  std::atomic<size_t> left_{kMost};
};

// Sixteen bytes per multiplication; the last step reads the end of the text once more.
OBSERVER_HOT uint64_t hash_bytes(const char* s, size_t n) {
  auto read = [](const char* p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
  };
  auto mix = [](uint64_t a, uint64_t b) {
    __uint128_t product = static_cast<__uint128_t>(a ^ 0x9E3779B97F4A7C15ull) * (b ^ 0xff51afd7ed558ccdull);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t h = n * 0xc4ceb9fe1a85ec53ull;
  if (n < 16) {
    uint64_t a = 0, b = 0;
    memcpy(&a, s, std::min<size_t>(n, 8));
    if (n > 8)
      memcpy(&b, s + 8, n - 8);
    return mix(a ^ h, b);
  }
  const char* last = s + n - 16;
  for (; s < last; s += 16)
    h = mix(read(s) ^ h, read(s + 8));
  return mix(read(last) ^ h, read(last + 8));
}

// Numbers for texts, of one thread. Bounded: the owner forgets everything when it is full.
class Texts {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Entry {
    uint64_t hash = 0;
    uint32_t offset = 0, length = 0, number = kNone;
  };

  // An entry with the number kNone when the text is new.
  OBSERVER_HOT const Entry& find(const char* text, size_t length, uint64_t hash) const {
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Entry& entry = table_[i];
      if (entry.number == kNone ||
          (entry.hash == hash && entry.length == length && !memcmp(arena_.data() + entry.offset, text, length)))
        return entry;
    }
  }

  uint32_t add(const char* text, size_t length, uint64_t hash) {
    if ((count_ + 1) * 2 > table_.size())
      grow();
    place({hash, static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(length), count_});
    arena_.append(text, length);
    arena_.push_back('\0');
    return count_++;
  }

  uint32_t count() const {
    return count_;
  }

  bool full() const {
    return count_ >= 16384 || arena_.size() > (1u << 21);
  }

  void clear() {
    if (!count_)
      return;
    table_.assign(kSmallest, Entry{});
    mask_ = kSmallest - 1;
    arena_.clear();
    count_ = 0;
  }

  const char* at(size_t offset) const {
    return arena_.data() + offset;
  }

 private:
  static constexpr size_t kSmallest = 1024;

  void place(const Entry& entry) {
    size_t i = entry.hash & mask_;
    while (table_[i].number != kNone)
      i = (i + 1) & mask_;
    table_[i] = entry;
  }

  void grow() {
    std::vector<Entry> old = std::move(table_);
    table_.assign(old.size() * 2, Entry{});
    mask_ = table_.size() - 1;
    for (const Entry& entry : old)
      if (entry.number != kNone)
        place(entry);
  }

  std::vector<Entry> table_ = std::vector<Entry>(kSmallest);
  size_t mask_ = kSmallest - 1;
  std::string arena_;
  uint32_t count_ = 0;
};

// A buffer that grows and never shrinks: after the first operators nothing is allocated any more.
struct Scratch {
  std::vector<char> bytes = std::vector<char>(4096);
  size_t size = 0;
  OBSERVER_HOT char* need(size_t more) {
    if (__builtin_expect(size + more > bytes.size(), 0))
      bytes.resize((size + more) * 2);
    return bytes.data() + size;
  }
  void put(uint8_t value) {
    *need(1) = static_cast<char>(value);
    size++;
  }
  template <class T>
  void put_value(T value) {
    memcpy(need(sizeof value), &value, sizeof value);
    size += sizeof value;
  }
};

struct Stream {
  // Written by the thread
  alignas(64) std::atomic<uint32_t> busy{0};
  std::atomic<bool> live{false};  // cleared by stop; set only by the thread itself, under the session's lock
  uint32_t options = 0;
  bool global = false;  // records for the callback of all threads, not for one of its own
  char* here = nullptr;
  char* limit = nullptr;
  Chunk* chunk = nullptr;
  Pool* pool = nullptr;
  void (*wake)() = nullptr;
  uint32_t until_wake = 0;
  Texts names, inputs;
  Scratch scratch;
  std::vector<uint64_t> addresses = std::vector<uint64_t>(64);
  size_t address_count = 0;
  std::vector<Op*> ranges;
  Op* step = nullptr;
  uint32_t skipped_calls = 0, owed_returns = 0;
  struct Seen {
    const char* pointer = nullptr;
    uint32_t offset = 0, number = 0;
  };
  Seen seen[512];
  std::atomic<uint64_t> dropped{0};

  // Read by the writer
  std::atomic<Chunk*> first{nullptr};
  std::atomic<bool> dead{false};
  uint32_t thread = 0;
  uint64_t logical_thread = 0;
  uint64_t generation = 0;

  void attach(Pool& chunks, void (*waker)(), uint32_t wanted, bool for_all, uint64_t session) {
    pool = &chunks;
    wake = waker;
    options = wanted;
    global = for_all;
    generation = session;
    thread = static_cast<uint32_t>(syscall(SYS_gettid));
    logical_thread = at::RecordFunction::currentThreadId();
    here = limit = nullptr;
    chunk = nullptr;
    first.store(nullptr, std::memory_order_relaxed);
    names.clear();
    inputs.clear();
    ranges.clear();
    ranges.reserve(64);
    step = nullptr;
    skipped_calls = owed_returns = 0;
    dropped.store(0, std::memory_order_relaxed);
    std::fill(std::begin(seen), std::end(seen), Seen{});
    dead.store(false, std::memory_order_relaxed);
  }

  OBSERVER_HOT char* reserve(size_t bytes) {
    if (__builtin_expect(static_cast<size_t>(limit - here) >= bytes, 1))
      return here;
    return next_chunk(bytes);
  }

  OBSERVER_HOT void publish(size_t bytes) {
    here += bytes;
    chunk->used.store(static_cast<uint32_t>(here - chunk->bytes), std::memory_order_release);
  }

  OBSERVER_HOT void add_address(uint64_t address) {
    if (__builtin_expect(address_count == addresses.size(), 0))
      addresses.resize(address_count * 2);
    addresses[address_count++] = address;
  }

  void count_dropped() {
    dropped.store(dropped.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  uint32_t name_number(const char* name) {
    Seen& known = seen[(reinterpret_cast<uintptr_t>(name) >> 3) % 512];
    // The pointer of an operator's name is stable, that of an autograd node's is not: compare the text too.
    if (known.pointer == name && !strcmp(names.at(known.offset), name))
      return known.number;
    size_t length = strlen(name);
    uint64_t hash = hash_bytes(name, length);
    if (names.find(name, length, hash).number == Texts::kNone) {
      if (names.full() && !forget(Kind::ForgetNames, names))
        return Texts::kNone;
      if (!define(Kind::Name, names, name, length, hash))
        return Texts::kNone;
    }
    const Texts::Entry& entry = names.find(name, length, hash);
    known = {name, entry.offset, entry.number};
    return entry.number;
  }

  uint32_t inputs_number() {
    uint64_t hash = hash_bytes(scratch.bytes.data(), scratch.size);
    uint32_t number = inputs.find(scratch.bytes.data(), scratch.size, hash).number;
    if (number != Texts::kNone)
      return number;
    if ((inputs.full() && !forget(Kind::ForgetInputs, inputs)) ||
        !define(Kind::Inputs, inputs, scratch.bytes.data(), scratch.size, hash))
      return Texts::kNone;
    return inputs.count() - 1;
  }

  // A range or operator without torch's context.
  Op* open_range(const char* name, size_t length, uint8_t scope) {
    length = std::min<size_t>(length, 32768);
    size_t extra = padded(length);
    char* place = reserve(kOpSize + extra);
    if (!place) {
      count_dropped();
      return nullptr;
    }
    new (place) Head{Kind::Op, scope, kNameInside, {0}, static_cast<uint32_t>(extra / 8)};
    Op* op = new (place + sizeof(Head)) Op;
    op->end.store(0, std::memory_order_relaxed);
    op->sequence = -1;
    op->forward_thread = 0;
    op->end_thread = thread;
    op->name = static_cast<uint32_t>(length);
    op->inputs = Texts::kNone;
    memcpy(place + kOpSize, name, length);
    op->start = tick();
    publish(kOpSize + extra);
    return op;
  }

  static void close_range(Op* op, uint32_t end_thread) {
    op->end_thread = end_thread;
    op->end.store(tick(), std::memory_order_release);
    op->head().gone.store(1, std::memory_order_release);
  }

  OBSERVER_HOT bool call_event(Kind kind, uint32_t callee, uint64_t time) {
    char* place = reserve(sizeof(CallEvent));
    if (__builtin_expect(!place, 0)) {
      count_dropped();
      return false;
    }
    new (place) CallEvent{{kind, 0, 0, {1}, callee}, time};
    publish(sizeof(CallEvent));
    return true;
  }

 private:
  static constexpr uint32_t kChunksPerWake = 4;

  __attribute__((noinline)) char* next_chunk(size_t bytes) {
    if (bytes > Chunk::kBytes)
      return nullptr;
    Chunk* fresh = pool->take();
    if (!fresh)
      return nullptr;
    if (chunk)
      chunk->next.store(fresh, std::memory_order_release);
    else
      first.store(fresh, std::memory_order_release);
    chunk = fresh;
    here = fresh->bytes;
    limit = fresh->bytes + Chunk::kBytes;
    // Waking the writer costs the training thread some microseconds, so it is done for several chunks at once.
    if (!until_wake--) {
      until_wake = kChunksPerWake - 1;
      wake();
    }
    return here;
  }

  bool define(Kind kind, Texts& texts, const char* text, size_t length, uint64_t hash) {
    size_t size = sizeof(Definition) + padded(length);
    char* place = reserve(size);
    if (!place)
      return false;
    uint32_t number = texts.add(text, length, hash);
    new (place) Definition{{kind, 0, 0, {1}, static_cast<uint32_t>(padded(length) / 8)}, number, static_cast<uint32_t>(length)};
    memcpy(place + sizeof(Definition), text, length);
    publish(size);
    return true;
  }

  bool forget(Kind kind, Texts& texts) {
    char* place = reserve(sizeof(Head));
    if (!place)
      return false;
    new (place) Head{kind, 0, 0, {1}, 0};
    publish(sizeof(Head));
    texts.clear();
    if (kind == Kind::ForgetNames)
      std::fill(std::begin(seen), std::end(seen), Seen{});
    return true;
  }
};

}  // namespace observer
