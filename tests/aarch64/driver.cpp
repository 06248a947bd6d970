// SPDX-License-Identifier: Apache-2.0
// Records a few operators with the observer, without Python: argv[1] is the library, argv[2] the folder for records.
// Only operators without a kernel: torch's own kernels crash under the emulator (qemu 7.2), also without our library.
#include <ATen/ATen.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>

struct Report {
  uint64_t ops, memory, calls, marks, bytes, dropped, threads, unfinished;
  int64_t error, limit_reached;
};

template <typename Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

int main(int, char** argv) {
  void* library = dlopen(argv[1], RTLD_NOW);
  if (!library) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  auto prepare = find<int(const char*, uint32_t, uint64_t)>(library, "stepscope_observer_prepare");
  auto start = find<int()>(library, "stepscope_observer_start");
  auto stop = find<int(Report*)>(library, "stepscope_observer_stop");
  if (prepare(argv[2], 1, 0) || start())
    return 2;
  at::Tensor matrix = at::empty({4, 8});
  at::Tensor other = matrix.view({8, 4}).t();
  Report report{};
  if (stop(&report))
    return 3;
  std::printf("ops %llu dropped %llu error %lld\n", static_cast<unsigned long long>(report.ops),
              static_cast<unsigned long long>(report.dropped), static_cast<long long>(report.error));
  return 0;
}
