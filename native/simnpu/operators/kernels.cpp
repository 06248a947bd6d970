// SPDX-License-Identifier: Apache-2.0
#include "operators/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace simnpu {
namespace {

constexpr const char* kCube = "AI_CORE";
constexpr const char* kVector = "AI_VECTOR_CORE";
constexpr const char* kCpu = "AI_CPU";
constexpr const char* kMixVector = "MIX_AIV";
constexpr const char* kMixCube = "MIX_AIC";

constexpr int64_t kCubeCores = 24, kVectorCores = 48;
// The model of time: a fixed part, then the slower of computing and moving.
constexpr double kFixedNs = 1500, kCubeFlopsPerNs = 100000, kVectorFlopsPerNs = 5000, kBytesPerNs = 1000, kCpuBytesPerNs = 2;

// Where hardware's words differ from the operator's: what is called, the kernel inside, its type, its core.
struct Names {
  const char* api;
  const char* kernel;
  const char* type;
  const char* core;
};

const std::unordered_map<std::string, Names>& known() {
  static const auto* table = new std::unordered_map<std::string, Names>{
      {"mm", {"Mm", "MatMulCommon", "MatMulV2", kCube}},
      {"addmm", {"Addmm", "MatMulCommon", "MatMulV2", kCube}},
      {"linear", {"Matmul", "MatMulCommon", "MatMulV2", kCube}},
      {"bmm", {"BatchMatMul", "BatchMatMulNode", "BatchMatMulV2", kCube}},
      {"baddbmm", {"Baddbmm", "BatchMatMulNode", "BatchMatMulV2", kCube}},
      {"addmv", {"Addmv", "MatMulCommon", "MatMulV2", kCube}},
      {"mv", {"Mv", "MatMulCommon", "MatMulV2", kCube}},
      {"dot", {"Dot", "DotAiCore", "Dot", kCube}},
      {"convolution_overrideable", {"Convolution", "Conv2D", "Conv2D", kCube}},
      {"convolution_backward_overrideable", {"ConvolutionBackward", "Conv2DBackprop", "Conv2DBackpropFilter", kCube}},
      {"_scaled_dot_product_flash_attention_for_cpu",
       {"FlashAttentionScore", "FlashAttentionScore", "FlashAttentionScore", kMixCube}},
      {"_scaled_dot_product_flash_attention_for_cpu_backward",
       {"FlashAttentionScoreGrad", "FlashAttentionScoreGrad", "FlashAttentionScoreGrad", kMixCube}},
      {"npu_fusion_attention_v1", {"FlashAttentionScore", "FlashAttentionScore", "FlashAttentionScore", kMixCube}},
      {"npu_fusion_attention_grad_v1", {"FlashAttentionScoreGrad", "FlashAttentionScoreGrad", "FlashAttentionScoreGrad", kMixCube}},
      {"npu_rms_norm", {"RmsNorm", "RmsNorm", "RmsNorm", kVector}},
      {"npu_rms_norm_backward", {"RmsNormGrad", "RmsNormGrad", "RmsNormGrad", kMixVector}},
      {"npu_add_rms_norm", {"AddRmsNorm", "AddRmsNorm", "AddRmsNorm", kVector}},
      {"npu_swiglu", {"SwiGlu", "SwiGlu", "SwiGlu", kVector}},
      {"npu_swiglu_backward", {"SwiGluGrad", "SwiGluGrad", "SwiGluGrad", kVector}},
      {"npu_rotary_mul", {"RotaryPositionEmbedding", "RotaryPositionEmbedding", "RotaryPositionEmbedding", kVector}},
      {"npu_rotary_mul_backward",
       {"RotaryPositionEmbeddingGrad", "RotaryPositionEmbeddingGrad", "RotaryPositionEmbeddingGrad", kVector}},
      {"add", {"Add", "AddAiCore", "Add", kVector}},
      {"sub", {"Sub", "SubAiCore", "Sub", kVector}},
      {"mul", {"Mul", "MulAiCore", "Mul", kVector}},
      {"div", {"Div", "RealDivAiCore", "RealDiv", kVector}},
      {"eq", {"EqTensor", "EqualAiCore", "Equal", kVector}},
      {"ne", {"NeTensor", "NotEqualAiCore", "NotEqual", kVector}},
      {"lt", {"LtTensor", "LessAiCore", "Less", kVector}},
      {"le", {"LeTensor", "LessEqualAiCore", "LessEqual", kVector}},
      {"gt", {"GtTensor", "GreaterAiCore", "Greater", kVector}},
      {"ge", {"GeTensor", "GreaterEqualAiCore", "GreaterEqual", kVector}},
      {"pow", {"PowTensorScalar", "PowAiCore", "Pow", kVector}},
      {"fill", {"InplaceFillScalar", "FillAiCore", "Fill", kVector}},
      {"zero", {"InplaceZero", "ZerosLikeAiCore", "ZerosLike", kVector}},
      {"relu", {"Relu", "Relu", "Relu", kVector}},
      {"threshold_backward", {"ThresholdBackward", "ReluGrad", "ReluGrad", kVector}},
      {"gelu_backward", {"GeluBackward", "GeluGradAiCore", "GeluGrad", kVector}},
      {"silu", {"Silu", "SwishAiCore", "Swish", kVector}},
      {"silu_backward", {"SiluBackward", "SiluGradAiCore", "SiluGrad", kVector}},
      {"_softmax", {"Softmax", "SoftmaxV2AiCore", "SoftmaxV2", kVector}},
      {"_softmax_backward_data", {"SoftmaxBackward", "SoftmaxGradAiCore", "SoftmaxGrad", kVector}},
      {"_log_softmax", {"LogSoftmax", "LogSoftmaxAiCore", "LogSoftmaxV2", kVector}},
      {"_log_softmax_backward_data", {"LogSoftmaxBackward", "LogSoftmaxGrad", "LogSoftmaxGrad", kVector}},
      {"nll_loss_forward", {"NLLLoss", "NLLLossAiCore", "NLLLoss", kMixVector}},
      {"nll_loss_backward", {"NLLLossBackward", "NLLLossGradAiCore", "NLLLossGrad", kVector}},
      {"mse_loss", {"MseLoss", "MseLossAiCore", "MseLoss", kVector}},
      {"mse_loss_backward", {"MseLossBackward", "MseLossGradAiCore", "MseLossGrad", kVector}},
      {"native_dropout", {"DropoutDoMask", "DropoutDoMaskAiCore", "DropOutDoMask", kVector}},
      {"native_dropout_backward", {"DropoutDoMask", "DropoutDoMaskAiCore", "DropOutDoMask", kVector}},
      {"native_layer_norm", {"LayerNorm", "LayerNormV4AiCore", "LayerNormV4", kVector}},
      {"native_layer_norm_backward", {"LayerNormBackward", "LayerNormGradV3AiCore", "LayerNormGradV3", kMixVector}},
      {"native_batch_norm", {"BatchNorm", "BNTrainingUpdateAiCore", "BNTrainingUpdate", kVector}},
      {"native_batch_norm_backward", {"BatchNormBackward", "BNTrainingReduceGradAiCore", "BNTrainingReduceGrad", kVector}},
      {"native_group_norm", {"GroupNorm", "GroupNormAiCore", "GroupNorm", kVector}},
      {"max_pool2d_with_indices", {"MaxPool2dWithMask", "MaxPoolWithArgmaxV1AiCore", "MaxPoolWithArgmaxV1", kVector}},
      {"max_pool2d_with_indices_backward",
       {"MaxPool2dWithMaskBackward", "MaxPoolGradWithArgmaxV1AiCore", "MaxPoolGradWithArgmaxV1", kVector}},
      {"_adaptive_avg_pool2d", {"AdaptiveAvgPool2d", "AdaptiveAvgPool3dAiCore", "AdaptiveAvgPool3d", kVector}},
      {"_adaptive_avg_pool2d_backward",
       {"AdaptiveAvgPool2dBackward", "AdaptiveAvgPool3dGradAiCore", "AdaptiveAvgPool3dGrad", kMixVector}},
      {"sum", {"ReduceSum", "ReduceSumOpAiCore", "ReduceSum", kMixVector}},
      {"mean", {"Mean", "ReduceMeanAiCore", "ReduceMean", kMixVector}},
      {"amax", {"Amax", "ReduceMaxAiCore", "ReduceMax", kMixVector}},
      {"prod", {"Prod", "ReduceProdAiCore", "ReduceProd", kMixVector}},
      {"argmax", {"ArgMax", "ArgMaxV2AiCore", "ArgMaxV2", kMixVector}},
      {"topk", {"Topk", "TopkV2", "TopKV2", kMixVector}},
      {"embedding", {"Embedding", "GatherV2AiCore", "GatherV2", kVector}},
      {"embedding_dense_backward", {"EmbeddingDenseBackward", "EmbeddingDenseGradAiCore", "EmbeddingDenseGrad", kMixVector}},
      {"index_select", {"IndexSelect", "GatherV2AiCore", "GatherV2", kVector}},
      {"index", {"Index", "IndexAiCore", "Index", kVector}},
      {"_index_put_impl", {"IndexPutImpl", "IndexPutV2AiCore", "IndexPutV2", kVector}},
      {"gather", {"Gather", "GatherElementsAiCore", "GatherElements", kVector}},
      {"cat", {"Cat", "ConcatD", "ConcatD", kVector}},
      {"copy", {"InplaceCopy", "TensorMoveAiCore", "TensorMove", kVector}},
      {"copy_strided", {"InplaceCopy", "ViewCopyAiCore", "ViewCopy", kVector}},
      {"copy_cast", {"Cast", "CastAiCore", "Cast", kVector}},
      {"bernoulli", {"InplaceBernoulli", "StatelessBernoulliAiCore", "StatelessBernoulli", kVector}},
      {"normal", {"InplaceNormal", "DSARandomNormal", "DSARandomNormal", kCpu}},
      {"uniform", {"InplaceUniform", "DSARandomUniform", "DSARandomUniform", kCpu}},
      {"random", {"InplaceRandom", "DSARandomUniform", "DSARandomUniform", kCpu}},
      {"_fused_adamw", {"ApplyAdamWV2", "ApplyAdamWV2AiCore", "ApplyAdamWV2", kVector}},
      {"_fused_adam", {"ApplyAdam", "ApplyAdamAiCore", "ApplyAdam", kVector}},
      {"_amp_foreach_non_finite_check_and_unscale",
       {"ForeachNonFiniteCheckAndUnscale", "ForeachNonFiniteCheckAndUnscale", "ForeachNonFiniteCheckAndUnscale", kVector}},
      {"_thnn_fused_lstm_cell", {"ThnnFusedLstmCell", "ThnnFusedLstmCell", "ThnnFusedLstmCell", kVector}},
      {"_thnn_fused_lstm_cell_backward_impl",
       {"ThnnFusedLstmCellBackward", "ThnnFusedLstmCellGrad", "ThnnFusedLstmCellGrad", kVector}},
      {"_thnn_fused_gru_cell", {"ThnnFusedGruCell", "ThnnFusedGruCell", "ThnnFusedGruCell", kVector}},
      {"_thnn_fused_gru_cell_backward", {"ThnnFusedGruCellBackward", "ThnnFusedGruCellGrad", "ThnnFusedGruCellGrad", kVector}},
  };
  return *table;
}

// Operators that hardware leaves to its CPU cores.
bool runs_on_ai_cpu(const std::string& base) {
  static const char* const parts[] = {"nonzero",  "unique",       "linalg",   "_fft",   "cholesky", "svd",     "multinomial",
                                      "bincount", "histc",        "triu_i",   "tril_i", "randperm", "poisson", "lu_",
                                      "_ctc",     "searchsorted", "binomial", "polar",  "ormqr",    "geqrf",   "masked_select"};
  return std::any_of(std::begin(parts), std::end(parts), [&](const char* part) { return base.find(part) != std::string::npos; });
}

bool reduces(const std::string& base) {
  static const char* const names[] = {"all", "any", "amin",     "max", "min", "argmin", "norm", "linalg_vector_norm",
                                      "std", "var", "logsumexp"};
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) { return base == name; });
}

