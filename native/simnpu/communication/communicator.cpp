// SPDX-License-Identifier: Apache-2.0
#include "communication/communicator.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>

#include "operators/kernels.h"
#include "runtime/allocator.h"

namespace simnpu {
namespace {

constexpr int kCollectives = -2;
// The model of time: a fixed part, and what one link carries.
constexpr double kFixedNs = 10000, kLinkBytesPerNs = 20;

struct DataType {
  uint8_t number;
  const char* name;
};

DataType hccl_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Char: return {0, "INT8"};
    case at::ScalarType::Short: return {1, "INT16"};
    case at::ScalarType::Int: return {2, "INT32"};
    case at::ScalarType::Half: return {3, "FP16"};
    case at::ScalarType::Float: return {4, "FP32"};
    case at::ScalarType::Long: return {5, "INT64"};
    case at::ScalarType::Double: return {10, "FP64"};
    case at::ScalarType::BFloat16: return {11, "BFP16"};
    default: return {7, "UINT8"};
  }
}

const char* reduce_name(uint8_t reduce) {
  static const char* const names[] = {"\"SUM\"", "\"PROD\"", "\"MAX\"", "\"MIN\""};
  return reduce < 4 ? names[reduce] : "null";
}

DataType type_of(const Operation& operation) {
  const auto& tensors = operation.inputs.empty() ? operation.outputs : operation.inputs;
  return hccl_type(tensors.empty() ? at::ScalarType::Byte : tensors[0].scalar_type());
}

Plan plan_for(const Operation& operation, int rank, int size) {
  Plan plan = plan_of(operation.what, rank, size, operation.root, operation.bytes);
  for (Exchange& with : plan.exchanges)
    if (!operation.bytes_to.empty())
      with.copied = operation.bytes_to[static_cast<size_t>(with.peer)];
  if (!operation.bytes_to.empty())
    plan.local = operation.bytes_to[static_cast<size_t>(rank)];
  if (!operation.messages.empty())
    plan.local = 0;
  for (const Message& message : operation.messages) {
    Exchange with{message.peer};
    (message.sends ? with.copied : plan.local) += message.bytes;
    with.receives = !message.sends;
    plan.exchanges.push_back(with);
  }
  return plan;
}

// Streams of groups that are gone serve the next ones.
struct FreeLanes {
  std::mutex mutex;
  std::map<int, std::vector<std::unique_ptr<Communicator::Lane>>> of_device;
};
FreeLanes& free_lanes() {
  static auto* lanes = new FreeLanes;
  return *lanes;
}

std::unique_ptr<Communicator::Lane> take_lane(int number) {
  auto& unused = free_lanes();
  std::lock_guard lock(unused.mutex);
  auto& lanes = unused.of_device[number];
  if (lanes.empty())
    return std::make_unique<Communicator::Lane>(Communicator::Lane{&device(number).stream(device(number).reserve_stream()), {}});
  auto lane = std::move(lanes.back());
  lanes.pop_back();
  return lane;
}

class CollectiveTask final : public Task {
 public:
  CollectiveTask(std::shared_ptr<Communicator> group, Communicator::Lane& lane, Operation operation, Plan plan, int64_t number)
      : group_(std::move(group)), lane_(lane), operation_(std::move(operation)), plan_(std::move(plan)), number_(number) {
    record.kind = TaskKind::collective;
    type_ = type_of(operation_).number;
    operation_.inputs.clear();  // tasks hold addresses, not tensors
    operation_.outputs.clear();
  }

  void run() override {
    const int rank = group_->facts.rank;
    const int64_t now = now_ns();
    if (number_)
      group_->arrivals->enter({Meeting::collective, 0, 0}, rank, number_, now);
    for (const Message& message : operation_.messages)
      if (message.peer >= 0)
        group_->arrivals->enter(meeting(message, true), rank, message.number, now);
    operation_.body();
  }

  std::string name() const override {
    return std::string(operation_.name) + " (" + operation_.op + ", rank " + std::to_string(group_->facts.rank) + " of " +
           std::to_string(group_->facts.size) + " in group " + group_->facts.group_name + ")";
  }

  void recorded() override {
    for (size_t i = 0; i < plan_.exchanges.size(); i++) {
      Exchange& with = plan_.exchanges[i];
      if (number_) {
        with.entered_ns = group_->arrivals->entered({Meeting::collective, 0, 0}, with.peer, number_);
      } else if (const Message& message = operation_.messages[i]; message.peer >= 0) {
        with.entered_ns = group_->arrivals->entered(meeting(message, false), with.peer, message.number);
      }
    }
    for (TransferRecord& transfer : transfers_of(plan_, group_->facts.rank, group_->facts.size, record.start, record.end)) {
      transfer.connection = record.connection;
      transfer.device = record.device;
      transfer.data_type = type_;
      transfer.reduce_op = transfer.kind == TransferKind::reduce_inline ? operation_.reduce : 255;
      std::tie(transfer.stream, transfer.task) = place(transfer.plane);
      transfer_records().add(transfer);
    }
  }

