// SPDX-License-Identifier: Apache-2.0
//
// Prompts and answers seen before, by their text, so that a conversation that goes on costs what was
// appended, and the model's own turns keep the very ids that it emitted: KV stored for them is then
// found again even where the model did not write a text the way the tokenizer would.
//
// Any thread; a lock is held for look-ups in a map, never while text is hashed, compared or encoded.
// Texts are compared in full before their ids are used, and only within one domain, so neither a
// crafted collision nor another tenant can change a prompt. Memory is bounded; the least recently
// used go first. Nothing here can fail: what is not known is encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "base/stdx/ids.h"
#include "codec/template/template.h"
#include "codec/token/tokenizer.h"

namespace weir::codec {

// One text as it was tokenized. Immutable once shared.
struct KnownText;

// Appends the ids of `segments` without any history. Where that would be more than `ids_max`, it
// stops soon after them.
void EncodeSegments(const Tokenizer& tokenizer, const Segments& segments,
                    std::vector<TokenId>* ids, size_t ids_max = SIZE_MAX);

class PromptHistory {
 public:
  // Texts of this size or more are tried; shorter ones cost less to encode than to look up.
  static constexpr size_t kTextMin = 64;

  explicit PromptHistory(size_t bytes_max);
  ~PromptHistory();

  // Appends the ids of `segments` to `ids`, which is empty. `domain` names who may share (tenant,
  // user, salt). The result stands for the text in AddAnswer; null if it is not worth keeping, as
  // where there are more than `ids_max` ids: of these come some more than that.
  std::shared_ptr<const KnownText> Encode(const Tokenizer& tokenizer, const Segments& segments,
                                          std::string_view domain, std::vector<TokenId>* ids,
                                          size_t ids_max = SIZE_MAX);

  // The ids that the model emitted after `prompt`, end token included if there was one.
  void AddAnswer(const Vocab& vocab, const std::shared_ptr<const KnownText>& prompt,
                 std::span<const TokenId> answer);

  struct Counters {
    uint64_t reused_ids = 0;
    uint64_t encoded_ids = 0;
  };
  Counters counters() const;
  size_t bytes() const;

 private:
  using Lru = std::list<std::shared_ptr<const KnownText>>;
  struct Place {
    std::shared_ptr<const KnownText> text;
    uint32_t mark = 0;
  };

  Place FindLongest(const KnownText& text, size_t* mark);
  void Keep(const std::shared_ptr<const KnownText>& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(const KnownText* text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t bytes_max_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, Place> places_ ABSL_GUARDED_BY(mutex_);  // by a mark's hash
  Lru lru_ ABSL_GUARDED_BY(mutex_);                                     // latest first
  absl::flat_hash_map<const KnownText*, Lru::iterator> entries_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::codec
