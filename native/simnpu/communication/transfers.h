// SPDX-License-Identifier: Apache-2.0
// What a collective would be on hardware: copies, reductions and notifications between this rank and its peers.
//
// The model is a full mesh in one server: every rank writes to each peer over its own link, one plane for each.
#pragma once
#include <cstdint>
#include <vector>

#include "records.h"

namespace simnpu {

enum class Collective : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  reduce,
  all_to_all,
  gather,
  scatter,
  send,
  receive,
  batch,
};

// What this rank exchanges with one peer.
struct Exchange {
  int peer;
  uint64_t reduced = 0;  // bytes it reduces into the peer's memory
  uint64_t copied = 0;  // bytes it copies there, after that
  bool receives = false;  // the peer writes to this rank
  int64_t entered_ns = 0;  // when the peer took part; 0: not known
};

struct Plan {
  std::vector<Exchange> exchanges;  // a plane each
  uint64_t local = 0;  // bytes copied inside the device
};

// `bytes`: of the whole vector for all_reduce, broadcast and reduce, of one rank's part for the others.
Plan plan_of(Collective what, int rank, int size, int root, uint64_t bytes);

// The plan's tasks between two times, plane by plane; stream and task numbers are left to the caller.
std::vector<TransferRecord> transfers_of(const Plan& plan, int rank, int size, int64_t start, int64_t end);

}  // namespace simnpu
