// SPDX-License-Identifier: Apache-2.0
#include "codec/token/parallel.h"

#include <map>
#include <mutex>
#include <utility>

namespace weir::codec {
namespace {

// Puts parts together in their order while others are still being encoded, so that fresh memory is
// touched once, by the result: what parts are encoded into stays in a processor's cache and serves
// the next ones. Whoever finishes the next part appends it and all that wait behind it; nobody
// waits for that.
class Joiner {
 public:
  explicit Joiner(std::vector<TokenId>* out) : out_(out) {}

  std::vector<TokenId> TakeScratch() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    std::vector<TokenId> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }

  void Give(size_t part, std::vector<TokenId> ids) {
    std::unique_lock lock(mutex_);
    waiting_.emplace(part, std::move(ids));
    while (!joining_ && !waiting_.empty() && waiting_.begin()->first == next_) {
      std::vector<TokenId> first = std::move(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
      joining_ = true;
      lock.unlock();
      out_->insert(out_->end(), first.begin(), first.end());
      first.clear();
      lock.lock();
      joining_ = false;
      ++next_;
      free_.push_back(std::move(first));
    }
  }

 private:
  std::mutex mutex_;  // of all but `out_`
  std::map<size_t, std::vector<TokenId>> waiting_;  // by their part
  std::vector<std::vector<TokenId>> free_;
  size_t next_ = 0;       // part to be appended
  bool joining_ = false;  // by a thread, whose `out_` then is
  std::vector<TokenId>* const out_;
};

}  // namespace

std::vector<size_t> PartEnds(const Tokenizer& tokenizer, std::string_view text,
                             size_t part_bytes) {
  std::vector<size_t> ends;
  for (size_t from = 0; from < text.size();) {
    size_t end = text.size();
    if (text.size() - from > part_bytes) end = tokenizer.SafeCut(text, from + part_bytes);
    ends.push_back(end);
    from = end;
  }
  return ends;
}

void EncodeInParallel(const Tokenizer& tokenizer, std::string_view text, RunJobs run,
                      std::vector<TokenId>* out, size_t part_bytes) {
  const std::vector<size_t> ends = PartEnds(tokenizer, text, part_bytes);
  if (ends.size() < 2) return tokenizer.Encode(text, out);
  // A longer list grows by itself; what is never written costs nothing.
  out->reserve(out->size() + text.size() / 3);
  Joiner joiner(out);
  run(ends.size(), [&](size_t i) {
    const size_t from = i == 0 ? 0 : ends[i - 1];
    std::vector<TokenId> ids = joiner.TakeScratch();
    tokenizer.Encode(text.substr(from, ends[i] - from), &ids);
    joiner.Give(i, std::move(ids));
  });
}

}  // namespace weir::codec