std::string camel(const std::string& text) {
  std::string out;
  bool up = true;
  for (char c : text) {
    if (c == '_' || c == '.' || c == ':') {
      up = true;
      continue;
    }
    out += up ? static_cast<char>(toupper(c)) : c;
    up = false;
  }
  return out;
}

struct FullNames {
  std::string api, kernel, type, core;
};

FullNames names_of(const KernelCall& call) {
  std::string name = call.op, overload;
  if (auto at = name.find("::"); at != std::string::npos)
    name = name.substr(at + 2);
  if (auto at = name.find('.'); at != std::string::npos) {
    overload = name.substr(at + 1);
    name.resize(at);
  }
  const bool in_place = name.size() > 1 && name.back() == '_';
  if (in_place)
    name.pop_back();
  if (name.rfind("_foreach_", 0) == 0) {
    const std::string type = "Foreach" + camel(name.substr(9)) + (overload == "out" ? "" : camel(overload));
    return {"aclnn" + type + "V2", type + "V2", type, kVector};
  }
  if (auto found = known().find(name); found != known().end()) {
    const Names& n = found->second;
    std::string api = n.api;
    if (in_place && api.rfind("Inplace", 0) != 0 && n.core == kVector)
      api = "Inplace" + api;
    if (call.scalar_operand && (name == "add" || name == "sub" || name == "mul" || name == "div"))
      api += 's';
    return {"aclnn" + api, n.kernel, n.type, n.core};
  }
  const std::string base = name[0] == '_' ? name.substr(1) : name;
  const std::string word = camel(base);
  constexpr size_t kBackward = sizeof("Backward") - 1;
  std::string type = word;
  if (type.size() > kBackward && type.compare(type.size() - kBackward, kBackward, "Backward") == 0)
    type.replace(type.size() - kBackward, kBackward, "Grad");
  const char* core = runs_on_ai_cpu(base) ? kCpu : reduces(base) ? kMixVector : kVector;
  return {std::string("aclnn") + (in_place ? "Inplace" : "") + word, type + (core == kCpu ? "AiCpu" : "AiCore"), type, core};
}

