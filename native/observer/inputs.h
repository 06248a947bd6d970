// SPDX-License-Identifier: Apache-2.0
// The inputs of an operator: described in a few bytes by the training thread, spelled out by the writer thread.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include "buffer.h"
#include "stream.h"

namespace observer {

enum class Input : uint8_t { Other = 0, Tensor, TensorList, Scalar, ScalarList, Ints, Int };
enum class Word : uint8_t { Bool, Int, Double, Complex, Others };

constexpr size_t kMostInputBytes = 64 * 1024;
constexpr size_t kMostDims = 64;

// ---- training thread

// Few numbers: a loop is faster than a call of memcpy.
inline void copy_numbers(char* to, const int64_t* from, size_t count) {
#pragma GCC unroll 1
  for (size_t i = 0; i < count; i++)
    __builtin_memcpy(to + 8 * i, from + i, 8);
}

inline void describe_tensor(Stream& stream, const at::Tensor& tensor, bool named) {
  Scratch& out = stream.scratch;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || impl->has_symbolic_sizes_strides() || tensor.is_nested() || tensor.dim() > int64_t{kMostDims}) {
    out.put(static_cast<uint8_t>(Input::Other));
    return;
  }
  auto sizes = tensor.sizes();
  size_t dims = sizes.size();
  char* p = out.need(8 + dims * 16);
  p[0] = static_cast<char>(Input::Tensor);
  p[1] = static_cast<char>(tensor.scalar_type());
  p[2] = static_cast<char>(dims);
  copy_numbers(p + 3, sizes.data(), dims);
  out.size += 3 + dims * 8;
  if (!named)
    return;
  p += 3 + dims * 8;
  const c10::Storage& storage = impl->unsafe_storage();
  bool strided = tensor.layout() == at::kStrided, stored = static_cast<bool>(storage);
  auto device = tensor.device();
  p[0] = static_cast<char>(strided | (stored << 1));
  p[1] = static_cast<char>(device.type());
  p[2] = static_cast<char>(device.index());
  out.size += 3;
  if (strided) {
    copy_numbers(p + 3, tensor.strides().data(), dims);
    out.size += dims * 8;
  }
  stream.add_address(reinterpret_cast<uint64_t>(impl));
  stream.add_address(stored ? reinterpret_cast<uint64_t>(storage.unsafeGetStorageImpl()->data()) : 0);
}

inline Word word_of(const c10::IValue& value) {
  return value.isBool()            ? Word::Bool
         : value.isInt()           ? Word::Int
         : value.isDouble()        ? Word::Double
         : value.isComplexDouble() ? Word::Complex
                                   : Word::Others;
}

inline void describe_list(Stream& stream, const c10::IValue& value, bool with_values) {
  Scratch& out = stream.scratch;
  if (with_values && value.isIntList()) {
    auto ints = value.toIntList();
    size_t count = std::min<size_t>(ints.size(), 8);
    out.put(static_cast<uint8_t>(Input::Ints));
    out.put(static_cast<uint8_t>(count));
    for (size_t i = 0; i < count; i++)
      out.put_value<int64_t>(ints.get(i));
    return;
  }
  auto list = value.toListRef();
  out.put(static_cast<uint8_t>(list.empty() || list[0].isScalar() ? Input::ScalarList : Input::Other));
}

// `named`: also where the tensors are; `with_values`: also the integers, from which FLOPs are counted.
inline uint32_t describe_inputs(Stream& stream, c10::ArrayRef<const c10::IValue> values, bool named, bool with_values) {
  Scratch& out = stream.scratch;
  out.size = 0;
  out.put(static_cast<uint8_t>(named));
  stream.address_count = 0;
  for (const c10::IValue& value : values) {
    if (out.size > kMostInputBytes)
      out.put(static_cast<uint8_t>(Input::Other));
    else if (value.isTensor())
      describe_tensor(stream, value.toTensor(), named);
    else if (value.isScalar()) {
      bool with_value = with_values && value.isInt();
      out.put(static_cast<uint8_t>(with_value ? Input::Int : Input::Scalar));
      if (with_value)
        out.put_value<int64_t>(value.toInt());
      else
        out.put(static_cast<uint8_t>(word_of(value)));
    } else if (value.isList() && value.isTensorList()) {
      out.put(static_cast<uint8_t>(Input::TensorList));
      if (!named)
        continue;
      size_t at = out.size;
      uint32_t count = 0;
      out.put_value(count);
      for (const c10::IValue& item : value.toListRef()) {
        if (out.size > kMostInputBytes)
          break;
        describe_tensor(stream, item.toTensor(), true);
        count++;
      }
      memcpy(out.bytes.data() + at, &count, sizeof count);
    } else if (value.isList())
      describe_list(stream, value, with_values);
    else
      out.put(static_cast<uint8_t>(Input::Other));
  }
  return stream.inputs_number();
}

