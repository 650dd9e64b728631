// SPDX-License-Identifier: Apache-2.0
#include "engine/model/choose_backend.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ref/ref_backend.h"

namespace weir::engine {

absl::StatusOr<std::shared_ptr<kernels::Backend>> ChooseBackend(const LoadOptions& options) {
  const bool vendor = options.numerics == "vendor";
  const std::string& wanted = options.backend;
  if (wanted == "ref" || (wanted.empty() && vendor)) {
    return std::shared_ptr<kernels::Backend>(kernels::ref::NewRefBackend(
        kernels::ref::Guard::kOff,
        vendor ? kernels::Numerics::kVendor : kernels::Numerics::kNative));
  }
  if (!wanted.empty() && wanted != "cpu") {
    return Error(Reason::kBadField,
                 absl::StrCat("backend is \"", wanted, "\"; it must be cpu or ref"), "backend");
  }
  if (vendor) {
    return Error(Reason::kBadField, "numerics vendor runs on the ref backend only", "backend");
  }
  kernels::cpu::CpuOptions cpu;
  cpu.threads = static_cast<int>(options.threads);
  WEIR_ASSIGN(std::unique_ptr<kernels::Backend> backend, kernels::cpu::NewCpuBackend(cpu));
  return std::shared_ptr<kernels::Backend>(std::move(backend));
}

}  // namespace weir::engine
