// SPDX-License-Identifier: Apache-2.0
// Ticks of the CPU's counter on the hot path, nanoseconds of CLOCK_MONOTONIC_RAW in the files.
#pragma once
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

// For the few lines that run with every record: a call costs as much as what it does.
#define OBSERVER_HOT inline __attribute__((always_inline))

namespace observer {

inline int64_t raw_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// The counter serves only if it runs evenly on all cores; the kernel knows that better than we do.
inline bool counter_is_even() {
#if defined(__x86_64__)
  unsigned a, b, c, d;
  if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & (1u << 8)))
    return false;
  char source[64] = {};
  FILE* f = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
  if (!f)
    return false;
  char* read = fgets(source, sizeof source, f);
  fclose(f);
  return read && (!strncmp(source, "tsc", 3) || !strncmp(source, "kvm-clock", 9) || !strncmp(source, "hyperv", 6));
#elif defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

inline const bool counter_used = counter_is_even();

OBSERVER_HOT uint64_t tick() {
#if defined(__x86_64__)
  if (__builtin_expect(counter_used, 1))
    return __rdtsc();
#elif defined(__aarch64__)
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
  return static_cast<uint64_t>(raw_ns());
}

// Pairs of (tick, ns) measured during a capture, joined by straight lines. A tick is always converted between two
// pairs measured before and after it, so one tick has one time and the order of ticks is the order of times.
class Clock {
 public:
  void begin() {
    knots_.clear();
    last_ = 0;
    knots_.push_back(measure());
  }

  // To be called after the newest tick that will be converted next was taken.
  void advance() {
    Knot knot = measure();
    Knot& before = knots_.back();
    if (knot.tick <= before.tick || knot.ns <= before.ns)
      return;
    before.slope = static_cast<double>(knot.ns - before.ns) / static_cast<double>(knot.tick - before.tick);
    knot.slope = before.slope;
    knots_.push_back(knot);
  }

  int64_t ns(uint64_t tick) {
    if (!counter_used)
      return static_cast<int64_t>(tick);
    if (knots_.size() < 2)
      return knots_[0].ns;
    if (last_ + 1 >= knots_.size() || tick < knots_[last_].tick || tick >= knots_[last_ + 1].tick) {
      auto above = std::upper_bound(knots_.begin() + 1, knots_.end() - 1, tick,
                                    [](uint64_t t, const Knot& k) { return t < k.tick; });
      last_ = static_cast<size_t>(above - knots_.begin()) - 1;
    }
    const Knot& a = knots_[last_];
    return a.ns + static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(tick - a.tick)) * a.slope);
  }

 private:
  struct Knot {
    uint64_t tick;
    int64_t ns;
    double slope;  // ns per tick from here to the next one
  };

  static Knot measure() {
    Knot best{};
    uint64_t width = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
      uint64_t before = tick();
      int64_t ns = raw_ns();
      uint64_t after = tick();
      if (after - before < width) {
        width = after - before;
        best = {before + (after - before) / 2, ns, 0};
      }
    }
    return best;
  }

  std::vector<Knot> knots_;
  size_t last_ = 0;
};

}  // namespace observer