 private:
  // A message meets its counterpart: what one side sends, the other receives.
  Meeting meeting(const Message& message, bool mine) const {
    const int rank = group_->facts.rank;
    const auto [from, to] = message.sends ? std::pair{rank, message.peer} : std::pair{message.peer, rank};
    return {message.sends == mine ? Meeting::send : Meeting::receive, from, to};
  }

  std::pair<int32_t, uint32_t> place(uint16_t plane) {
    if (plane == 0)
      return {stream->number, stream->take_task_numbers(1)};
    while (lane_.planes.size() < plane)
      lane_.planes.emplace_back(stream->device.reserve_stream(), 0);
    auto& [number, tasks] = lane_.planes[plane - 1u];
    return {static_cast<int32_t>(number), ++tasks};
  }

  const std::shared_ptr<Communicator> group_;
  Communicator::Lane& lane_;
  Operation operation_;
  Plan plan_;
  const int64_t number_;  // among the group's collectives; 0 for messages
  uint8_t type_;
};

struct Groups {
  std::mutex mutex;
  std::set<Communicator*> alive;
};
Groups& groups() {
  static auto* all = new Groups;
  return *all;
}

}  // namespace

Communicator::Communicator(Facts facts, std::unique_ptr<Arrivals> arrivals)
    : facts(std::move(facts)), arrivals(std::move(arrivals)) {
  std::lock_guard lock(groups().mutex);
  groups().alive.insert(this);
}

Communicator::~Communicator() {
  if (in_forked_child())
    return;
  {
    std::lock_guard lock(groups().mutex);
    groups().alive.erase(this);
  }
  auto& unused = free_lanes();
  std::lock_guard lock(unused.mutex);
  for (auto& [key, lane] : lanes_)
    unused.of_device[std::get<0>(key)].push_back(std::move(lane));
}

Communicator::Lane& Communicator::lane(int device, const Operation& operation) {
  // Messages have a stream for each peer and direction, so that two ranks may send to each other before they receive.
  const bool alone = operation.what == Collective::send || operation.what == Collective::receive;
  auto& lane = lanes_[{device, alone ? operation.messages[0].peer : kCollectives, alone && operation.messages[0].sends}];
  if (!lane)
    lane = take_lane(device);
  return *lane;
}

void Communicator::keep_order(const Operation& operation, Stream& stream, const std::shared_ptr<Event>& end) {
  for (const Message& message : operation.messages) {
    auto& [before, event] = last_[{message.sends, message.peer}];
    if (event && before != &stream)
      event->block(stream);
    before = &stream;
    event = end;
  }
}

std::shared_ptr<Event> Communicator::submit(Operation operation, int on, int64_t* stream_number) {
  const int64_t called_ns = timing() ? now_ns() : 0;
  std::lock_guard lock(mutex_);
  Lane& lane = this->lane(on, operation);
  Stream& stream = *lane.stream;
  *stream_number = stream.number;
  Event ready;
  ready.record(current_stream(on));
  ready.block(stream);
  const c10::Stream torch_stream(c10::Stream::UNSAFE, c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(on)),
                                 stream.number);
  for (const auto* tensors : {&operation.inputs, &operation.outputs})
    for (const at::Tensor& tensor : *tensors)
      if (tensor.numel() && tensor.is_privateuseone())
        device_allocator().recordStream(tensor.storage().data_ptr(), torch_stream);

  auto end = std::make_shared<Event>();
  keep_order(operation, stream, end);
  for (Message& message : operation.messages) {
    message.number = ++messages_[{message.sends, message.peer}];
    if (!message.in_order)
      arrivals->forget_order();
  }
  Plan plan = plan_for(operation, facts.rank, facts.size);
  uint64_t most = 0;
  for (const Exchange& with : plan.exchanges)
    most = std::max(most, with.reduced + with.copied);
  const auto modelled_ns = static_cast<int64_t>(kFixedNs + static_cast<double>(most) / kLinkBytesPerNs);
  const uint32_t description = called_ns ? describe(operation, modelled_ns) : 0;
  const auto calls = static_cast<uint16_t>(called_ns ? transfers_of(plan, facts.rank, facts.size, 0, 0).size() : 1);
  const uint64_t bytes = operation.bytes;
  const int64_t number = operation.messages.empty() ? ++collectives_ : 0;
  const double slower = slowness(operation);
  auto task = std::make_unique<CollectiveTask>(shared_from_this(), lane, std::move(operation), std::move(plan), number);
  task->record.calls = calls;
  task->record.bytes = bytes;
  task->record.description = description;
  task->record.event = operations_++;
  if (settings().link_time > 0)
    task->record.modelled_ns = static_cast<int64_t>(static_cast<double>(modelled_ns) * settings().link_time * slower);
  stream.submit(std::move(task), called_ns);
  end->record(stream);
  return end;
}

