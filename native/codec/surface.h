// SPDX-License-Identifier: Apache-2.0
// What the functions share: a plain C surface over the buffers of Arrow arrays, without headers of Python, torch or Arrow.
#pragma once
#include <cstdint>

#define CODEC_FUNCTION extern "C" __attribute__((visibility("default")))

namespace codec {

// Whether an Arrow validity bitmap has a value at `row`; without a bitmap all rows have one.
inline bool has_value(const uint8_t* valid, int64_t offset, int64_t row) {
  if (!valid)
    return true;
  int64_t at = row + offset;
  return (valid[at >> 3] >> (at & 7)) & 1;
}

}  // namespace codec
