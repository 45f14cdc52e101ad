// Faults as JSON lines. Safe in signal handlers: no allocation, no stdio.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emu/runtime.h"

namespace emu {

/// A Metal thread as reports name it.
struct ThreadName {
  bool known = false;
  unsigned group[3] = {};
  unsigned local[3] = {};
};

/// One side of a fault: a site of the source, or the address of an instruction that Rust turns into one.
struct Where {
  const char* file = nullptr;
  unsigned line = 0;
  std::uintptr_t pc = 0;
  ThreadName thread = {};
  /// Where `pc` lies outside the kernel: addresses on the stack that may be its callers', innermost first.
  std::uintptr_t callers[8] = {};
};

struct Report {
  const char* kind;
  const char* detector;
  const char* message;
  Where at = {};
  Where other = {};
};

/// Writes the fault unless one of this kind between these places was written already, or too many were.
void write_fault(const Report& report);
/// Writes it and ends the process, outputs unwritten.
[[noreturn]] void end_with(const Report& report);
/// Faults written so far.
unsigned fault_count();
/// Takes over `descriptor` for the lines.
void open_faults(int descriptor);
/// Seed that the lines carry.
extern std::uint64_t report_seed;

/// The running thread's name; unknown outside a kernel.
ThreadName running_thread();
/// Whether `address` lies in the executable's instructions.
bool in_code(std::uintptr_t address);
/// Whether `address` lies in the executable: its constants and variables.
bool in_program(std::uintptr_t address);
/// Where the executable's address 0 was loaded.
std::uintptr_t code_start();
/// `pc` as the executable file has it.
std::uintptr_t file_address(std::uintptr_t pc);

/// Exit code of a process that a fault ended.
inline constexpr int exit_fault = 70;
/// Exit code where the launch itself is wrong.
inline constexpr int exit_usage = 64;

/// Text in a buffer of fixed size.
class Text {
public:
  Text& operator<<(const char* text);
  Text& operator<<(std::uint64_t number);
  const char* c_str() const { return buffer; }
  std::size_t size() const { return length; }
  /// JSON string with quotes.
  Text& quoted(const char* text);

private:
  char buffer[2048] = {};
  std::size_t length = 0;
};

} // namespace emu
