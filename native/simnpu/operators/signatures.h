// SPDX-License-Identifier: Apache-2.0
// What was learned about an operator: one entry for each combination of dtypes, layouts and settings.
#pragma once
#include <ATen/core/ivalue.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "operators/kernels.h"
#include "runtime/tensor_ref.h"

namespace simnpu {

constexpr size_t kSignaturesKept = 8192;  // of one operator: endless new shapes must not fill the memory

// What one combination of dtypes, layouts and settings needs to know to run without waiting.
struct Signature {
  std::atomic<bool> learned{false};
  uint32_t description = 0;
  Model model;
  std::vector<std::vector<Layout>> outputs;  // of each return value
};

class Signatures {
 public:
  std::shared_ptr<Signature> of(const std::string& key) {
    std::lock_guard lock(mutex);
    if (known_.size() > kSignaturesKept)
      known_.clear();
    auto& signature = known_[key];
    if (!signature)
      signature = std::make_shared<Signature>();
    return signature;
  }

  std::mutex mutex;  // held while a signature is filled in

 private:
  std::unordered_map<std::string, std::shared_ptr<Signature>> known_;
};

// The text that tells signatures apart.
class Key {
 public:
  explicit Key(std::string& text) : text_(text) {
    text_.clear();
  }
  void mark(char c) {
    text_.push_back(c);
  }
  void raw(const void* data, size_t bytes) {
    text_.append(static_cast<const char*>(data), bytes);
  }
  void layout(const Layout& layout, char place) {
    mark(place);
    if (!layout.defined)
      return;
    mark(static_cast<char>(layout.dtype));
    mark(static_cast<char>(layout.sizes.size()));
    raw(layout.sizes.data(), layout.sizes.size() * sizeof(int64_t));
    raw(layout.strides.data(), layout.strides.size() * sizeof(int64_t));
  }
  void kind(const c10::IValue& value) {
    mark(value.isDouble()          ? 'd'
         : value.isInt()           ? 'i'
         : value.isBool()          ? 'b'
         : value.isNone()          ? 'n'
         : value.isComplexDouble() ? 'c'
                                   : 'o');
  }
  void value(const c10::IValue& value) {
    kind(value);
    if (value.isInt()) {
      number(value.toInt());
    } else if (value.isDouble()) {
      number(value.toDouble());
    } else if (value.isBool()) {
      mark(value.toBool() ? '1' : '0');
    } else if (value.isString()) {
      text_ += value.toStringRef();
      mark('\0');
    } else if (value.isIntList()) {
      const auto list = value.toIntList();
      number(list.size());
      for (int64_t item : list)
        number(item);
    } else if (value.isDoubleList()) {
      const auto list = value.toDoubleList();
      number(list.size());
      for (double item : list)
        number(item);
    } else if (value.isList()) {
      const auto list = value.toListRef();
      number(list.size());
      for (const c10::IValue& item : list)
        this->value(item);
    }
  }

 private:
  template <class Number>
  void number(Number number) {
    raw(&number, sizeof number);
  }
  std::string& text_;
};

}  // namespace simnpu
