// Handlers of -fsanitize=undefined, in place of libubsan's: undefined behaviour as faults of the kernel.
#include <cstdint>

#include "report.h"

namespace emu {
namespace {

// Layouts that gcc and clang share.
struct SourceLocation {
  const char* file;
  std::uint32_t line, column;
};
struct Type {
  std::uint16_t kind, info; // kind 0: integer; info: bit 0 signed, then log2 of the width
  char name[1];
};
struct OverflowData {
  SourceLocation at;
  const Type* type;
};
struct ShiftData {
  SourceLocation at;
  const Type *left, *right;
};
struct BoundsData {
  SourceLocation at;
  const Type *array, *index;
};
struct MismatchData {
  SourceLocation at;
  const Type* type;
  std::uint8_t log_alignment, kind;
};

struct FloatCastData {
  SourceLocation at;
  const Type *from, *to;
};
/// Where the compiler knows no location it leaves that field out.
struct PlainFloatCastData {
  const Type *from, *to;
};

/// Whether the data begins with a type and not with a file name: kinds are 0, 1 and 0xffff, no letters.
bool is_plain(const void* data) {
  const auto* first = *static_cast<const unsigned char* const*>(data);
  return first[0] + first[1] < 2 || first[0] == 0xff || first[1] == 0xff;
}

void undefined(const char* kind, const Text& text, const SourceLocation& at, std::uintptr_t pc) {
  write_fault({kind, "undefined", text.c_str(), {at.file, at.line, pc, running_thread(), {}}, {}});
}

/// A value as the handlers get it: in the argument where it fits a register.
Text& put_value(Text& text, const Type& type, std::uintptr_t value) {
  const bool is_signed = type.info & 1;
  const unsigned width = 1u << (type.info >> 1);
  if (type.kind != 0 || width > 8 * sizeof(value)) return text << "?";
  const unsigned unused = 8 * sizeof(value) - width;
  if (!is_signed) return text << std::uint64_t{value << unused >> unused};
  const auto wide = static_cast<std::int64_t>(value << unused) >> unused;
  if (wide < 0) return text << "-" << (std::uint64_t{0} - static_cast<std::uint64_t>(wide));
  return text << static_cast<std::uint64_t>(wide);
}

void overflow(const OverflowData& data, std::uintptr_t left, const char* op, std::uintptr_t right, std::uintptr_t pc) {
  Text text;
  put_value(text, *data.type, left) << " " << op << " ";
  put_value(text, *data.type, right) << " does not fit " << data.type->name;
  undefined("integer-overflow", text, data.at, pc);
}

} // namespace
} // namespace emu

#define EMU_PC (reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) - 1)

extern "C" {
void __ubsan_handle_add_overflow(emu::OverflowData* data, std::uintptr_t a, std::uintptr_t b) { emu::overflow(*data, a, "+", b, EMU_PC); }
void __ubsan_handle_sub_overflow(emu::OverflowData* data, std::uintptr_t a, std::uintptr_t b) { emu::overflow(*data, a, "-", b, EMU_PC); }
void __ubsan_handle_mul_overflow(emu::OverflowData* data, std::uintptr_t a, std::uintptr_t b) { emu::overflow(*data, a, "*", b, EMU_PC); }

void __ubsan_handle_negate_overflow(emu::OverflowData* data, std::uintptr_t a) {
  emu::Text text;
  emu::put_value(text << "-(", *data->type, a) << ") does not fit " << data->type->name;
  emu::undefined("integer-overflow", text, data->at, EMU_PC);
}

void __ubsan_handle_divrem_overflow(emu::OverflowData* data, std::uintptr_t a, std::uintptr_t b) {
  emu::Text text;
  emu::put_value(text, *data->type, a) << " divided by ";
  emu::put_value(text, *data->type, b);
  // The processor may trap on the division itself.
  emu::end_with({"arithmetic", "undefined", text.c_str(), {data->at.file, data->at.line, EMU_PC, emu::running_thread(), {}}, {}});
}

void __ubsan_handle_shift_out_of_bounds(emu::ShiftData* data, std::uintptr_t a, std::uintptr_t b) {
  emu::Text text;
  emu::put_value(text, *data->left, a) << " shifted by ";
  emu::put_value(text, *data->right, b) << " in " << data->left->name;
  emu::undefined("arithmetic", text, data->at, EMU_PC);
}

void __ubsan_handle_float_cast_overflow(void* data, std::uintptr_t) {
  const bool plain = emu::is_plain(data);
  const auto* known = static_cast<emu::FloatCastData*>(data);
  const auto* bare = static_cast<emu::PlainFloatCastData*>(data);
  emu::Text text;
  text << "a value of " << (plain ? bare->from : known->from)->name << " does not fit " << (plain ? bare->to : known->to)->name;
  emu::undefined("arithmetic", text, plain ? emu::SourceLocation{} : known->at, EMU_PC);
}

void __ubsan_handle_out_of_bounds(emu::BoundsData* data, std::uintptr_t index) {
  emu::Text text;
  emu::put_value(text << "index ", *data->index, index) << " of " << data->array->name;
  emu::undefined("out-of-bounds", text, data->at, EMU_PC);
}

void __ubsan_handle_type_mismatch_v1(emu::MismatchData* data, std::uintptr_t address) {
  emu::Text text;
  const std::uintptr_t alignment = std::uintptr_t{1} << data->log_alignment;
  if (address == 0) {
    emu::undefined("out-of-bounds", text << "access of " << data->type->name << " through a null pointer", data->at, EMU_PC);
  } else if (address & (alignment - 1)) {
    text << "access of " << data->type->name << " at an address " << std::uint64_t{address & (alignment - 1)} << " bytes past a multiple of "
         << std::uint64_t{alignment};
    emu::undefined("misaligned", text, data->at, EMU_PC);
  }
}
}