int64_t elements(const Layout& layout) {
  int64_t count = 1;
  for (int64_t size : layout.sizes)
    count *= size;
  return layout.defined ? count : 0;
}

int64_t bytes_of(const std::vector<Layout>& layouts) {
  int64_t bytes = 0;
  for (const Layout& layout : layouts)
    if (layout.defined)
      bytes += elements(layout) * static_cast<int64_t>(c10::elementSize(layout.dtype));
  return bytes;
}

// Multiplications and additions that the mathematics asks for.
double flops_of(const KernelCall& call, const FullNames& names) {
  double made = 0;
  for (const Layout& out : call.outputs)
    made += static_cast<double>(elements(out));
  const auto& in = call.inputs;
  auto last = [](const Layout& l) { return l.sizes.empty() ? 1.0 : static_cast<double>(l.sizes.back()); };
  if (names.type == "FlashAttentionScore" && in.size() >= 3 && in[1].sizes.size() == 4)
    return 4.0 * static_cast<double>(elements(in[0])) * static_cast<double>(in[1].sizes[2]);
  if (names.type == "FlashAttentionScoreGrad" && in.size() >= 4 && in[2].sizes.size() == 4)
    return 10.0 * static_cast<double>(elements(in[1])) * static_cast<double>(in[2].sizes[2]);
  if (names.type == "Conv2D" && in.size() >= 2 && !in[1].sizes.empty() && in[1].sizes[0])
    return 2.0 * made * static_cast<double>(elements(in[1]) / in[1].sizes[0]);
  if (names.type == "Conv2DBackpropFilter" && in.size() >= 3 && !in[2].sizes.empty() && in[2].sizes[0])
    return 4.0 * static_cast<double>(elements(in[0])) * static_cast<double>(elements(in[2]) / in[2].sizes[0]);
  if (names.core == kCube && in.size() >= 2) {
    const bool with_bias = names.api == "aclnnAddmm" || names.api == "aclnnBaddbmm" || names.api == "aclnnAddmv";
    return 2.0 * (call.outputs.empty() ? 1.0 : static_cast<double>(elements(call.outputs[0]))) * last(in[with_bias ? 1 : 0]);
  }
  double read = 0;
  for (const Layout& layout : in)
    read = std::max(read, static_cast<double>(elements(layout)));
  return std::max(made, read);
}

