// SPDX-License-Identifier: Apache-2.0
// The communication streams of a group: how its operators are queued there, described and recorded.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "communication/arrivals.h"
#include "communication/transfers.h"
#include "runtime/runtime.h"
#include "runtime/tensor_ref.h"

namespace simnpu {

struct Message {
  int peer;  // -1: whoever sends
  bool sends;
  bool in_order;  // it meets the other side's message of the same number: not so with tags
  uint64_t bytes;
  int64_t number = 0;
};

// One operator of a group as the device sees it.
struct Operation {
  Collective what;
  const char* op;  // what torch calls it
  const char* name;  // what HCCL calls it
  std::vector<at::Tensor> inputs, outputs;
  uint64_t bytes = 0;  // see plan_of
  int root = -1;
  uint8_t reduce = 255;  // HCCL's number
  std::vector<uint64_t> bytes_to;  // for each rank, where they differ
  std::vector<Message> messages;
  std::function<void()> body;  // the exchange itself, on a worker
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Facts {
    std::string group_name;
    int rank, size;
    std::vector<int64_t> ranks;  // their numbers in the whole job
  };
  Communicator(Facts facts, std::unique_ptr<Arrivals> arrivals);
  ~Communicator();

  // After what is on the current stream of the device; the event is the operator's end.
  std::shared_ptr<Event> submit(Operation operation, int device, int64_t* stream);
  int64_t stream_number(int device, bool messages);  // of collectives, or of (some) messages
  void synchronize();  // waits for all that was submitted
  bool busy();

  const Facts facts;
  const std::unique_ptr<Arrivals> arrivals;

  // A stream, and numbers for those that hardware would use besides.
  struct Lane {
    Stream* stream;
    std::vector<std::pair<int64_t, uint32_t>> planes;  // stream, tasks so far; only the stream's worker uses them
  };

 private:
  using Channel = std::pair<bool, int>;  // sending or not, peer
  Lane& lane(int device, const Operation& operation);
  void keep_order(const Operation& operation, Stream& stream, const std::shared_ptr<Event>& end);
  uint32_t describe(const Operation& operation, int64_t modelled_ns);
  double slowness(const Operation& operation) const;

  std::mutex mutex_;
  std::map<std::tuple<int, int, bool>, std::unique_ptr<Lane>> lanes_;  // device, peer (-2: collectives), sending
  std::map<Channel, std::pair<Stream*, std::shared_ptr<Event>>> last_;  // on each channel
  std::map<Channel, int64_t> messages_;
  std::unordered_map<std::string, uint32_t> descriptions_;
  int64_t collectives_ = 0;
  uint32_t operations_ = 0;
};

bool communicating();  // whether an operator of any group is not done yet

}  // namespace simnpu
