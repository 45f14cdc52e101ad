#include "guard.h"

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "arena.h"
#include "machine.h"
#include "report.h"

#if defined(EMU_ADDRESS)
#include <sanitizer/asan_interface.h>
#endif

namespace emu {
namespace {

/// Program counter and stack pointer of the interrupted code.
struct Registers {
  std::uintptr_t pc, stack;
};

Registers registers_of(void* context) {
  const auto* user = static_cast<const ucontext_t*>(context);
#if defined(__linux__) && defined(__x86_64__)
  const auto& r = user->uc_mcontext.gregs;
  return {static_cast<std::uintptr_t>(r[REG_RIP]), static_cast<std::uintptr_t>(r[REG_RSP])};
#elif defined(__linux__) && defined(__aarch64__)
  return {user->uc_mcontext.pc, user->uc_mcontext.sp};
#elif defined(__APPLE__) && defined(__aarch64__)
  return {user->uc_mcontext->__ss.__pc, user->uc_mcontext->__ss.__sp};
#elif defined(__APPLE__) && defined(__x86_64__)
  return {user->uc_mcontext->__ss.__rip, user->uc_mcontext->__ss.__rsp};
#else
  (void)user;
  return {};
#endif
}

/// The interrupted place; it may lie in a function that the kernel called, so addresses of code on its stack come too.
Where interrupted(void* context, bool stack_is_sound) {
  const Registers at = registers_of(context);
  Where where{nullptr, 0, at.pc, running_thread(), {}};
  if (!stack_is_sound) return where;
  constexpr std::size_t most = 64;
  const std::uintptr_t end = stack_end();
  const std::size_t left = end > at.stack ? (end - at.stack) / sizeof(std::uintptr_t) : 0;
  const std::size_t words = left < most ? left : most;
  unsigned found = 0;
  const auto* stack = reinterpret_cast<const std::uintptr_t*>(at.stack);
  for (std::size_t i = 0; i < words && found < sizeof where.callers / sizeof *where.callers; ++i) {
    if (in_code(stack[i])) where.callers[found++] = stack[i] - 1;
  }
  return where;
}

void on_alarm(int, siginfo_t*, void* context) {
  end_with({"time-limit", "guard", "the kernel ran past its time limit", interrupted(context, true), {}});
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const bool overflowed = signal != SIGFPE && below_stack(address);
  const Where at = interrupted(context, !overflowed);
  if (overflowed) {
    end_with({"stack-overflow", "guard", "the stack of a thread ran out", at, {}});
  }
  if (signal == SIGFPE) end_with({"arithmetic", "guard", "an integer division that has no result", at, {}});
  Text text;
  const Region* region = region_near(address);
  if (!region) end_with({"out-of-bounds", "guard", "access at an address in no buffer", at, {}});
  const bool inside = address >= region->base && address < region->base + region->size;
  if (inside && region->kind == Kind::input) {
    text << "write at element " << std::uint64_t{(address - region->base) / region->element} << " of `" << region->name << "`, an input";
    end_with({"input-written", "guard", text.c_str(), at, {}});
  }
  text << "access outside `" << region->name << "`, which has " << std::uint64_t{region->size / region->element} << " elements";
  end_with({"out-of-bounds", "guard", text.c_str(), at, {}});
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(signal, &action, nullptr);
}

} // namespace

void guard_thread() {
  constexpr std::size_t bytes = 64 << 10;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  stack_t stack = {};
  stack.ss_sp = memory;
  stack.ss_size = bytes;
  sigaltstack(&stack, nullptr);
}

void open_guard(unsigned limit) {
  guard_thread();
  handle(SIGSEGV, on_fault);
  handle(SIGBUS, on_fault);
  handle(SIGFPE, on_fault);
  if (limit == 0) return;
  handle(SIGALRM, on_alarm);
  itimerval timer = {};
  timer.it_value.tv_sec = limit / 1000;
  timer.it_value.tv_usec = static_cast<decltype(timer.it_value.tv_usec)>(limit % 1000 * 1000);
  setitimer(ITIMER_REAL, &timer, nullptr);
}

} // namespace emu

#if defined(EMU_ADDRESS)
/// AddressSanitizer calls this before it ends the process.
extern "C" void __asan_on_error() {
  const auto address = reinterpret_cast<std::uintptr_t>(__asan_get_report_address());
  const auto pc = reinterpret_cast<std::uintptr_t>(__asan_get_report_pc()) - 1; // it returns to the next instruction
  emu::Text text;
  text << (__asan_get_report_access_type() ? "write" : "read") << " of " << std::uint64_t{__asan_get_report_access_size()} << " bytes";
  const emu::Region* region = emu::region_near(address);
  if (region) {
    text << " outside `" << region->name << "`, which has " << std::uint64_t{region->size / region->element} << " elements";
  } else {
    text << ": " << __asan_get_report_description();
  }
  emu::end_with({"out-of-bounds", "address-sanitizer", text.c_str(), {nullptr, 0, pc, emu::running_thread(), {}}, {}});
}
#endif
