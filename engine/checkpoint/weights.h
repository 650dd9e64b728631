// SPDX-License-Identifier: Apache-2.0
//
// Weights: the tensors of a checkpoint directory, mapped and named. One model.safetensors, or the
// shards that model.safetensors.index.json lists, exactly as it lists them. Opening reads headers
// only; bytes are paged in as they are read. Constant afterwards, any thread; views live as long as
// the object. Errors name the file and the tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/stdx/hash.h"
#include "base/stdx/status.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/safetensors.h"

namespace weir::engine {

class Weights {
 public:
  static absl::StatusOr<std::unique_ptr<Weights>> Open(const std::string& directory);

  // Null if the checkpoint has no tensor of this name.
  const TensorView* Find(std::string_view name) const;
  size_t count() const { return tensors_.size(); }
  // A fault that names the first tensor, by name, that `known` lacks.
  absl::Status CheckNoOthers(const absl::flat_hash_set<std::string>& known) const;
  uint64_t bytes() const;

  // SHA-256 over names, dtypes, shapes and a sample of each tensor's bytes (its first, middle and
  // last 64): tells checkpoints apart without reading hundreds of gigabytes.
  Sha256Digest Digest() const;

  // Takes what was read so far out of this process's memory. A backend that keeps weights in its own
  // tiling would hold them twice otherwise; views stay good.
  void ReleasePages() const;

 private:
  Weights() = default;

  absl::Status AddFile(const std::string& directory, const std::string& file,
                       const absl::flat_hash_map<std::string, std::string>* home);

  std::vector<std::unique_ptr<MappedFile>> files_;
  absl::flat_hash_map<std::string, TensorView> tensors_;
};

}  // namespace weir::engine
