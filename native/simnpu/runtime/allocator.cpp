// SPDX-License-Identifier: Apache-2.0
#include "runtime/allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "runtime/runtime.h"

namespace simnpu {
namespace {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

// The sizes of the allocators people know from their memory plots.
constexpr size_t kRounding = 512;
constexpr size_t kSmallRequest = 1 << 20;
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kLargeSegment = 20 << 20;
constexpr size_t kOwnSegmentFrom = 10 << 20;
constexpr size_t kSegmentRounding = 2 << 20;
constexpr size_t kAlignment = 512;

size_t round_up(size_t size, size_t unit) {
  return (size + unit - 1) / unit * unit;
}

// A piece of a segment. Neighbours in the segment are linked, so that free ones can join.
struct Block {
  int64_t stream;
  size_t size;
  char* address;
  bool small;
  uint64_t stream_handle = 0;
  size_t requested = 0;
  bool allocated = false;
  int pending_events = 0;
  Block* before = nullptr;
  Block* after = nullptr;
  std::vector<int64_t> used_on{};  // other streams, from record_stream
  bool split() const {
    return before || after;
  }
};

struct BestFitOrder {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->stream, a->size, a->address) < std::tie(b->stream, b->size, b->address);
  }
};
using FreeBlocks = std::set<Block*, BestFitOrder>;

void change(StatArray& stats, bool small, int64_t by) {
  for (StatType type : {StatType::AGGREGATE, small ? StatType::SMALL_POOL : StatType::LARGE_POOL}) {
    auto& stat = stats[static_cast<size_t>(type)];
    if (by >= 0)
      stat.increase(static_cast<size_t>(by));
    else
      stat.decrease(static_cast<size_t>(-by));
  }
}

class DeviceMemory {
 public:
  explicit DeviceMemory(int number) : number_(number) {}

  void* malloc(size_t bytes, int64_t stream) {
    check_not_forked();
    std::lock_guard lock(mutex_);
    free_reached_blocks();
    const size_t size = round_up(std::max(bytes, kRounding), kRounding);
    Block* block = std::exchange(cut_up_, false) ? nullptr : take_free(size, stream);
    if (!block)
      block = new_segment(size, stream, bytes);
    cut(block, size);
    block->allocated = true;
    block->requested = bytes;
    live_[block->address] = block;
    change(stats_.allocation, block->small, 1);
    change(stats_.active, block->small, 1);
    change(stats_.allocated_bytes, block->small, signed_size(block));
    change(stats_.active_bytes, block->small, signed_size(block));
    change(stats_.requested_bytes, block->small, static_cast<int64_t>(bytes));
    report(MemoryKind::malloc, block, signed_size(block));
    return block->address;
  }

  void free(void* address) {
    if (in_forked_child())
      return;
    std::lock_guard lock(mutex_);
    auto found = live_.find(address);
    if (found == live_.end())
      return;
    Block* block = found->second;
    live_.erase(found);
    block->allocated = false;
    change(stats_.allocation, block->small, -1);
    change(stats_.allocated_bytes, block->small, -signed_size(block));
    change(stats_.requested_bytes, block->small, -static_cast<int64_t>(block->requested));
    report(MemoryKind::free, block, -signed_size(block));
    if (block->used_on.empty())
      return give_back(block);
    for (int64_t stream : std::exchange(block->used_on, {})) {
      pending_.emplace_back(Event(), block);
      pending_.back().first.record(device(number_).stream(stream));
      block->pending_events++;
    }
  }

  void record_stream(void* address, int64_t stream) {
    check_not_forked();
    std::lock_guard lock(mutex_);
    auto found = live_.find(address);
    if (found == live_.end() || found->second->stream == stream)
      return;
    auto& streams = found->second->used_on;
    if (std::find(streams.begin(), streams.end(), stream) == streams.end())
      streams.push_back(stream);
  }

  void empty_cache() {
    if (in_forked_child())
      return;
    std::lock_guard lock(mutex_);
    free_unused_segments();
    cut_up_ = settings().slow.malloc_ns > 0;
  }

  DeviceStats stats() {
    if (in_forked_child())
      return stats_;  // as they were, nearly: somebody may have changed them at the moment of the fork
    std::lock_guard lock(mutex_);
    DeviceStats copy = stats_;
    for (const FreeBlocks* blocks : {&small_, &large_})
      for (const Block* block : *blocks)
        if (block->split()) {
          change(copy.inactive_split, block->small, 1);
          change(copy.inactive_split_bytes, block->small, signed_size(block));
        }
    return copy;
  }

