// SPDX-License-Identifier: Apache-2.0
#include "communication/transfers.h"

#include <algorithm>
#include <utility>

namespace simnpu {
namespace {

constexpr double kNotifyWeight = 2048;  // a notification takes as long as so many bytes
constexpr double kTaskWeight = 2048;  // what starting a copy takes

class Plane {
 public:
  Plane(const Exchange& exchange, int rank, int size, uint16_t number)
      : exchange_(exchange), rank_(rank), size_(size), number_(number) {}

  void notify() {
    add(TransferKind::notify_record, 0, exchange_.peer).notify = notification(rank_, exchange_.peer);
  }
  void wait() {
    add(TransferKind::notify_wait, 0, exchange_.peer).notify = notification(exchange_.peer, rank_);
  }
  void move(TransferKind kind, uint64_t bytes) {
    add(kind, bytes, exchange_.peer);
  }
  void copy_inside(uint64_t bytes) {
    TransferRecord& made = add(TransferKind::memcpy, bytes, -1);
    made.transport = Transport::local;
    made.link = Link::on_chip;
  }

  // The first wait ends when the peer took part, if that is known; the others divide what is left by their bytes.
  std::vector<TransferRecord> placed(int64_t start, int64_t end) {
    size_t first = 0;
    int64_t at = start;
    if (tasks_.size() > 1 && tasks_[1].kind == TransferKind::notify_wait) {
      tasks_[0].start = start;
      tasks_[0].end = start + std::min<int64_t>(500, (end - start) / 100);
      tasks_[1].start = tasks_[0].end;
      tasks_[1].end = std::clamp(exchange_.entered_ns, tasks_[0].end, end);
      if (exchange_.entered_ns)
        tasks_[1].flags &= static_cast<uint8_t>(~kTransferModelled);
      at = tasks_[1].end;
      first = 2;
    }
    double all = 0;
    for (size_t i = first; i < tasks_.size(); i++)
      all += weight(tasks_[i]);
    const auto left = static_cast<double>(end - at);
    double passed = 0;
    for (size_t i = first; i < tasks_.size(); i++) {
      tasks_[i].start = at + static_cast<int64_t>(left * passed / all);
      passed += weight(tasks_[i]);
      tasks_[i].end = i + 1 == tasks_.size() ? end : at + static_cast<int64_t>(left * passed / all);
    }
    return std::move(tasks_);
  }

 private:
  static double weight(const TransferRecord& task) {
    return task.notify ? kNotifyWeight : kTaskWeight + static_cast<double>(task.bytes);
  }

  uint64_t notification(int from, int to) const {
    return 1 + static_cast<uint64_t>(from) * static_cast<uint64_t>(size_) + static_cast<uint64_t>(to);
  }

  TransferRecord& add(TransferKind kind, uint64_t bytes, int peer) {
    TransferRecord& made = tasks_.emplace_back();
    made.kind = kind;
    made.bytes = bytes;
    made.src_rank = rank_;
    made.dst_rank = peer;
    made.plane = number_;
    made.transport = Transport::sdma;
    made.link = Link::hccs;
    made.flags = static_cast<uint8_t>(kTransferModelled | (number_ == 0 ? kTransferMaster : 0));
    return made;
  }

  const Exchange& exchange_;
  const int rank_, size_;
  const uint16_t number_;
  std::vector<TransferRecord> tasks_;
};

}  // namespace

Plan plan_of(Collective what, int rank, int size, int root, uint64_t bytes) {
  Plan plan;
  const uint64_t part = (bytes + static_cast<uint64_t>(size) - 1) / static_cast<uint64_t>(size);
  const bool at_root = rank == root;
  plan.local = bytes;
  for (int step = 1; step < size; step++) {
    Exchange with{(rank + step) % size};
    const bool with_root = with.peer == root;
    switch (what) {
      case Collective::all_reduce:
        with.reduced = with.copied = part;
        with.receives = true;
        break;
      case Collective::reduce_scatter:
        with.reduced = bytes;
        with.receives = true;
        break;
      case Collective::all_gather:
      case Collective::all_to_all:
        with.copied = bytes;
        with.receives = true;
        break;
      case Collective::broadcast:
      case Collective::scatter:
        with.copied = at_root ? bytes : 0;
        with.receives = with_root;
        break;
      case Collective::reduce:
        with.reduced = with_root ? bytes : 0;
        with.receives = at_root;
        break;
      case Collective::gather:
        with.copied = with_root ? bytes : 0;
        with.receives = at_root;
        break;
      default:  // messages have their exchanges given
        continue;
    }
    if (with.reduced || with.copied || with.receives)
      plan.exchanges.push_back(with);
  }
  return plan;
}

std::vector<TransferRecord> transfers_of(const Plan& plan, int rank, int size, int64_t start, int64_t end) {
  std::vector<TransferRecord> all;
  const Exchange alone{-1};
  for (size_t i = 0; i < std::max<size_t>(1, plan.exchanges.size()); i++) {
    const Exchange& with = plan.exchanges.empty() ? alone : plan.exchanges[i];
    Plane plane(with, rank, size, static_cast<uint16_t>(i));
    if (with.peer >= 0) {
      plane.notify();
      plane.wait();
      for (const auto& [kind, bytes] :
           {std::pair{TransferKind::reduce_inline, with.reduced}, std::pair{TransferKind::memcpy, with.copied}}) {
        if (!bytes)
          continue;
        plane.move(kind, bytes);
        plane.notify();
        if (with.receives)
          plane.wait();
      }
      if (!with.reduced && !with.copied)
        plane.wait();  // for what the peer writes
    }
    if (i == 0)
      plane.copy_inside(plan.local);
    for (const TransferRecord& task : plane.placed(start, end))
      all.push_back(task);
  }
  return all;
}

}  // namespace simnpu