int64_t blocks_of(const KernelCall& call, const FullNames& names) {
  int64_t most = 0;
  for (const auto* layouts : {&call.inputs, &call.outputs})
    for (const Layout& layout : *layouts)
      most = std::max(most, elements(layout));
  if (names.core == kCpu)
    return 1;
  const bool cube = names.core == kCube || names.core == kMixCube;
  const int64_t per_block = cube ? 128 * 128 : 2048, cores = cube ? kCubeCores : kVectorCores;
  return std::clamp<int64_t>((most + per_block - 1) / per_block, 1, cores);
}

// Partial results in single precision: of the whole output where products are summed, of each core where values are reduced.
size_t workspace_of(const KernelCall& call, const FullNames& names, int64_t blocks) {
  const bool cube = names.core == kCube || names.core == kMixCube;
  if (!cube && names.core != kMixVector)
    return 0;
  int64_t count = 0;
  for (const Layout& layout : call.outputs)
    count += elements(layout);
  return static_cast<size_t>(count * (cube ? 1 : blocks)) * sizeof(float);
}

const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::ScalarType::Float: return "FLOAT";
    case at::ScalarType::Half: return "FLOAT16";
    case at::ScalarType::BFloat16: return "DT_BF16";
    case at::ScalarType::Double: return "DOUBLE";
    case at::ScalarType::Long: return "INT64";
    case at::ScalarType::Int: return "INT32";
    case at::ScalarType::Short: return "INT16";
    case at::ScalarType::Char: return "INT8";
    case at::ScalarType::Byte: return "UINT8";
    case at::ScalarType::Bool: return "BOOL";
    case at::ScalarType::ComplexFloat: return "COMPLEX64";
    case at::ScalarType::ComplexDouble: return "COMPLEX128";
    default: return "UNDEFINED";
  }
}