  void reset_peaks() {
    each_stat([](auto& stat) { stat.reset_peak(); });
  }

  void reset_accumulated() {
    each_stat([](auto& stat) { stat.reset_accumulated(); });
  }

  std::pair<size_t, size_t> free_and_total() {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (!in_forked_child())
      lock.lock();
    return {settings().memory_bytes - reserved_, settings().memory_bytes};
  }

 private:
  static int64_t signed_size(const Block* block) {
    return static_cast<int64_t>(block->size);
  }

  FreeBlocks& free_blocks(bool small) {
    return small ? small_ : large_;
  }

  Block* take_free(size_t size, int64_t stream) {
    const bool small = size <= kSmallRequest;
    FreeBlocks& blocks = free_blocks(small);
    Block wanted{stream, size, nullptr, small};
    auto found = blocks.lower_bound(&wanted);
    if (found == blocks.end() || (*found)->stream != stream)
      return nullptr;
    // A much larger block is left for a request that needs it.
    if (size >= kOwnSegmentFrom && (*found)->size > size + kLargeSegment)
      return nullptr;
    Block* block = *found;
    blocks.erase(found);
    return block;
  }

  Block* new_segment(size_t size, int64_t stream, size_t bytes) {
    const bool small = size <= kSmallRequest;
    const size_t segment = small ? kSmallSegment : size < kOwnSegmentFrom ? kLargeSegment : round_up(size, kSegmentRounding);
    if (reserved_ + segment > settings().memory_bytes) {
      stats_.num_alloc_retries++;
      free_unused_segments();
    }
    if (reserved_ + segment > settings().memory_bytes) {
      stats_.num_ooms++;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "NPU out of memory. Tried to allocate ", bytes, " bytes (NPU ", number_, "; ",
                       settings().memory_bytes, " bytes total capacity; ", stats_.allocated_bytes[0].current,
                       " bytes already allocated; ", reserved_,
                       " bytes reserved). STEPSCOPE_SIM_MEMORY_GB sets the capacity of the simulated device.");
    }
    CallSpan span(Call::malloc, number_, segment);
    if (C10_UNLIKELY(settings().slow.malloc_ns))
      sleep_until(now_ns() + settings().slow.malloc_ns);
    void* address = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&address, kAlignment, segment) == 0, "no host memory for the simulated NPU");
    reserved_ += segment;
    change(stats_.reserved_bytes, small, static_cast<int64_t>(segment));
    change(stats_.segment, small, 1);
    stats_.num_device_alloc++;
    return new Block{stream, segment, static_cast<char*>(address), small,
                     reinterpret_cast<uint64_t>(&device(number_).stream(stream))};
  }

  void cut(Block* block, size_t size) {
    const size_t rest = block->size - size;
    if (block->small ? rest < kRounding : rest <= kSmallRequest)
      return;
    auto* free = new Block{block->stream, rest, block->address + size, block->small, block->stream_handle};
    free->before = block;
    free->after = block->after;
    if (free->after)
      free->after->before = free;
    block->after = free;
    block->size = size;
    free_blocks(block->small).insert(free);
  }

  void give_back(Block* block) {
    change(stats_.active, block->small, -1);
    change(stats_.active_bytes, block->small, -signed_size(block));
    report(MemoryKind::block_free, block, -signed_size(block));
    join(block, block->before);
    join(block, block->after);
    free_blocks(block->small).insert(block);
  }

  // Takes a free neighbour into the block, which is not among the free ones yet.
  void join(Block* block, Block* neighbour) {
    if (!neighbour || neighbour->allocated || neighbour->pending_events)
      return;
    free_blocks(block->small).erase(neighbour);
    if (neighbour == block->before) {
      block->address = neighbour->address;
      block->before = neighbour->before;
      if (block->before)
        block->before->after = block;
    } else {
      block->after = neighbour->after;
      if (block->after)
        block->after->before = block;
    }
    block->size += neighbour->size;
    delete neighbour;
  }

  void free_reached_blocks() {
    for (size_t i = 0; i < pending_.size();) {
      if (!pending_[i].first.query()) {
        i++;
        continue;
      }
      Block* block = pending_[i].second;
      pending_[i] = std::move(pending_.back());
      pending_.pop_back();
      if (--block->pending_events == 0)
        give_back(block);
    }
  }

  void free_unused_segments() {
    device(number_).synchronize();
    free_reached_blocks();
    for (FreeBlocks* blocks : {&small_, &large_}) {
      for (auto at = blocks->begin(); at != blocks->end();) {
        Block* block = *at;
        if (block->split()) {
          ++at;
          continue;
        }
        at = blocks->erase(at);
        CallSpan span(Call::free, number_, block->size);
        reserved_ -= block->size;
        change(stats_.reserved_bytes, block->small, -signed_size(block));
        change(stats_.segment, block->small, -1);
        stats_.num_device_free++;
        ::free(block->address);
        delete block;
      }
    }
  }

  void report(MemoryKind kind, const Block* block, int64_t size) {
    const int64_t allocated = stats_.allocated_bytes[0].current, reserved = stats_.reserved_bytes[0].current;
    if (kind != MemoryKind::block_free)
      c10::reportMemoryUsageToProfiler(block->address, size, static_cast<size_t>(allocated), static_cast<size_t>(reserved),
                                       c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(number_)));
    if (recording())
      memory_records().add({now_ns(), reinterpret_cast<uint64_t>(block->address), size, allocated, reserved,
                            stats_.active_bytes[0].current, block->stream_handle, thread_id(), static_cast<int16_t>(number_), kind,
                            0});
  }

  template <class Function>
  void each_stat(Function function) {
    if (in_forked_child())
      return;
    std::lock_guard lock(mutex_);
    for (StatArray* stats : {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split, &stats_.allocated_bytes,
                             &stats_.reserved_bytes, &stats_.active_bytes, &stats_.inactive_split_bytes, &stats_.requested_bytes})
      for (auto& stat : *stats)
        function(stat);
  }

  const int number_;
  std::recursive_mutex mutex_;
  FreeBlocks small_, large_;
  std::unordered_map<void*, Block*> live_;
  std::vector<std::pair<Event, Block*>> pending_;
  DeviceStats stats_;
  size_t reserved_ = 0;
  bool cut_up_ = false;  // what is free is of no use to the next one
};

