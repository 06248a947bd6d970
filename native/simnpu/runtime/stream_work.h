// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <c10/core/StreamGuard.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "runtime/runtime.h"

namespace simnpu {

// The result on its stream: waiting for it holds the caller's stream up, not the host.
class StreamWork final : public c10d::Work {
 public:
  StreamWork(int rank, c10d::OpType type, std::shared_ptr<Event> end, int device, int64_t stream, std::vector<at::Tensor> outputs)
      : Work(rank, type), end_(std::move(end)), device_(device), stream_(stream), outputs_(std::move(outputs)) {}

  bool isCompleted() override {
    return end_->query();
  }
  bool isSuccess() const override {
    return end_->query();
  }
  bool wait(std::chrono::milliseconds) override {
    synchronize();
    return true;
  }
  void synchronize() override {
    if (host_waits)
      end_->synchronize();
    else
      end_->block(current_stream(device_));
  }
  // The same end, with the results of all operators that it ends.
  c10::intrusive_ptr<StreamWork> with(c10d::OpType type, std::vector<at::Tensor> outputs) const {
    return c10::make_intrusive<StreamWork>(rank_, type, end_, device_, stream_, std::move(outputs));
  }
  void blockCurrentStream() override {
    end_->block(current_stream(device_));
  }
  std::vector<at::Tensor> result() override {
    return outputs_;
  }
  int sourceRank() const override {
    end_->synchronize();
    return source ? source->load() : -1;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    std::lock_guard lock(mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                         std::vector<c10::Device>{device()});
      const c10::StreamGuard on(c10::Stream(c10::Stream::UNSAFE, device(), stream_));
      future_->markCompleted(c10::IValue(outputs_));
    }
    return future_;
  }

  bool host_waits = false;
  std::shared_ptr<std::atomic<int>> source;

 private:
  c10::Device device() const {
    return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device_));
  }

  const std::shared_ptr<Event> end_;
  const int device_;
  const int64_t stream_;
  const std::vector<at::Tensor> outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace simnpu
