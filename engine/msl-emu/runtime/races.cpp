// What ThreadSanitizer reports, as faults.
#if defined(EMU_THREADS)

#include "arena.h"
#include "machine.h"
#include "report.h"

extern "C" {
int __tsan_get_report_data(void* report, const char** description, int* count, int* stacks, int* accesses, int* locations, int* mutexes,
                           int* threads, int* unique_tids, void** sleep_trace, unsigned long trace_size);
int __tsan_get_report_mop(void* report, unsigned long index, int* tid, void** address, int* size, int* write, int* atomic, void** trace,
                          unsigned long trace_size);
int __tsan_get_report_thread(void* report, unsigned long index, int* tid, unsigned long* os_id, int* running, const char** name,
                             int* parent, void** trace, unsigned long trace_size);
}

namespace emu {
namespace {
ThreadName thread_of_report(void* report, int tid, int threads) {
  for (int i = 0; i < threads; ++i) {
    int found = 0, is_running = 0, parent = 0;
    unsigned long os_id = 0;
    const char* name = nullptr;
    void* trace[1] = {};
    __tsan_get_report_thread(report, static_cast<unsigned long>(i), &found, &os_id, &is_running, &name, &parent, trace, 1);
    if (found == tid) return thread_of_system(os_id);
  }
  return {};
}
} // namespace

/// ThreadSanitizer found a race.
void race_report(void* report) {
  const char* description = nullptr;
  int count = 0, stacks = 0, accesses = 0, locations = 0, mutexes = 0, threads = 0, tids = 0;
  void* sleep_trace[1] = {};
  __tsan_get_report_data(report, &description, &count, &stacks, &accesses, &locations, &mutexes, &threads, &tids, sleep_trace, 1);
  if (accesses < 2) return;
  Where sides[2];
  std::uintptr_t at = 0;
  const char* what[2] = {};
  for (int i = 0; i < 2; ++i) {
    int tid = 0, size = 0, write = 0, atomic = 0;
    void *address = nullptr, *trace[1] = {};
    __tsan_get_report_mop(report, static_cast<unsigned long>(i), &tid, &address, &size, &write, &atomic, trace, 1);
    at = reinterpret_cast<std::uintptr_t>(address);
    what[i] = write ? "write" : "read";
    sides[i].pc = reinterpret_cast<std::uintptr_t>(trace[0]) - 1;
    sides[i].thread = i == 0 ? running_thread() : thread_of_report(report, tid, threads);
  }
  const Region* region = region_near(at);
  // A thread of another group may have gone on to a third since.
  if (!region || region->kind != Kind::group) sides[1].thread = {};
  Text text;
  text << what[0] << " and " << what[1] << " of ";
  if (region && region->kind != Kind::group) {
    text << "element " << std::uint64_t{(at - region->base) / region->element} << " of `" << region->name << "`";
  } else {
    text << "threadgroup memory";
  }
  text << " by two threads with no barrier between";
  write_fault({"race", "thread-sanitizer", text.c_str(), sides[0], sides[1]});
}

} // namespace emu

extern "C" void __tsan_on_report(void* report) { emu::race_report(report); }

#endif
