// SPDX-License-Identifier: Apache-2.0
// Device memory: a caching allocator in the order of streams, with the totals that memory records carry.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

namespace simnpu {

c10::DeviceAllocator& device_allocator();

// Host memory from which copies need not wait.
c10::Allocator& pinned_allocator();
bool is_pinned(const void* address);

}  // namespace simnpu
