#include "report.h"

#include <cstdlib>
#include <cstring>
#include <unistd.h>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

#if !defined(__APPLE__)
extern "C" char __executable_start, etext, _end;
#endif

namespace emu {

std::uint64_t report_seed = 0;

namespace {
constexpr unsigned max_faults = 32;
struct Key {
  const char* kind;
  std::uintptr_t at, other;
};
Key seen[max_faults];
unsigned written = 0;
int faults_descriptor = -1;
char lock = 0;

std::uintptr_t key_of(const Where& where) {
  return where.pc ? where.pc : reinterpret_cast<std::uintptr_t>(where.file) * 31 + where.line;
}

/// Whether a fault of this kind, between these two places either way round, is new; then it counts as seen.
bool take(const Report& report) {
  const std::uintptr_t at = key_of(report.at), other = key_of(report.other);
  for (unsigned i = 0; i < written; ++i) {
    const bool same = (seen[i].at == at && seen[i].other == other) || (seen[i].at == other && seen[i].other == at);
    if (same && std::strcmp(seen[i].kind, report.kind) == 0) return false;
  }
  if (written == max_faults) return false;
  seen[written++] = {report.kind, at, other};
  return true;
}

void put_triple(Text& line, const unsigned (&v)[3]) {
  line << "[" << std::uint64_t{v[0]} << "," << std::uint64_t{v[1]} << "," << std::uint64_t{v[2]} << "]";
}

void put_where(Text& line, const char* name, const Where& where) {
  line << ",\"" << name << "\":{";
  if (where.file) {
    (line << "\"file\":").quoted(where.file) << ",\"line\":" << std::uint64_t{where.line} << ",";
  }
  line << "\"pc\":" << std::uint64_t{where.pc ? file_address(where.pc) : 0};
  line << ",\"callers\":[";
  for (std::size_t i = 0; i < sizeof where.callers / sizeof *where.callers && where.callers[i]; ++i) {
    line << (i ? "," : "") << std::uint64_t{file_address(where.callers[i])};
  }
  line << "]";
  if (where.thread.known) {
    line << ",\"thread\":{\"group\":";
    put_triple(line, where.thread.group);
    line << ",\"local\":";
    put_triple(line, where.thread.local);
    line << "}";
  }
  line << "}";
}
} // namespace

Text& Text::operator<<(const char* text) {
  while (*text && length + 1 < sizeof(buffer)) buffer[length++] = *text++;
  return *this;
}

Text& Text::operator<<(std::uint64_t number) {
  char digits[21] = {};
  char* at = digits + 20;
  do {
    *--at = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number);
  return *this << at;
}

Text& Text::quoted(const char* text) {
  *this << "\"";
  for (; *text; ++text) {
    const unsigned char c = static_cast<unsigned char>(*text);
    const char one[2] = {static_cast<char>(c < 0x20 ? ' ' : c), 0};
    if (c == '"' || c == '\\') *this << "\\";
    *this << one;
  }
  return *this << "\"";
}

void open_faults(int descriptor) { faults_descriptor = descriptor; }
unsigned fault_count() { return written; }

void write_fault(const Report& report) {
  while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) {}
  if (take(report)) {
    Text line;
    (line << "{\"kind\":").quoted(report.kind);
    (line << ",\"detector\":").quoted(report.detector);
    (line << ",\"message\":").quoted(report.message);
    put_where(line, "at", report.at);
    put_where(line, "other", report.other);
    line << ",\"seed\":" << report_seed << "}\n";
    if (write(faults_descriptor, line.c_str(), line.size()) < 0) _exit(exit_usage);
  }
  __atomic_clear(&lock, __ATOMIC_RELEASE);
}

void end_with(const Report& report) {
  write_fault(report);
  _exit(exit_fault);
}

std::uintptr_t code_start() {
#if defined(__APPLE__)
  return static_cast<std::uintptr_t>(_dyld_get_image_vmaddr_slide(0));
#else
  return reinterpret_cast<std::uintptr_t>(&__executable_start); // linked with -pie: its first address in the file is 0
#endif
}

std::uintptr_t file_address(std::uintptr_t pc) { return pc - code_start(); }

bool in_code(std::uintptr_t address) {
#if defined(__APPLE__)
  (void)address;
  return false;
#else
  return address >= reinterpret_cast<std::uintptr_t>(&__executable_start) && address < reinterpret_cast<std::uintptr_t>(&etext);
#endif
}

bool in_program(std::uintptr_t address) {
#if defined(__APPLE__)
  (void)address; // the loader gives no end: a wild address ends in a signal instead
  return true;
#else
  return address >= reinterpret_cast<std::uintptr_t>(&__executable_start) && address < reinterpret_cast<std::uintptr_t>(&_end);
#endif
}

void report(const char* kind, const char* message, Site site) {
  const Where at{site.file, static_cast<unsigned>(site.line), 0, running_thread(), {}};
  write_fault({kind, "headers", message, at, {}});
}

void fail(const char* kind, const char* message, Site site) {
  const Where at{site.file, static_cast<unsigned>(site.line), 0, running_thread(), {}};
  end_with({kind, "headers", message, at, {}});
}

} // namespace emu
