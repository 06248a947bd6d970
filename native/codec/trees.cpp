// SPDX-License-Identifier: Apache-2.0
// Which span encloses which, one after the other: improperly nested spans make each answer depend on the one before.
#include "surface.h"

// Walks the rows, of each group (such as a thread) by start and the longer ones first. A span leaves its parent only when it starts
// after the parent's end. `last` has -1 for each group; rows and groups must be inside the arrays.
CODEC_FUNCTION void enclosing(const int64_t* starts, const int64_t* ends, const int64_t* groups, const int64_t* walk, int64_t rows,
                              int64_t* last, int64_t* parents) {
  for (int64_t place = 0; place < rows; place++) {
    int64_t row = walk ? walk[place] : place;
    int64_t& before = last[groups[row]];
    int64_t parent = before;
    while (parent >= 0 && starts[row] > ends[parent])
      parent = parents[parent];
    parents[row] = parent;
    before = row;
  }
}
