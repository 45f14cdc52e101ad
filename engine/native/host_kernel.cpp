// A kernel on the host as an operation of MLX's graph: evaluated when MLX gets to it, on the CPU's stream, on the
// arrays' own memory. The kernel itself is Rust (engine/src/kernels/deferred.rs), called through `Run`.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/array.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/primitives.h"
#include "mlx/stream.h"

namespace mx = mlx::core;

extern "C" {

// One array as it lies in memory. `Span` in deferred.rs has the same fields.
struct MlxParitySpan {
  void* start;
  const int32_t* shape;
  const int64_t* strides;
  int32_t rank;
};

// Computes a call; answers what went wrong, as text that lives as long as the thread's next call, or null.
using MlxParityRun = const char* (*)(
    void* call,
    const MlxParitySpan* operands,
    const MlxParitySpan* results);
using MlxParityDrop = void (*)(void* call);
}

namespace {

// The call, freed with the last array that needs it.
class Call {
 public:
  Call(void* call, MlxParityRun run, MlxParityDrop drop)
      : call_(call), run_(run), drop_(drop) {}
  ~Call() {
    drop_(call_);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void run(
      const std::vector<mx::array>& operands,
      const std::vector<mx::array>& results) const {
    const auto from = spans(operands), to = spans(results);
    if (const char* wrong = run_(call_, from.data(), to.data())) {
      throw std::runtime_error(wrong);
    }
  }

 private:
  static std::vector<MlxParitySpan> spans(const std::vector<mx::array>& arrays) {
    std::vector<MlxParitySpan> spans;
    for (const auto& array : arrays) {
      spans.push_back(
          {const_cast<uint8_t*>(array.data<uint8_t>()),
           array.shape().data(),
           array.strides().data(),
           static_cast<int32_t>(array.ndim())});
    }
    return spans;
  }

  void* call_;
  MlxParityRun run_;
  MlxParityDrop drop_;
};

class HostKernel : public mx::Primitive {
 public:
  HostKernel(mx::Stream stream, std::shared_ptr<Call> call)
      : Primitive(stream), call_(std::move(call)) {}

  void eval_cpu(
      const std::vector<mx::array>& inputs,
      std::vector<mx::array>& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    // The encoder's caller keeps the memory of both until the task has run.
    std::vector<mx::array> operands, results;
    for (const auto& input : inputs) {
      encoder.set_input_array(input);
      operands.push_back(mx::array::unsafe_weak_copy(input));
    }
    for (auto& output : outputs) {
      output.set_data(mx::allocator::malloc(output.nbytes()));
      encoder.set_output_array(output);
      results.push_back(mx::array::unsafe_weak_copy(output));
    }
    encoder.dispatch([call = call_,
                      operands = std::move(operands),
                      results = std::move(results)] { call->run(operands, results); });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("a host kernel runs on the CPU's stream");
  }

  const char* name() const override {
    return "MlxParityHostKernel";
  }

 private:
  std::shared_ptr<Call> call_;
};

} // namespace

// Puts a call into the graph. `operands` point to arrays of MLX; `shapes` holds the extents of each result in turn,
// `ranks[i]` of them; `dtypes` says what each result is of: 0 float16, 1 float32, 2 bfloat16 (`code` in deferred.rs).
// Fills `made` with new arrays that the caller owns. Owns `call` from here on, and frees it with `drop`. False where MLX
// throws.
extern "C" bool mlx_parity_host_kernel(
    const void* const* operands,
    size_t operand_count,
    const int32_t* shapes,
    const size_t* ranks,
    const uint32_t* dtypes,
    size_t result_count,
    void* call,
    MlxParityRun run,
    MlxParityDrop drop,
    void** made) {
  static constexpr mx::Dtype floats[] = {mx::float16, mx::float32, mx::bfloat16};
  try {
    auto owned = std::make_shared<Call>(call, run, drop);
    std::vector<mx::array> inputs;
    for (size_t i = 0; i < operand_count; ++i) {
      inputs.push_back(*static_cast<const mx::array*>(operands[i]));
    }
    std::vector<mx::Shape> extents;
    std::vector<mx::Dtype> forms;
    for (size_t i = 0; i < result_count; ++i) {
      extents.emplace_back(shapes, shapes + ranks[i]);
      shapes += ranks[i];
      forms.push_back(floats[dtypes[i]]);
    }
    auto stream = mx::default_stream(mx::Device(mx::Device::cpu));
    auto primitive = std::make_shared<HostKernel>(stream, std::move(owned));
    auto results = mx::array::make_arrays(std::move(extents), forms, primitive, inputs);
    for (size_t i = 0; i < result_count; ++i) {
      made[i] = new mx::array(std::move(results[i]));
    }
    return true;
  } catch (const std::exception&) {
    return false;
  }
}
