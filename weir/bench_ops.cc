// SPDX-License-Identifier: Apache-2.0
#include "weir/bench_ops.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"

namespace weir {

int BenchOps(const kernels::OpsBenchOptions& options, bool json) {
  const absl::StatusOr<kernels::OpsBenchResult> result = kernels::BenchOps(options);
  if (!result.ok()) {
    std::fprintf(stderr, "weir bench ops: %s\n",
                 std::string(StdView(result.status().message())).c_str());
    return 1;
  }
  if (json) {
    std::string out = absl::StrCat("{\"isa\":\"", result->isa, "\",\"worst\":", result->worst);
    for (const kernels::OpsBenchLine& line : result->lines) {
      const char* unit = line.flops ? "_gflops_" : "_gbps_";
      absl::StrAppend(&out, ",\"", line.name, unit, line.threads, "\":", line.rate);
      absl::StrAppend(&out, ",\"", line.name, "_share_", line.threads, "\":", line.share);
    }
    std::printf("%s}\n", out.c_str());
    return 0;
  }
  std::printf("%s kernels; the reference differs by at most %.1e standard deviations\n",
              result->isa.c_str(), result->worst);
  for (const kernels::OpsBenchLine& line : result->lines) {
    std::printf("  %-32s x%d  %8.1f %-8s %5.1f %%\n", line.label.c_str(), line.threads, line.rate,
                line.flops ? "GFLOP/s" : "GB/s", 100 * line.share);
  }
  return 0;
}

}  // namespace weir