std::mutex mutex;
std::vector<std::string>& all() {
  static auto* texts = new std::vector<std::string>;
  return *texts;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
  }
  return out + "\"";
}

template <class List>
std::string list_json(const List& list, const std::string& type) {
  std::string out = "[";
  for (size_t i = 0; i < list.size(); i++)
    out += (i ? "," : "") + attribute_json(c10::IValue(list.get(i)), type);
  return out + "]";
}

}  // namespace

std::string attribute_json(const c10::IValue& value, const std::string& type) {
  if (value.isBool())
    return value.toBool() ? "true" : "false";
  if (value.isInt() && type.find("ScalarType") != std::string::npos)
    return quoted(dtype_name(static_cast<at::ScalarType>(value.toInt())));
  if (value.isInt() && (type.find("Layout") != std::string::npos || type.find("MemoryFormat") != std::string::npos))
    return "";
  if (value.isInt())
    return std::to_string(value.toInt());
  if (value.isDouble() && std::isfinite(value.toDouble())) {
    char text[32];
    snprintf(text, sizeof text, "%.17g", value.toDouble());
    return text;
  }
  if (value.isDouble())
    return std::isnan(value.toDouble()) ? "\"nan\"" : value.toDouble() > 0 ? "\"inf\"" : "\"-inf\"";
  if (value.isString())
    return quoted(value.toStringRef());
  if (value.isIntList())
    return list_json(value.toIntList(), type);
  if (value.isDoubleList())
    return list_json(value.toDoubleList(), type);
  if (value.isBoolList())
    return list_json(value.toBoolList(), type);
  return "";
}

