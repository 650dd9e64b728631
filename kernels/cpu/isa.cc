// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/status.h"

namespace weir::kernels::cpu {
namespace {

constexpr std::string_view kNames[kIsaCount] = {"scalar", "avx2", "avx512", "avx512vnni"};

}  // namespace

std::string_view IsaName(Isa isa) { return kNames[static_cast<int>(isa)]; }

// __builtin_cpu_supports asks the operating system for the registers' state as well.
Isa MachineIsa() {
  __builtin_cpu_init();
  // F16C is older than AVX2 on every processor that has both FMA and AVX2.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (!avx2) return Isa::kScalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (!avx512) return Isa::kAvx2;
  const bool vnni = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
  return vnni ? Isa::kAvx512Vnni : Isa::kAvx512;
}

absl::StatusOr<Isa> CheckedIsa(std::string_view name) {
  const Isa most = MachineIsa();
  for (int i = 0; i < kIsaCount; ++i) {
    if (kNames[i] != name) continue;
    if (i <= static_cast<int>(most)) return static_cast<Isa>(i);
    return Error(Reason::kBadField,
                 absl::StrCat("WEIR_ISA is ", AbslView(name), "; this machine has no more than ",
                              AbslView(IsaName(most))),
                 "WEIR_ISA");
  }
  return Error(Reason::kBadField,
               absl::StrCat("WEIR_ISA is ", AbslView(name),
                            "; it must be scalar, avx2, avx512 or avx512vnni"),
               "WEIR_ISA");
}

absl::StatusOr<Isa> ChooseIsa() {
  const char* wanted = std::getenv("WEIR_ISA");
  if (wanted == nullptr || *wanted == 0) return MachineIsa();
  return CheckedIsa(wanted);
}

}  // namespace weir::kernels::cpu
