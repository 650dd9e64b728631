// SPDX-License-Identifier: Apache-2.0
//
// weir_swarm: runs seeds of the simulator over several processes and says which broke what.
//   --seeds A..B       which seeds (default 1..200; --quick 1..400)
//   --jobs N           processes (default 2)
//   --planted N        (or WEIR_PLANTED=N) arms one planted bug, so a violation is what we want
//   --find-planted     arms each of the ten in turn until it is found, at most 2,000 seeds each
//   --trace N          runs seed N alone and prints every message
//   --require-probes   fails when a rare branch listed in probes.txt was never taken
// A worker that dies counts as a violation of the seed it was at: a failed check is how a core says
// that it found a bug. Exits 0 when all is as wanted, 1 otherwise, 2 for wrong arguments.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/stdx/check.h"
#include "base/stdx/planted.h"
#include "replay/sim/seed_run.h"

namespace weir::sim {
namespace {

constexpr uint64_t kPlantedSeeds = 2000;
constexpr int kPlantedBugs = 10;
constexpr double kEventsMeanMin = 2000;
// So many seeds reach every rare branch; fewer are a smoke test.
constexpr uint64_t kProbeSeeds = 5000;
constexpr int kJobsMax = 64;
constexpr size_t kProbesMax = 512;

struct Options {
  uint64_t first = 1;
  uint64_t last = 200;
  int jobs = 2;
  int planted = 0;
  uint64_t trace = 0;
  bool find_planted = false;
  bool require_probes = false;
  std::string folder = "tests/swarm";
};

// What a worker tells its parent, in memory that both see and that outlives a crash.
struct Ledger {
  uint64_t current = 0;  // seed under way
  uint64_t done = 0;
  uint64_t bad_seed = 0;
  char bad_text[480] = {};
  uint64_t events = 0;
  uint64_t requests = 0;
  uint64_t succeeded = 0;
  uint64_t failed = 0;
  uint64_t tokens = 0;
  struct ProbeCount {
    char label[96] = {};
    uint64_t count = 0;
  };
  ProbeCount probes[kProbesMax];
};

struct Total {
  Ledger sum;
  std::map<std::string, uint64_t> probes;
  double seconds = 0;
};

void RecordProbes(Ledger* ledger) {
  size_t at = 0;
  for (const auto& [label, count] : ReachedProbes()) {
    if (at == kProbesMax) break;
    auto& probe = ledger->probes[at++];
    std::snprintf(probe.label, sizeof(probe.label), "%.*s", static_cast<int>(label.size()),
                  label.data());
    probe.count = count;
  }
}

void Work(Ledger* ledger, uint64_t first, uint64_t last, int stride) {
  for (uint64_t seed = first; seed <= last; seed += static_cast<uint64_t>(stride)) {
    ledger->current = seed;
    const SeedReport report = RunSeed(seed);
    ledger->done += 1;
    ledger->events += report.events;
    ledger->requests += report.requests;
    ledger->succeeded += report.succeeded;
    ledger->failed += report.failed;
    ledger->tokens += report.tokens;
    RecordProbes(ledger);
    if (report.violation.empty()) continue;
    ledger->bad_seed = seed;
    std::string text = report.violation + "; faults:";
    for (const std::string& fault : report.faults) text += " [" + fault + "]";
    std::snprintf(ledger->bad_text, sizeof(ledger->bad_text), "%s", text.c_str());
    return;
  }
}

// Runs the seeds; stops a worker at its first violation.
Total RunAll(const Options& options, int planted, bool quiet) {
  const auto begin = std::chrono::steady_clock::now();
  void* shared = mmap(nullptr, sizeof(Ledger) * kJobsMax, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  WEIR_CHECK(shared != MAP_FAILED);
  auto* ledgers = static_cast<Ledger*>(shared);
  std::vector<pid_t> workers;
  for (int i = 0; i < options.jobs; ++i) {
    new (&ledgers[i]) Ledger();
    const pid_t pid = fork();
    WEIR_CHECK(pid >= 0);
    if (pid == 0) {
      g_planted = planted;
      if (quiet) (void)!freopen("/dev/null", "w", stderr);
      Work(&ledgers[i], options.first + static_cast<uint64_t>(i), options.last, options.jobs);
      _exit(0);
    }
    workers.push_back(pid);
  }
  Total total;
  for (int i = 0; i < options.jobs; ++i) {
    int status = 0;
    WEIR_CHECK(waitpid(workers[static_cast<size_t>(i)], &status, 0) > 0);
    Ledger& ledger = ledgers[i];
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      ledger.bad_seed = ledger.current;
      std::snprintf(ledger.bad_text, sizeof(ledger.bad_text), "the process died (status %d)",
                    status);
    }
    if (ledger.bad_seed != 0 &&
        (total.sum.bad_seed == 0 || ledger.bad_seed < total.sum.bad_seed)) {
      total.sum.bad_seed = ledger.bad_seed;
      std::memcpy(total.sum.bad_text, ledger.bad_text, sizeof(ledger.bad_text));
    }
    total.sum.done += ledger.done;
    total.sum.events += ledger.events;
    total.sum.requests += ledger.requests;
    total.sum.succeeded += ledger.succeeded;
    total.sum.failed += ledger.failed;
    total.sum.tokens += ledger.tokens;
    for (const auto& probe : ledger.probes) {
      if (probe.label[0] != 0) total.probes[probe.label] += probe.count;
    }
  }
  munmap(shared, sizeof(Ledger) * kJobsMax);
  total.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return total;
}

using Ull = unsigned long long;

std::vector<std::string> LinesOf(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

int ReportProbes(const Options& options, const Total& total) {
  const auto wanted = LinesOf(options.folder + "/probes.txt");
  size_t hit = 0;
  std::vector<std::string> missed;
  for (const std::string& label : wanted) {
    const auto found = total.probes.find(label);
    if (found != total.probes.end() && found->second > 0) {
      ++hit;
    } else {
      missed.push_back(label);
    }
  }
  std::printf("probes: %zu of %zu listed were reached\n", hit, wanted.size());
  for (const std::string& label : missed) std::printf("  never reached: %s\n", label.c_str());
  const std::set<std::string> listed(wanted.begin(), wanted.end());
  for (const auto& [label, count] : total.probes) {
    if (!listed.contains(label)) std::printf("  not listed: %s\n", label.c_str());
  }
  if (wanted.empty()) std::printf("  %s/probes.txt lists none\n", options.folder.c_str());
  const bool require = options.require_probes || total.sum.done >= kProbeSeeds;
  return require && (!missed.empty() || wanted.empty()) ? 1 : 0;
}

int RunSwarm(const Options& options) {
  const Total total = RunAll(options, options.planted, /*quiet=*/false);
  const Ledger& sum = total.sum;
  const double runs = sum.done > 0 ? static_cast<double>(sum.done) : 1;
  std::printf("%llu seeds in %.1f s: mean %.0f events, %.1f requests, %.0f tokens; %.1f %% of the "
              "requests succeeded, %.1f %% failed with a reason\n",
              static_cast<Ull>(sum.done), total.seconds, static_cast<double>(sum.events) / runs,
              static_cast<double>(sum.requests) / runs, static_cast<double>(sum.tokens) / runs,
              100.0 * static_cast<double>(sum.succeeded) / std::max<double>(1, static_cast<double>(sum.requests)),
              100.0 * static_cast<double>(sum.failed) / std::max<double>(1, static_cast<double>(sum.requests)));
  if (sum.bad_seed != 0) {
    std::printf("VIOLATION in seed %llu: %s\n", static_cast<Ull>(sum.bad_seed), sum.bad_text);
    std::printf("reproduce: weir_swarm --seeds %llu..%llu --jobs 1", static_cast<Ull>(sum.bad_seed),
                static_cast<Ull>(sum.bad_seed));
    if (options.planted != 0) std::printf(" --planted %d", options.planted);
    std::printf("\n");
    return 1;
  }
  if (static_cast<double>(sum.events) / runs < kEventsMeanMin) {
    std::printf("seeds are too small: at least %.0f events on average are asked for\n",
                kEventsMeanMin);
    return 1;
  }
  return ReportProbes(options, total);
}

int FindPlanted(Options options) {
  const auto names = LinesOf(options.folder + "/planted.txt");
  int missed = 0;
  options.first = 1;
  options.last = kPlantedSeeds;
  for (int bug = 1; bug <= kPlantedBugs; ++bug) {
    const Total total = RunAll(options, bug, /*quiet=*/true);
    const char* name = static_cast<size_t>(bug) <= names.size()
                           ? names[static_cast<size_t>(bug) - 1].c_str()
                           : "?";
    if (total.sum.bad_seed != 0) {
      std::printf("planted %s: found in seed %llu after %.1f s: %s\n", name,
                  static_cast<Ull>(total.sum.bad_seed), total.seconds, total.sum.bad_text);
    } else {
      std::printf("planted %s: NOT FOUND in %llu seeds\n", name, static_cast<Ull>(kPlantedSeeds));
      ++missed;
    }
    std::fflush(stdout);
  }
  std::printf("%d of %d planted bugs found\n", kPlantedBugs - missed, kPlantedBugs);
  return missed == 0 ? 0 : 1;
}

bool ParseSeeds(const char* text, Options* options) {
  char* end = nullptr;
  options->first = std::strtoull(text, &end, 10);
  if (std::strncmp(end, "..", 2) != 0) return false;
  options->last = std::strtoull(end + 2, &end, 10);
  return *end == 0 && options->first > 0 && options->first <= options->last;
}

bool Parse(int argc, char** argv, Options* options) {
  if (const char* armed = std::getenv("WEIR_PLANTED")) options->planted = std::atoi(armed);
  bool seeds_given = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (arg == "--find-planted") {
      options->find_planted = true;
    } else if (arg == "--require-probes") {
      options->require_probes = true;
    } else if (arg == "--trace" && *value != 0) {
      options->trace = std::strtoull(argv[++i], nullptr, 10);
    } else if (arg == "--quick") {
      if (!seeds_given) options->last = 400;
    } else if (arg == "--seeds" && ParseSeeds(value, options)) {
      seeds_given = true;
      ++i;
    } else if (arg == "--jobs" && std::atoi(value) >= 1 && std::atoi(value) <= kJobsMax) {
      options->jobs = std::atoi(argv[++i]);
    } else if (arg == "--planted" && std::atoi(value) >= 0) {
      options->planted = std::atoi(argv[++i]);
    } else if (arg == "--folder" && *value != 0) {
      options->folder = argv[++i];
    } else {
      std::fprintf(stderr, "weir_swarm: %s is not understood\n", arg.c_str());
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace weir::sim

int main(int argc, char** argv) {
  weir::sim::Options options;
  if (!weir::sim::Parse(argc, argv, &options)) return 2;
  if (options.trace != 0) {
    weir::g_planted = options.planted;
    return weir::sim::RunSimulate({"--seed", std::to_string(options.trace), "--trace", "1"});
  }
  return options.find_planted ? weir::sim::FindPlanted(options) : weir::sim::RunSwarm(options);
}