std::string tensors_json(const std::vector<Layout>& layouts, bool image) {
  std::string out = "[";
  for (const Layout& layout : layouts) {
    if (!layout.defined)
      continue;
    if (out.size() > 1)
      out += ',';
    out += "{\"shape\":[";
    for (size_t i = 0; i < layout.sizes.size(); i++)
      out += (i ? "," : "") + std::to_string(layout.sizes[i]);
    out += std::string("],\"dtype\":\"") + dtype_name(layout.dtype) + "\",\"format\":\"";
    out += image && layout.sizes.size() == 4 ? "NCHW\"}" : "ND\"}";
  }
  return out + "]";
}

uint32_t describe(const KernelCall& call, Model* model, uint32_t number) {
  const FullNames names = names_of(call);
  const double flops = flops_of(call, names);
  const int64_t bytes = bytes_of(call.inputs) + bytes_of(call.outputs);
  const bool cube = names.core == kCube || names.core == kMixCube;
  const double computing = flops / (cube ? kCubeFlopsPerNs : kVectorFlopsPerNs);
  const double moving = static_cast<double>(bytes) / (names.core == kCpu ? kCpuBytesPerNs : kBytesPerNs);
  model->duration_ns = static_cast<int64_t>(kFixedNs + std::max(computing, moving));
  const int64_t blocks = blocks_of(call, names);
  model->workspace = workspace_of(call, names, blocks);
  const bool image = names.type.rfind("Conv", 0) == 0 || names.type.rfind("MaxPool", 0) == 0 || names.type.rfind("BN", 0) == 0;
  std::string text = "{\"operator\":\"" + call.op + "\",\"name\":\"" + names.api + "_" + names.kernel + "_" + names.type +
                     "\",\"api\":\"" + names.api + "\",\"type\":\"" + names.type + "\",\"core\":\"" + names.core +
                     "\",\"blocks\":" + std::to_string(blocks) +
                     ",\"mix_blocks\":" + std::to_string(names.core == kMixCube ? 2 * blocks : 0) +
                     ",\"flops\":" + std::to_string(static_cast<int64_t>(flops)) + ",\"bytes\":" + std::to_string(bytes) +
                     ",\"modelled_ns\":" + std::to_string(model->duration_ns) + ",\"inputs\":" + tensors_json(call.inputs, image) +
                     ",\"outputs\":" + tensors_json(call.outputs, image) + ",\"attributes\":{" + call.attributes + "}}";
  return describe_as(text, number);
}

uint32_t describe_as(const std::string& json, uint32_t number) {
  std::lock_guard lock(mutex);
  if (number) {
    all().at(number - 1) = json;
    return number;
  }
  all().push_back(json);
  return static_cast<uint32_t>(all().size());
}

uint32_t descriptions() {
  std::lock_guard lock(mutex);
  return static_cast<uint32_t>(all().size());
}

std::string description(uint32_t number) {
  std::lock_guard lock(mutex);
  return number >= 1 && number <= all().size() ? all()[number - 1] : "";
}

}  // namespace simnpu
