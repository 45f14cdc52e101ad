// Prints the text that MLX generates for a custom kernel, as its `verbose` option does.
//
// Usage: record < SPEC. A line of SPEC is a word and its values; texts are given by length and follow their line:
//   name NAME | header BYTES | body BYTES | atomic 0|1 | input NAME DTYPE AXES… | output NAME DTYPE | int NAME V | bool NAME V | dtype NAME D
//
// MLX without a Metal backend still has the generator, and asks before it: the answer here is yes. Nothing is evaluated.
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "mlx/fast.h"
#include "mlx/mlx.h"

namespace mlx::core::metal {
bool is_available() { return true; }
} // namespace mlx::core::metal

using namespace mlx::core;

namespace {
Dtype dtype_of(const std::string& name) {
  static const std::map<std::string, Dtype> names = {
      {"bool", bool_},   {"u8", uint8},   {"i8", int8},   {"u16", uint16},   {"i16", int16},   {"u32", uint32},
      {"i32", int32},    {"u64", uint64}, {"i64", int64}, {"f16", float16}, {"bf16", bfloat16}, {"f32", float32}};
  return names.at(name);
}

std::string text_of(std::istream& in, std::istringstream& line) {
  std::size_t bytes = 0;
  line >> bytes;
  std::string text(bytes, ' ');
  in.read(text.data(), static_cast<std::streamsize>(bytes));
  return text;
}
} // namespace

int main() {
  const Device cpu(Device::cpu, 0);
  set_default_device(cpu);
  std::string name, header, body, raw;
  bool atomic = false;
  std::vector<std::string> input_names, output_names;
  std::vector<array> inputs;
  std::vector<Dtype> output_dtypes;
  std::vector<std::pair<std::string, fast::TemplateArg>> arguments;
  while (std::getline(std::cin, raw)) {
    std::istringstream line(raw);
    std::string word, what, kind;
    line >> word;
    if (word == "header") header = text_of(std::cin, line);
    else if (word == "body") body = text_of(std::cin, line);
    else if (word == "name") line >> name;
    else if (word == "atomic") line >> atomic;
    else if (line >> what; word == "int") {
      int value = 0;
      line >> value;
      arguments.push_back({what, value});
    } else if (word == "bool") {
      int value = 0;
      line >> value;
      arguments.push_back({what, value != 0});
    } else if (line >> kind; word == "dtype") {
      arguments.push_back({what, dtype_of(kind)});
    } else if (word == "output") {
      output_names.push_back(what);
      output_dtypes.push_back(dtype_of(kind));
    } else if (word == "input") {
      Shape shape;
      for (int axis = 0; line >> axis;) shape.push_back(axis);
      input_names.push_back(what);
      inputs.push_back(zeros(shape, dtype_of(kind), cpu));
    }
  }
  const auto kernel = fast::metal_kernel(name, input_names, output_names, body, header, true, atomic);
  const std::vector<Shape> shapes(output_names.size(), Shape{1});
  const Stream gpu(0, Device(Device::gpu, 0));
  kernel(inputs, shapes, output_dtypes, {1, 1, 1}, {1, 1, 1}, arguments, std::nullopt, true, gpu);
}