DeviceMemory& memory_of(int number) {
  static auto* all = [] {
    auto* made = new std::vector<std::unique_ptr<DeviceMemory>>;
    for (int i = 0; i < device_count(); i++)
      made->push_back(std::make_unique<DeviceMemory>(i));
    return made;
  }();
  return *all->at(static_cast<size_t>(number));
}

struct Handle {
  int device;
  void* address;
};

void free_handle(void* context) {
  std::unique_ptr<Handle> handle(static_cast<Handle*>(context));
  if (handle)
    memory_of(handle->device).free(handle->address);
}

class CachingAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int number = current_device();
    const c10::Device device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(number));
    if (bytes == 0)
      return {nullptr, nullptr, &free_handle, device};
    void* address = memory_of(number).malloc(bytes, current_stream_number(number));
    return {address, new Handle{number, address}, &free_handle, device};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    device(current_device()).synchronize();
    memcpy(to, from, count);
  }
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t = {0, 0}) override {
    for (int i = 0; i < device_count(); i++)
      memory_of(i).empty_cache();
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get())
      memory_of(data.device().index()).record_stream(data.get(), stream.id());
  }
  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return memory_of(device).stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    memory_of(device).reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    memory_of(device).reset_peaks();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return memory_of(device).free_and_total();
  }
};

CachingAllocator caching_allocator;
REGISTER_ALLOCATOR(c10::kPrivateUse1, &caching_allocator);

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    CallSpan span(Call::malloc_host, current_device(), bytes);
    void* address = nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, posix_memalign(&address, 4096, std::max<size_t>(bytes, 1)) == 0, "no pinned host memory");
    std::lock_guard lock(held_over_forks());
    ranges_[reinterpret_cast<uintptr_t>(address)] = bytes;
    return {address, address, &give_back, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    memcpy(to, from, count);
  }
  bool holds(const void* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    std::lock_guard lock(held_over_forks());
    auto after = ranges_.upper_bound(address);
    return after != ranges_.begin() && address < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  static void give_back(void* address);
  std::map<uintptr_t, size_t> ranges_;  // children may use pinned memory: the lock is held over forks
};

PinnedAllocator& pinned() {
  static auto* allocator = new PinnedAllocator;
  return *allocator;
}

void PinnedAllocator::give_back(void* address) {
  CallSpan span(Call::free_host, current_device(), 0);
  {
    std::lock_guard lock(held_over_forks());
    pinned().ranges_.erase(reinterpret_cast<uintptr_t>(address));
  }
  ::free(address);
}

}  // namespace

c10::DeviceAllocator& device_allocator() {
  return caching_allocator;
}

c10::Allocator& pinned_allocator() {
  return pinned();
}

bool is_pinned(const void* address) {
  return pinned().holds(address);
}

}  // namespace simnpu