// How much longer it takes than over healthy links: a ring is as slow as its slowest link, a message goes over one.
double Communicator::slowness(const Operation& operation) const {
  double slower = 1;
  for (const Slowness::Link& link : settings().slow.links) {
    const auto has = [&](int64_t rank) { return std::find(facts.ranks.begin(), facts.ranks.end(), rank) != facts.ranks.end(); };
    bool used = operation.messages.empty() && has(link.ranks[0]) && has(link.ranks[1]);
    for (const Message& message : operation.messages) {
      if (message.peer < 0)
        continue;
      const int64_t own = facts.ranks[facts.rank], other = facts.ranks[message.peer];
      used = used || (own == link.ranks[0] && other == link.ranks[1]) || (own == link.ranks[1] && other == link.ranks[0]);
    }
    if (used)
      slower = std::max(slower, link.factor);
  }
  return slower;
}

int64_t Communicator::stream_number(int device, bool messages) {
  check_not_forked();
  std::lock_guard lock(mutex_);
  if (messages)
    for (const auto& [key, lane] : lanes_)
      if (std::get<0>(key) == device && std::get<1>(key) != kCollectives)
        return lane->stream->number;
  auto& lane = lanes_[{device, messages ? (facts.rank + 1) % facts.size : kCollectives, messages}];
  if (!lane)
    lane = take_lane(device);
  return lane->stream->number;
}

void Communicator::synchronize() {
  check_not_forked();
  std::vector<Stream*> streams;
  {
    std::lock_guard lock(mutex_);
    for (auto& [key, lane] : lanes_)
      streams.push_back(lane->stream);
  }
  for (Stream* stream : streams)
    stream->synchronize();
}

bool Communicator::busy() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return !lock || std::any_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane.second->stream->idle(); });
}

bool communicating() {
  if (in_forked_child())
    return false;
  std::lock_guard lock(groups().mutex);
  return std::any_of(groups().alive.begin(), groups().alive.end(), [](Communicator* group) { return group->busy(); });
}

uint32_t Communicator::describe(const Operation& operation, int64_t modelled_ns) {
  std::vector<Layout> inputs, outputs;
  for (const at::Tensor& tensor : operation.inputs)
    inputs.push_back(layout_of(tensor));
  for (const at::Tensor& tensor : operation.outputs)
    outputs.push_back(layout_of(tensor));
  const DataType type = type_of(operation);
  uint64_t element = 1;
  for (const auto* tensors : {&operation.outputs, &operation.inputs})
    if (!tensors->empty() && type.number != 7)
      element = static_cast<uint64_t>(tensors->front().element_size());
  std::string ranks;
  for (const int64_t rank : facts.ranks)
    ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
  const std::string text = std::string("{\"operator\":\"") + operation.op + "\",\"name\":\"" + operation.name + "\",\"type\":\"" +
                           operation.name + "\",\"core\":\"COMMUNICATION\",\"group_name\":\"" + facts.group_name +
                           "\",\"rank\":" + std::to_string(facts.rank) + ",\"rank_size\":" + std::to_string(facts.size) +
                           ",\"ranks\":[" + ranks + "],\"algorithm\":\"MESH\",\"data_type\":\"" + type.name +
                           "\",\"data_type_id\":" + std::to_string(type.number) +
                           ",\"count\":" + std::to_string(operation.bytes / element) +
                           ",\"bytes\":" + std::to_string(operation.bytes) + ",\"reduce\":" + reduce_name(operation.reduce) +
                           ",\"reduce_id\":" + std::to_string(operation.reduce) +
                           ",\"root\":" + (operation.root < 0 ? "null" : std::to_string(operation.root)) +
                           ",\"modelled_ns\":" + std::to_string(modelled_ns) + ",\"inputs\":" + tensors_json(inputs, false) +
                           ",\"outputs\":" + tensors_json(outputs, false) + "}";
  uint32_t& number = descriptions_[text];
  if (!number)
    number = describe_as(text);
  return number;
}

}  // namespace simnpu
