// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/config/load.h"
#include "base/stdx/bytes.h"
#include "engine/decode/steploop_bench.h"
#include "kvstore/transfer/shm_carrier.h"
#include "kvstore/transfer/transfer_bench.h"
#include "kvstore/transfer/ucx_carrier.h"
#include "router/bench/router_bench.h"
#include "weir/bench_dialects.h"
#include "weir/bench_ops.h"
#include "weir/bench_tokenize.h"
#include "weir/commands.h"
#include "weir/counters.h"

namespace weir {
namespace {

int64_t ThreadCpuNanos() {
  timespec at;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return int64_t{at.tv_sec} * 1000000000 + at.tv_nsec;
}

struct StepFigures {
  double micros = 0;
  double allocations = 0;
  double locks = 0;
};

struct StepShape {
  uint32_t sequences;
  uint32_t rows;
  uint32_t context;
};

StepFigures MeasureSteps(const StepShape& shape, bool quick) {
  engine::StepLoopBenchOptions options;
  options.sequences = shape.sequences;
  options.rows = shape.rows;
  options.context_tokens = shape.context;
  options.warmup_steps = 200;
  options.steps = quick ? 200 : 1000;
  uint64_t locks = 0;
  engine::StepLoopBenchHooks hooks;
  hooks.cpu_nanos = &ThreadCpuNanos;
  // Called before the first and after the last measured step.
  hooks.allocations = [&] {
    locks = ThreadLocks() - locks;
    return ThreadAllocations();
  };
  const engine::StepLoopBenchFigures got = engine::RunStepLoopBench(options, hooks);
  return {got.cpu_micros_per_step, got.allocations_per_step,
          static_cast<double>(locks) / options.steps};
}

// The shapes in turn, several times, and the least of each: what disturbs a run on a busy machine
// only ever adds.
template <size_t kShapes>
std::array<StepFigures, kShapes> MeasureInTurn(const StepShape (&shapes)[kShapes], bool quick) {
  std::array<StepFigures, kShapes> best;
  for (int run = 0; run < (quick ? 12 : 15); ++run) {
    for (size_t i = 0; i < kShapes; ++i) {
      const StepFigures got = MeasureSteps(shapes[i], quick);
      if (run == 0 || got.micros < best[i].micros) best[i].micros = got.micros;
      best[i].allocations = std::max(best[i].allocations, got.allocations);
      best[i].locks = std::max(best[i].locks, got.locks);
    }
  }
  return best;
}

int BenchStepLoop(bool quick, bool json) {
  const StepShape shapes[] = {{64, 6, 1024}, {1024, 6, 1024}, {64, 6, 1000000}};
  const auto [base, wide, deep] = MeasureInTurn(shapes, quick);
  const double further = std::max(0.0, (wide.micros - base.micros) / (1024 - 64));
  const double allocations = std::max({base.allocations, wide.allocations, deep.allocations});
  const double locks = std::max({base.locks, wide.locks, deep.locks});
  if (json) {
    std::printf(
        "{\"us_per_step_64\":%.3f,\"us_per_step_1024\":%.3f,\"us_per_further_sequence\":%.4f,"
        "\"long_context_ratio\":%.4f,\"allocations_per_step\":%.4f,\"locks_per_step\":%.4f,"
        "\"counted\":%s}\n",
        base.micros, wide.micros, further, deep.micros / base.micros, allocations, locks,
        CountersWork() ? "true" : "false");
    return 0;
  }
  std::printf("step loop, null model, CPU time\n");
  std::printf("  64 sequences x 6 rows      %8.2f us per step\n", base.micros);
  std::printf("  1,024 sequences x 6 rows   %8.2f us per step, %.3f us per further sequence\n",
              wide.micros, further);
  std::printf("  64 x 6 at 1M tokens        %8.2f us per step, %.3f of 1k tokens\n", deep.micros,
              deep.micros / base.micros);
  std::printf("  allocations per step       %8.3f\n  locks per step             %8.3f%s\n",
              allocations, locks, CountersWork() ? "" : "  (not counted in this build)");
  return 0;
}

int BenchRouterCost(bool quick, bool json) {
  double micros[2] = {0, 0};
  const uint32_t per_event[2] = {1, 4};
  for (int i = 0; i < 2; ++i) {
    router::RouterBenchOptions options;
    options.tokens_per_event = per_event[i];
    if (quick) options.events_per_stream = 300;
    const absl::StatusOr<router::RouterBenchResult> result = router::BenchRouter(options);
    if (!result.ok()) {
      std::fprintf(stderr, "weir bench router: %s\n",
                   std::string(StdView(result.status().message())).c_str());
      return 1;
    }
    micros[i] = result->us_per_token;
  }
  if (json) {
    std::printf("{\"us_per_token_1\":%.3f,\"us_per_token_4\":%.3f}\n", micros[0], micros[1]);
  } else {
    std::printf("router, CPU time per token: %.2f us at one per event, %.2f us at four\n", micros[0],
                micros[1]);
  }
  return 0;
}

int BenchTransfer(bool quick, bool json) {
  std::string out = "{";
  for (const bool ucx : {false, true}) {
    const auto make = [ucx]() -> absl::StatusOr<std::unique_ptr<kv::Carrier>> {
      if (!ucx) return kv::MakeShmCarrier();
      return kv::MakeUcxCarrier({});
    };
    absl::StatusOr<std::unique_ptr<kv::Carrier>> owner = make();
    absl::StatusOr<std::unique_ptr<kv::Carrier>> reader = make();
    kv::TransferBenchOptions options;
    if (quick) options.seconds = 0.05;
    const auto measure = [&]() -> absl::StatusOr<std::vector<kv::TransferRate>> {
      WEIR_TRY(owner.status());
      WEIR_TRY(reader.status());
      return kv::MeasureTransfer(*std::move(owner), *std::move(reader), options);
    };
    const absl::StatusOr<std::vector<kv::TransferRate>> rates = measure();
    if (!rates.ok()) {
      std::fprintf(stderr, "weir bench transfer: %s\n",
                   std::string(StdView(rates.status().message())).c_str());
      return 1;
    }
    if (!json) std::printf("%s\n", ucx ? "ucx (tcp, lo)" : "shm");
    for (const kv::TransferRate& rate : *rates) {
      if (!json) {
        std::printf("  %8u KiB  %7.2f GB/s  %8.1f us  %.2f CPU-s/GB\n", rate.bytes / 1024,
                    rate.gb_per_second, rate.latency_us, rate.cpu_seconds_per_gb);
      }
      absl::StrAppend(&out, out.size() > 1 ? "," : "", "\"", ucx ? "ucx_" : "shm_",
                      rate.bytes / 1024, "_kib_gbps\":", rate.gb_per_second);
    }
  }
  if (json) std::printf("%s}\n", out.c_str());
  return 0;
}

}  // namespace

int RunBench(const BenchArgs& args) {
  ArmPlantedFromEnvironment();
  bool quick = false;
  bool json = false;
  bool check = false;
  TokenizeBenchArgs tokenize;
  DialectsBenchArgs dialects;
  for (size_t i = 0; i < args.rest.size(); ++i) {
    const std::string& option = args.rest[i];
    const bool reads_text = args.what == "tokenize" && i + 1 < args.rest.size();
    const bool has_tokenizer = reads_text || (args.what == "dialects" && i + 1 < args.rest.size());
    if (option == "--quick") {
      quick = true;
    } else if (option == "--json") {
      json = true;
    } else if (option == "--check" && args.what == "ops") {
      check = true;
    } else if (option == "--tokenizer" && has_tokenizer) {
      dialects.tokenizer = tokenize.tokenizer = args.rest[++i];
    } else if (option == "--text" && reads_text) {
      tokenize.texts.push_back(args.rest[++i]);
    } else {
      std::fprintf(stderr, "weir bench: unknown option %s; there are --quick and --json, for "
                   "ops also --check, for dialects and tokenize also --tokenizer FILE, for "
                   "tokenize also --text FILE\n",
                   option.c_str());
      return 2;
    }
  }
  if (args.what == "steploop") return BenchStepLoop(quick, json);
  if (args.what == "router") return BenchRouterCost(quick, json);
  if (args.what == "transfer") return BenchTransfer(quick, json);
  if (args.what == "ops") return BenchOps({quick, check}, json);
  if (args.what == "tokenize") {
    tokenize.quick = quick;
    tokenize.json = json;
    return BenchTokenize(tokenize);
  }
  if (args.what == "dialects") {
    dialects.quick = quick;
    dialects.json = json;
    return BenchDialects(dialects);
  }
  std::fprintf(stderr, "weir bench: unknown part \"%s\"; there are steploop, router, transfer, "
               "ops, tokenize and dialects\n",
               args.what.c_str());
  return 2;
}

}  // namespace weir
