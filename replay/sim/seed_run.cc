// SPDX-License-Identifier: Apache-2.0
#include "replay/sim/seed_run.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "replay/sim/replay_drill.h"

namespace weir::sim {
namespace {

constexpr Duration kLoadSpan = std::chrono::milliseconds(400);

template <class T, size_t N>
T OneOf(Random* random, const T (&choices)[N]) {
  return choices[random->Below(N)];
}

RequestSpec DrawRequest(Random* random, const ClusterConfig& config) {
  RequestSpec spec;
  const uint32_t room = config.blocks * config.model.block_tokens;
  const uint32_t prompt_max = std::min(room / 3, random->Chance(0.15) ? 400u : 90u);
  spec.prompt_tokens = 1 + static_cast<uint32_t>(random->Below(prompt_max));
  const uint32_t answer_max = std::min(room / 3, random->Chance(0.2) ? 200u : 56u);
  spec.new_tokens_max = 1 + static_cast<uint32_t>(random->Below(answer_max));
  if (random->Chance(0.4)) {
    spec.common_tokens = static_cast<uint32_t>(random->Below(spec.prompt_tokens + 1));
  }
  if (random->Chance(0.5)) spec.temperature = 0.9f;
  spec.sampling_seed = random->Next();
  if (random->Chance(0.1)) spec.top_logprobs = 3;
  if (random->Chance(0.1)) spec.repetition_penalty = 1.2f;
  if (random->Chance(0.1)) spec.min_tokens = spec.new_tokens_max / 2;
  if (random->Chance(0.05)) spec.deadline = Millis(random->Between(5, 3000));
  spec.router = static_cast<uint32_t>(random->Below(8));
  if (random->Chance(0.12)) {
    spec.leave_after = 1 + static_cast<uint32_t>(random->Below(spec.new_tokens_max));
    spec.satisfied = random->Chance(0.5);
  }
  return spec;
}

void Schedule(SimCluster* cluster, Random* random) {
  const uint64_t count = 28 + random->Below(28);
  const bool burst = random->Chance(0.3);
  for (uint64_t i = 0; i < count; ++i) {
    const auto span = static_cast<uint64_t>(kLoadSpan.count());
    const Instant at = Instant(Millis(5)) +
                       Duration(static_cast<int64_t>(burst ? random->Below(1000000)
                                                           : random->Below(span)));
    RequestSpec spec = DrawRequest(random, cluster->config());
    const bool leaves = random->Chance(0.06);
    const Duration stay(random->Between(0, 40'000'000));
    cluster->At(at, [cluster, spec, leaves, stay] {
      const ClientId id = cluster->Submit(spec);
      if (leaves) cluster->At(cluster->now() + stay, [cluster, id] { cluster->Withdraw(id); });
    });
  }
}

void Trace(SimCluster* cluster) {
  cluster->net().Watch([cluster](InstanceId from, InstanceId to, const pb::Envelope& message) {
    if (message.has_load() || message.has_renew()) return;
    std::printf("%.6f %llu -> %llu: %s\n", Seconds(cluster->now() - Instant{}),
                static_cast<unsigned long long>(from.value),
                static_cast<unsigned long long>(to.value), message.ShortDebugString().c_str());
  });
}

}  // namespace

ClusterConfig DrawConfig(uint64_t seed) {
  Random random(seed, 3);
  ClusterConfig config;
  config.seed = seed;
  config.routers = random.Chance(0.3) ? 2 : 1;
  config.prefill = 2 + static_cast<uint32_t>(random.Below(2));
  config.decode = 2 + static_cast<uint32_t>(random.Below(2));
  config.paired = random.Chance(0.3);
  if (config.paired) config.decode = config.prefill;
  config.model.vocab = 1024;
  config.model.block_tokens = OneOf<uint32_t>(&random, {8, 16, 16, 32, 64, 128, 256});
  config.model.window = OneOf<uint32_t>(&random, {4, 8, 16});
  config.model.decoder_tail_rows = OneOf<uint32_t>(&random, {4, 8, 16});
  config.model.draft_max = OneOf<uint32_t>(&random, {0, 1, 3, 5});
  config.model.stop_probability = random.Chance(0.4) ? 0.02 : 0;
  config.model.positions_max = 1 << 16;
  // Room for a few sequences of any kind; in some seeds hardly that.
  const bool tight = random.Chance(0.35);
  const uint32_t tokens = static_cast<uint32_t>(tight ? 300 + random.Below(500)
                                                      : 1500 + random.Below(2500));
  config.blocks = std::max<uint32_t>(6, tokens / config.model.block_tokens);
  config.prefill_slots = OneOf<uint32_t>(&random, {2, 4, 8});
  config.decode_slots = OneOf<uint32_t>(&random, {3, 6, 16});
  config.chunk_rows = OneOf<uint32_t>(&random, {16, 32, 64, 256});
  config.queue_max = OneOf<uint32_t>(&random, {4, 32, 64});
  config.retain_max = OneOf<uint32_t>(&random, {0, 1, 8});
  config.hit_tokens_min = config.model.block_tokens * OneOf<uint32_t>(&random, {1, 2});
  config.window_states = OneOf<uint32_t>(&random, {0, 2, 8});
  config.growth_blocks = OneOf<uint32_t>(&random, {1, 2, 4});
  if (random.Chance(0.2)) config.step_rows_max = config.decode_slots;
  config.requests_max = random.Chance(0.15) ? 12 : 256;
  config.attempts_max = OneOf<uint32_t>(&random, {3, 6});
  config.lease = OneOf<Duration>(&random, {Millis(1500), Millis(3000), Millis(6000)});
  config.deadline = std::chrono::seconds(40);
  config.net.serialise = random.Chance(0.5);
  config.net.latency_max = OneOf<Duration>(&random, {Millis(1), Millis(2), Millis(10)});
  config.net.dead_after = Millis(1000);
  config.transfer.base = OneOf<Duration>(&random, {Millis(0), Millis(1), Millis(5)});
  config.device.late = random.Chance(0.5);
  config.device.void_chance = random.Chance(0.2) ? 0.03 : 0;
  config.blocking_steps = random.Chance(0.5);
  config.failures_allowed = true;
  return config;
}

SeedReport RunSeed(uint64_t seed, bool trace) {
  const ClusterConfig config = DrawConfig(seed);
  Random random(seed, 4);
  SimCluster cluster(config);
  if (trace) Trace(&cluster);
  Schedule(&cluster, &random);
  SeedReport report;
  report.seed = seed;
  for (const Fault& fault : DrawFaults(&random, config, 2 * kLoadSpan)) {
    report.faults.emplace_back(NameOf(fault.kind));
    cluster.At(fault.at, [&cluster, fault, trace] {
      if (trace) {
        std::printf("%.6f fault: %s, seat %u\n", Seconds(cluster.now() - Instant{}),
                    std::string(NameOf(fault.kind)).c_str(), fault.seat);
      }
      Apply(&cluster, fault);
    });
  }
  // Clients that have not come yet are not over: pass the time in which they do.
  if (cluster.RunFor(2 * kLoadSpan)) cluster.Finish();
  report.violation = cluster.violation();
  if (report.violation.empty()) report.violation = ReplayDrill(config.model, seed);
  report.events = cluster.events();
  report.requests = cluster.clients();
  for (ClientId id = 0; id < cluster.clients(); ++id) {
    const ClientRecord& client = cluster.client(id);
    report.tokens += client.received.size();
    if (client.succeeded()) {
      ++report.succeeded;
    } else if (client.close) {
      ++report.failed;
    } else {
      ++report.withdrawn;
    }
  }
  report.simulated = cluster.now() - Instant{};
  return report;
}

int RunSimulate(const std::vector<std::string>& args) {
  uint64_t seed = 1;
  uint64_t count = 1;
  uint64_t trace = 0;
  for (size_t i = 0; i < args.size(); i += 2) {
    uint64_t* target = args[i] == "--seed"    ? &seed
                       : args[i] == "--count" ? &count
                       : args[i] == "--trace" ? &trace
                                              : nullptr;
    if (target == nullptr || i + 1 == args.size() || !absl::SimpleAtoi(args[i + 1], target)) {
      std::fprintf(stderr, "usage: weir simulate [--seed N] [--count N] [--trace 1]\n");
      return 2;
    }
  }
  int code = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const SeedReport report = RunSeed(seed + i, trace != 0);
    std::string faults;
    for (const std::string& fault : report.faults) absl::StrAppend(&faults, " [", fault, "]");
    std::printf("seed %llu: %u requests, %u succeeded, %u failed, %u left; %llu tokens, "
                "%llu events, %.1f s;%s %s\n",
                static_cast<unsigned long long>(report.seed), report.requests, report.succeeded,
                report.failed, report.withdrawn, static_cast<unsigned long long>(report.tokens),
                static_cast<unsigned long long>(report.events), Seconds(report.simulated),
                faults.c_str(), report.violation.empty() ? "ok" : report.violation.c_str());
    if (!report.violation.empty()) code = 1;
  }
  return code;
}

}  // namespace weir::sim