// ---- writer thread

inline void put_field(std::string& out, uint16_t id, const std::string& text) {
  uint32_t length = static_cast<uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&id), 2);
  out.append(reinterpret_cast<const char*>(&length), 4);
  out += text;
}

// The texts of framework-raw.md 5, made once per description.
struct InputTexts {
  std::string fields;  // dtypes and shapes, ready to be copied
  std::vector<std::vector<int64_t>> sizes;  // per input; for FLOPs
  std::vector<std::vector<int64_t>> ints;   // per input
  bool named = false;
  std::vector<std::string> tensors;             // `;dtype;itemsize;sizes;strides;devtype;devidx` of single tensors
  std::vector<bool> has_storage;                // of all tensors in order of their addresses
  std::vector<std::vector<std::string>> lists;  // the same of tensor lists
  std::vector<size_t> defined;                  // how many of a list's tensors have addresses
  std::vector<int> order;                       // per named value: -1 a single tensor, else the number of its list
  std::string scalars;

  InputTexts() = default;
  InputTexts(const char* p, size_t length) {
    const char* end = p + length;
    std::string dtypes, shapes;
    named = *p++;
    bool any = p < end;
    while (p < end) {
      std::string token = "None", shape;
      std::vector<int64_t> dims, values;
      switch (static_cast<Input>(*p++)) {
        case Input::Other: break;
        case Input::Tensor: {
          std::string text = tensor(p, dims, token);
          shape = joined(dims);
          if (named) {
            order.push_back(-1);
            tensors.push_back(text);
          }
          break;
        }
        case Input::TensorList:
          token = "TensorList";
          if (named)
            read_list(p);
          break;
        case Input::Scalar:
          token = "Scalar";
          add_word(static_cast<Word>(*p++));
          break;
        case Input::Int:
          token = "Scalar";
          values = {take<int64_t>(p)};
          add_word(Word::Int);
          break;
        case Input::ScalarList: token = "ScalarList"; break;
        case Input::Ints: {
          token = "ScalarList";
          size_t count = static_cast<uint8_t>(*p++);
          for (size_t i = 0; i < count; i++)
            values.push_back(take<int64_t>(p));
          break;
        }
      }
      dtypes += token + ";";
      shapes += shape + ";";
      sizes.push_back(std::move(dims));
      ints.push_back(std::move(values));
    }
    if (!any)
      return;
    dtypes.pop_back();
    shapes.pop_back();
    put_field(fields, 3, dtypes);
    put_field(fields, 4, shapes);
    if (!scalars.empty())
      scalars.pop_back();
  }

  // Fields 5, 6 and 7 with the addresses of one call (framework-raw.md 5.3).
  void put_tensors(Buffer& out, const uint64_t* addresses, size_t count) const {
    if (count != 2 * has_storage.size())
      return;
    size_t at = 0, number = 0;
    if (!tensors.empty()) {
      size_t begin = out.begin_field(5);
      for (int kind : order) {
        if (kind >= 0) {
          at += defined[static_cast<size_t>(kind)];
          continue;
        }
        put_tensor(out, addresses, at++, tensors[number++]);
        out.append(')');
      }
      out.shorten(1);
      out.end_field(begin);
    }
    if (!lists.empty()) {
      size_t begin = out.begin_field(6);
      at = 0;
      for (int kind : order) {
        if (kind < 0) {
          at++;
          continue;
        }
        for (const std::string& rest : lists[static_cast<size_t>(kind)]) {
          if (rest.empty())
            out.append("0;;None;0;;;0;0", 15);  // an undefined tensor keeps its place in the list
          else
            put_tensor(out, addresses, at++, rest);
          out.append(')');
        }
        out.append('}');
      }
      out.shorten(1);
      out.end_field(begin);
    }
    if (!scalars.empty())
      out.field(7, scalars.data(), scalars.size());
  }

 private:
  template <class T>
  static T take(const char*& p) {
    T value;
    memcpy(&value, p, sizeof value);
    p += sizeof value;
    return value;
  }

