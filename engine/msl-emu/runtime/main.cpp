// Runs one launch that the file `launch` in the working folder describes, a word and its values on each line:
//   grid X Y Z | group X Y Z | seed N (one line for each) | limit MILLISECONDS
//   input NAME BYTES ELEMENT | output NAME BYTES ELEMENT INITIALISED
// in the order of the kernel's buffers. Buffer I comes from the file `I`; outputs of seed number K go to `I.K`,
// faults to `faults`, the nanoseconds spent in the kernel to `elapsed`.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <unistd.h>

#include "arena.h"
#include "checker.h"
#include "guard.h"
#include "machine.h"
#include "report.h"

namespace emu {
namespace {

constexpr unsigned max_seeds = 64;

struct Launch {
  Shape shape = {};
  unsigned long long seeds[max_seeds] = {};
  unsigned seed_count = 0;
  unsigned limit = 0;
};

[[noreturn]] void usage(const char* what) {
  std::fprintf(stderr, "launch: %s\n", what);
  _exit(exit_usage);
}

/// Names live as long as the process.
const char* keep(const char* name) { return strdup(name); }

bool read_buffer(Launch&, const char* word, std::FILE* file) {
  const bool is_input = std::strcmp(word, "input") == 0;
  if (!is_input && std::strcmp(word, "output") != 0) return false;
  char name[256] = {};
  unsigned long long bytes = 0;
  unsigned element = 0, initialised = 0;
  if (std::fscanf(file, "%255s %llu %u", name, &bytes, &element) != 3) usage("buffer");
  if (!is_input && std::fscanf(file, "%u", &initialised) != 1) usage("output");
  Region& region = map_region(keep(name), bytes, is_input ? Kind::input : Kind::output, element);
  region.initialised = initialised;
  return true;
}

Launch read_launch() {
  std::FILE* file = std::fopen("launch", "r");
  if (!file) usage("no such file");
  Launch launch;
  char word[32] = {};
  while (std::fscanf(file, "%31s", word) == 1) {
    const bool is_grid = std::strcmp(word, "grid") == 0;
    if (is_grid || std::strcmp(word, "group") == 0) {
      unsigned (&to)[3] = is_grid ? launch.shape.grid : launch.shape.nominal;
      if (std::fscanf(file, "%u %u %u", &to[0], &to[1], &to[2]) != 3) usage(word);
    } else if (std::strcmp(word, "seed") == 0) {
      if (launch.seed_count == max_seeds || std::fscanf(file, "%llu", &launch.seeds[launch.seed_count++]) != 1) usage(word);
    } else if (std::strcmp(word, "limit") == 0) {
      if (std::fscanf(file, "%u", &launch.limit) != 1) usage(word);
    } else if (!read_buffer(launch, word, file)) {
      usage(word);
    }
  }
  std::fclose(file);
  for (int axis = 0; axis < 3; ++axis) {
    launch.shape.groups[axis] = (launch.shape.grid[axis] - 1) / launch.shape.nominal[axis] + 1;
  }
  return launch;
}

void load(const Region& region, const char* path) {
  const int file = open(path, O_RDONLY);
  if (file < 0) usage(path);
  for (std::size_t at = 0; at < region.size;) {
    const ssize_t got = read(file, reinterpret_cast<char*>(region.base) + at, region.size - at);
    if (got <= 0) usage(path);
    at += static_cast<std::size_t>(got);
  }
  close(file);
}

void store(const Region& region, const char* path) {
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0) usage(path);
  for (std::size_t at = 0; at < region.size;) {
    const ssize_t put = write(file, reinterpret_cast<const char*>(region.base) + at, region.size - at);
    if (put <= 0) usage(path);
    at += static_cast<std::size_t>(put);
  }
  close(file);
}

/// Outputs as they are before the kernel runs: their initial value, or all bits one.
void prepare_outputs() {
  for (unsigned i = 0; i < region_count; ++i) {
    Region& region = regions[i];
    if (region.kind != Kind::output) continue;
    std::memset(reinterpret_cast<void*>(region.base), 0xff, region.size);
    char path[16];
    std::snprintf(path, sizeof path, "%u", i);
    if (region.initialised) load(region, path);
#if defined(EMU_CHECKED)
    const unsigned granule = region.element < 4 ? region.element : 4;
    region.shift = static_cast<unsigned>(__builtin_ctz(granule));
    reset_cells(region);
#endif
  }
}

void run_grid(const Shape& shape, std::uint64_t seed) {
  const std::uint64_t total = std::uint64_t{shape.groups[0]} * shape.groups[1] * shape.groups[2];
  auto* order = static_cast<std::uint64_t*>(std::malloc(total * sizeof(std::uint64_t)));
  Random random(seed);
  permute(order, total, seed, random);
  for (std::uint64_t i = 0; i < total; ++i) {
    const std::uint64_t g = order[i];
    const unsigned position[3] = {static_cast<unsigned>(g % shape.groups[0]),
                                  static_cast<unsigned>(g / shape.groups[0] % shape.groups[1]),
                                  static_cast<unsigned>(g / shape.groups[0] / shape.groups[1])};
    ++detail::group_serial;
    run_group(shape, position, seed);
  }
  std::free(order);
  end_grid();
}

std::uint64_t nanoseconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

void store_elapsed(std::uint64_t elapsed) {
  std::FILE* file = std::fopen("elapsed", "w");
  if (!file || std::fprintf(file, "%llu\n", static_cast<unsigned long long>(elapsed)) < 0 || std::fclose(file) != 0) usage("elapsed");
}

} // namespace

int run() {
  open_arena();
  open_faults(open("faults", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600));
  const Launch launch = read_launch();
  static void* buffers[max_regions];
  for (unsigned i = 0; i < region_count; ++i) {
    buffers[i] = reinterpret_cast<void*>(regions[i].base);
    if (regions[i].kind != Kind::input) continue;
    char path[16];
    std::snprintf(path, sizeof path, "%u", i);
    load(regions[i], path);
    seal(regions[i]);
  }
  entry_buffers = buffers;
  const unsigned declared = region_count;
  const Shape& shape = launch.shape;
  // Before there are threads: what this one writes must be ordered before what they do.
  prepare_outputs();
  open_machine(shape.nominal[0] * shape.nominal[1] * shape.nominal[2], std::uint64_t{shape.groups[0]} * shape.groups[1] * shape.groups[2]);
  open_guard(launch.limit);
  std::uint64_t elapsed = 0;
  for (unsigned k = 0; k < launch.seed_count; ++k) {
    report_seed = launch.seeds[k];
    if (k > 0) prepare_outputs();
    const std::uint64_t start = nanoseconds();
    run_grid(shape, launch.seeds[k]);
    elapsed += nanoseconds() - start;
    checker::finish();
    for (unsigned i = 0; i < declared; ++i) {
      char path[32];
      std::snprintf(path, sizeof path, "%u.%u", i, k);
      if (regions[i].kind == Kind::output) store(regions[i], path);
    }
  }
  store_elapsed(elapsed);
  return 0;
}

} // namespace emu

int main() {
  const int code = emu::run();
  std::fflush(nullptr);
  _exit(code);
}
