// SPDX-License-Identifier: Apache-2.0
#include "engine/model/text_model_options.h"

#include "absl/strings/str_cat.h"

namespace weir::engine {

absl::StatusOr<kernels::Numerics> NumericsOf(const LoadOptions& options) {
  if (options.numerics == "fp32") return kernels::Numerics::kFp32;
  if (options.numerics == "native") return kernels::Numerics::kNative;
  if (options.numerics == "vendor") return kernels::Numerics::kVendor;
  return Error(Reason::kBadField,
               absl::StrCat("numerics is \"", options.numerics,
                            "\"; it must be fp32, native or vendor"),
               "numerics");
}

}  // namespace weir::engine