  void put_tensor(Buffer& out, const uint64_t* addresses, size_t at, const std::string& rest) const {
    out.append_hex(addresses[2 * at]);
    out.append(';');
    if (has_storage[at])
      out.append_hex(addresses[2 * at + 1]);
    out.append(rest);
  }

  static std::string joined(const std::vector<int64_t>& dims) {
    std::string text;
    for (size_t i = 0; i < dims.size(); i++)
      text += (i ? "," : "") + std::to_string(dims[i]);
    return text;
  }

  std::string tensor(const char*& p, std::vector<int64_t>& dims, std::string& token) {
    auto dtype = c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(*p++));
    token = std::string(dtype.name());
    size_t count = static_cast<uint8_t>(*p++);
    for (size_t i = 0; i < count; i++)
      dims.push_back(take<int64_t>(p));
    if (!named)
      return {};
    uint8_t flags = static_cast<uint8_t>(*p++);
    int type = *p++, index = *p++;
    std::vector<int64_t> strides;
    for (size_t i = 0; (flags & 1) && i < count; i++)
      strides.push_back(take<int64_t>(p));
    has_storage.push_back(flags & 2);
    return ";" + token + ";" + std::to_string(dtype.itemsize()) + ";" + joined(dims) + ";" + joined(strides) + ";" +
           std::to_string(type) + ";" + std::to_string(index);
  }

  void read_list(const char*& p) {
    uint32_t count = take<uint32_t>(p);
    std::vector<std::string> list;
    for (uint32_t i = 0; i < count; i++) {
      std::vector<int64_t> dims;
      std::string token;
      list.push_back(static_cast<Input>(*p++) == Input::Tensor ? tensor(p, dims, token) : std::string());
    }
    order.push_back(static_cast<int>(lists.size()));
    defined.push_back(
        static_cast<size_t>(std::count_if(list.begin(), list.end(), [](const std::string& s) { return !s.empty(); })));
    lists.push_back(std::move(list));
  }

  void add_word(Word word) {
    static const char* const words[] = {"Bool;", "Int;", "Double;", "Complex;", "Others;"};
    scalars += words[static_cast<int>(word)];
  }
};

// FLOPs by the rules of torch.profiler; 0 when it counts none for this operator.
inline uint64_t flops_of(const std::string& name, const InputTexts& in) {
  auto product = [](const std::vector<int64_t>& dims) {
    uint64_t value = 1;
    for (int64_t dim : dims)
      value *= static_cast<uint64_t>(dim);
    return value;
  };
  auto multiply = [&](size_t a, size_t b, size_t dims) -> uint64_t {
    if (in.sizes.size() <= b || in.sizes[a].size() != dims || in.sizes[b].size() != dims)
      return 0;
    return 2 * product(in.sizes[a]) * static_cast<uint64_t>(in.sizes[b].back());
  };
  if (name == "aten::mm")
    return multiply(0, 1, 2);
  if (name == "aten::addmm")
    return multiply(1, 2, 2);
  if (name == "aten::bmm")
    return multiply(0, 1, 3);
  if (name == "aten::baddbmm")
    return multiply(1, 2, 3);
  if (name == "aten::mul" || name == "aten::add")
    return !in.sizes.empty() && !in.sizes[0].empty() ? product(in.sizes[0]) : 0;
  if (name != "aten::conv2d" || in.sizes.size() < 7 || in.sizes[0].size() != 4 || in.sizes[1].size() != 4 || in.ints[6].size() != 1)
    return 0;
  auto pair = [&](size_t i, size_t j) {
    return in.ints[i].size() == 2 ? in.ints[i][j] : in.ints[i].size() == 1 ? in.ints[i][0] : -1;
  };
  const auto &image = in.sizes[0], &kernel = in.sizes[1];
  uint64_t count = 2 * static_cast<uint64_t>(image[0] * image[1] * kernel[0] * kernel[2] * kernel[3]);
  for (size_t i = 0; i < 2; i++) {
    int64_t stride = pair(3, i), padding = pair(4, i), dilation = pair(5, i);
    if (stride <= 0 || padding < 0 || dilation <= 0)
      return 0;
    count *= static_cast<uint64_t>((image[2 + i] + 2 * padding - dilation * (kernel[2 + i] - 1) - 1) / stride + 1);
  }
  return in.ints[6][0] > 0 ? count / static_cast<uint64_t>(in.ints[6][0]) : 0;
}

}  // namespace observer
