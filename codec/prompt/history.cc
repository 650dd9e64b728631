// SPDX-License-Identifier: Apache-2.0
#include "codec/prompt/history.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/random.h"

namespace weir::codec {
namespace {

// In a flat text a control token is this byte, which no UTF-8 holds, and its id.
constexpr char kTokenByte = '\xFF';
constexpr size_t kTokenBytes = 1 + sizeof(TokenId);
// Inside a run there is a mark at the first safe cut after each of so many bytes.
constexpr size_t kRunPart = 4096;
// Of the marks so far apart one is findable, so that a long text takes few places of the map.
constexpr size_t kMarkGap = 1024;
constexpr size_t kBlock = 16;  // bytes hashed at once

// A place where a text may be cut: both sides are tokenized apart.
struct Mark {
  size_t text_end = 0;
  size_t ids_end = 0;
  uint64_t hash = 0;  // of the text before it
  bool findable = false;
};

}  // namespace

struct KnownText {
  std::string flat;  // the domain, then text and control tokens
  std::vector<TokenId> ids;
  std::vector<Mark> marks;

  // The hash of flat[0, hashed), whole blocks only, so that it depends on nothing but the text.
  uint64_t lanes[2] = {0, 0};
  size_t hashed = 0;
  size_t last_findable = 0;

  size_t bytes() const {
    return sizeof(KnownText) + flat.size() + ids.size() * sizeof(TokenId) +
           marks.size() * (sizeof(Mark) + 32);
  }
  void AddMark(size_t ids_end);  // at the end of `flat`
  void AddMark(size_t text_end, size_t ids_end);
};

void KnownText::AddMark(size_t text_end, size_t ids_end) {
  uint64_t a = lanes[0];
  uint64_t b = lanes[1];
  const auto take = [&a, &b](const char* block) {
    a = (a ^ LoadAs<uint64_t>(block)) * 0x9E3779B97F4A7C15ULL;
    b = (b ^ LoadAs<uint64_t>(block + 8)) * 0xD6E8FEB86659FD93ULL;
    a ^= a >> 32;
    b ^= b >> 29;
  };
  for (; text_end - hashed >= kBlock; hashed += kBlock) take(flat.data() + hashed);
  lanes[0] = a;
  lanes[1] = b;
  char last[kBlock] = {};
  std::memcpy(last, flat.data() + hashed, text_end - hashed);
  take(last);
  const uint64_t hash = MixInto(MixInto(a, b), text_end);
  const bool far =
      text_end >= last_findable + std::clamp(last_findable, PromptHistory::kTextMin, kMarkGap);
  if (far) last_findable = text_end;
  marks.push_back({text_end, ids_end, hash, far});
}

void KnownText::AddMark(size_t ids_end) { AddMark(flat.size(), ids_end); }

namespace {

void PutToken(TokenId id, std::string* flat) {
  char bytes[kTokenBytes] = {kTokenByte};
  StoreAs(bytes + 1, id);
  flat->append(bytes, kTokenBytes);
}

// Appends a run and its marks; its ids are not known yet.
void PutRun(const Tokenizer& tokenizer, std::string_view run, KnownText* text) {
  const size_t from = text->flat.size();
  text->flat += run;
  for (size_t at = 0; run.size() - at > kRunPart;) {
    at = tokenizer.SafeCut(run, at + kRunPart);
    if (at < run.size()) text->AddMark(from + at, 0);
  }
  text->AddMark(0);
}

// The flat text of a prompt with all its marks, whose ids are still to be found. Null if a run holds
// the byte that stands for tokens: then two prompts might look the same.
std::shared_ptr<KnownText> Flatten(const Tokenizer& tokenizer, const Segments& segments,
                                   std::string_view domain) {
  auto text = std::make_shared<KnownText>();
  size_t size = domain.size() + kTokenBytes;
  for (const auto& piece : segments.pieces()) size += piece.token >= 0 ? kTokenBytes : piece.size;
  text->flat.reserve(size);
  text->flat += domain;
  PutToken(-1, &text->flat);
  text->AddMark(0);
  for (const auto& piece : segments.pieces()) {
    const std::string_view run = segments.TextOf(piece);
    if (piece.token >= 0) {
      PutToken(piece.token, &text->flat);
      text->AddMark(0);
    } else if (run.find(kTokenByte) != std::string_view::npos) {
      return nullptr;
    } else if (!run.empty()) {
      PutRun(tokenizer, run, text.get());
    }
  }
  return text;
}

// Encodes what lies after the mark `known`, whose ids are there, filling in the other marks; no
// further than to more than `ids_max` ids.
void EncodeRest(const Tokenizer& tokenizer, size_t known, size_t ids_max, KnownText* text) {
  for (size_t i = known + 1; i < text->marks.size() && text->ids.size() <= ids_max; ++i) {
    const size_t from = text->marks[i - 1].text_end;
    const std::string_view part =
        std::string_view(text->flat).substr(from, text->marks[i].text_end - from);
    if (!part.empty() && part[0] == kTokenByte) {
      text->ids.push_back(LoadAs<TokenId>(part.data() + 1));
    } else {
      tokenizer.Encode(part, &text->ids, ids_max);
    }
    text->marks[i].ids_end = text->ids.size();
  }
}

// The ids up to the mark `there` of `before`, which is the mark `known` of `text`.
void TakeIds(const KnownText& before, size_t there, size_t known, KnownText* text) {
  text->ids.assign(before.ids.begin(),
                   before.ids.begin() + static_cast<std::ptrdiff_t>(before.marks[there].ids_end));
  // Where the older text has no mark, as inside an answer, that of the new one is of no use.
  size_t k = 0;
  for (size_t i = 0; i <= known; ++i) {
    Mark& mark = text->marks[i];
    while (k < there && before.marks[k].text_end < mark.text_end) ++k;
    if (before.marks[k].text_end == mark.text_end) {
      mark.ids_end = before.marks[k].ids_end;
    } else {
      mark.findable = false;
    }
  }
}

}  // namespace

void EncodeSegments(const Tokenizer& tokenizer, const Segments& segments,
                    std::vector<TokenId>* ids, size_t ids_max) {
  for (const auto& piece : segments.pieces()) {
    if (ids->size() > ids_max) return;
    if (piece.token >= 0) {
      ids->push_back(piece.token);
    } else {
      tokenizer.Encode(segments.TextOf(piece), ids, ids_max);
    }
  }
}

PromptHistory::PromptHistory(size_t bytes_max) : bytes_max_(bytes_max) {}
PromptHistory::~PromptHistory() = default;

std::shared_ptr<const KnownText> PromptHistory::Encode(const Tokenizer& tokenizer,
                                                       const Segments& segments,
                                                       std::string_view domain,
                                                       std::vector<TokenId>* ids, size_t ids_max) {
  std::shared_ptr<KnownText> text = Flatten(tokenizer, segments, domain);
  if (text == nullptr || text->flat.size() - domain.size() < kTextMin) {
    EncodeSegments(tokenizer, segments, ids, ids_max);
    return nullptr;
  }
  text->marks.back().findable = true;
  size_t known = text->marks.size();
  const Place place = FindLongest(*text, &known);
  if (place.text != nullptr && known + 1 == text->marks.size() &&
      place.text->flat.size() == text->flat.size()) {  // the very same
    *ids = place.text->ids;
    absl::MutexLock lock(&mutex_);
    counters_.reused_ids += ids->size();
    return place.text;
  }
  if (place.text != nullptr) TakeIds(*place.text, place.mark, known, text.get());
  const size_t reused = text->ids.size();
  EncodeRest(tokenizer, known, ids_max, text.get());
  *ids = text->ids;
  if (ids->size() > ids_max) return nullptr;  // its last marks have no ids
  // A text that this one only goes on from is not needed beside it.
  const bool extends = place.text != nullptr && place.mark + 1 == place.text->marks.size();
  absl::MutexLock lock(&mutex_);
  counters_.reused_ids += reused;
  counters_.encoded_ids += text->ids.size() - reused;
  Keep(text);
  if (extends) Drop(place.text.get());
  return text;
}

void PromptHistory::AddAnswer(const Vocab& vocab, const std::shared_ptr<const KnownText>& prompt,
                              std::span<const TokenId> answer) {
  if (prompt == nullptr || answer.empty()) return;
  auto text = std::make_shared<KnownText>(*prompt);
  bool marked = true;  // at the end of the text so far
  for (const TokenId id : answer) {
    if (vocab.IsAdded(id)) {
      if (!marked) text->AddMark(text->ids.size());  // a run ends before a control token
      text->ids.push_back(id);
      PutToken(id, &text->flat);
      text->AddMark(text->ids.size());
      marked = true;
      continue;
    }
    const std::string_view bytes = vocab.BytesOf(id);
    if (bytes.find(kTokenByte) != std::string_view::npos) return;
    text->ids.push_back(id);
    text->flat += bytes;
    marked = false;
  }
  if (!marked) text->AddMark(text->ids.size());
  text->marks.back().findable = true;
  absl::MutexLock lock(&mutex_);
  Keep(text);
  Drop(prompt.get());
}

// The last mark of `text` up to which another text is the same; null and mark 0, after the domain,
// if there is none.
PromptHistory::Place PromptHistory::FindLongest(const KnownText& text, size_t* mark) {
  for (size_t i = text.marks.size();;) {
    Place place;
    {
      absl::MutexLock lock(&mutex_);
      while (--i > 0 && place.text == nullptr) {
        const auto found = places_.find(text.marks[i].hash);
        if (found == places_.end()) continue;
        place = found->second;
        const auto entry = entries_.find(place.text.get());
        if (entry != entries_.end()) lru_.splice(lru_.begin(), lru_, entry->second);
        ++i;
      }
    }
    *mark = i;
    if (place.text == nullptr) return {};
    const size_t size = text.marks[i].text_end;
    if (place.text->marks[place.mark].text_end == size &&
        std::memcmp(place.text->flat.data(), text.flat.data(), size) == 0) {
      return place;
    }
    WEIR_REACHED("history: two texts have one hash");
  }
}

void PromptHistory::Keep(const std::shared_ptr<const KnownText>& text) {
  lru_.push_front(text);
  entries_[text.get()] = lru_.begin();
  bytes_ += text->bytes();
  for (uint32_t i = 1; i < text->marks.size(); ++i) {
    if (text->marks[i].findable) places_[text->marks[i].hash] = {text, i};
  }
  while (bytes_ > bytes_max_ && !lru_.empty()) Drop(lru_.back().get());
}

void PromptHistory::Drop(const KnownText* text) {
  const auto entry = entries_.find(text);
  if (entry == entries_.end()) return;
  const std::shared_ptr<const KnownText> held = *entry->second;
  lru_.erase(entry->second);
  entries_.erase(entry);
  bytes_ -= held->bytes();
  for (const Mark& mark : held->marks) {
    if (!mark.findable) continue;
    const auto place = places_.find(mark.hash);
    if (place != places_.end() && place->second.text.get() == text) places_.erase(place);
  }
}

PromptHistory::Counters PromptHistory::counters() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

size_t PromptHistory::bytes() const {
  absl::MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace weir::codec
