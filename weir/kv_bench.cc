// SPDX-License-Identifier: Apache-2.0
#include "weir/kv_bench.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/stdx/bytes.h"
#include "base/stdx/random.h"
#include "kvstore/node/tiered_store.h"

namespace weir {
namespace {

constexpr uint32_t kTraceBlockTokens = 512;
constexpr uint64_t kUnlimited = 1 << 20;
// Bytes of a block of the trace, 1/1000 of V4.1's 890 a token, and not a multiple of anything.
constexpr uint32_t kScaledBytes = 457;

struct TraceRequest {
  uint64_t input_tokens = 0;
  std::vector<kv::BlockKey> keys;
};

kv::BlockKey KeyOf(uint64_t id) {
  kv::BlockKey key;
  for (uint64_t i = 0; i < 4; ++i) StoreAs(key.bytes.data() + i * 8, RandomBits(11, id, i));
  return key;
}

bool ReadTrace(const std::string& path, std::vector<TraceRequest>* out) {
  gzFile file = gzopen(path.c_str(), "rb");  // reads plain files too
  if (file == nullptr) return false;
  std::string line;
  char piece[65536];
  while (gzgets(file, piece, sizeof(piece)) != nullptr) {
    line += piece;
    if (line.empty() || line.back() != '\n') continue;
    const auto row = nlohmann::json::parse(line, nullptr, false);
    line.clear();
    if (!row.is_object() || !row.contains("hash_ids") || !row.contains("input_length")) continue;
    if (!row["hash_ids"].is_array() || !row["input_length"].is_number_unsigned()) continue;
    TraceRequest request;
    request.input_tokens = row["input_length"].get<uint64_t>();
    for (const auto& id : row["hash_ids"]) {
      if (id.is_number_unsigned()) request.keys.push_back(KeyOf(id.get<uint64_t>()));
    }
    out->push_back(std::move(request));
  }
  gzclose(file);
  return !out->empty();
}

void FillBlock(const kv::BlockKey& key, std::span<std::byte> out) {
  const uint64_t seed = key.index().hi;
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::byte>(Mix64(seed + i / 8) >> i % 8 * 8);
}

struct ReplayFigures {
  uint64_t input_tokens = 0;
  uint64_t hit_tokens = 0;
  uint64_t blocks_checked = 0;
  uint64_t blocks_missing = 0;  // promised, and then not there
  uint64_t wrong = 0;
  double percent() const {
    return 100.0 * static_cast<double>(hit_tokens) / static_cast<double>(input_tokens);
  }
};

class Replay {
 public:
  Replay(kv::TieredStore* store, bool payload) : store_(*store), payload_(payload) {
    header_.shape.sections = 1;
    header_.shape.section[0] = {1, payload ? kScaledBytes : kv::kRecordPage};
  }

  void Take(const TraceRequest& request) {
    std::vector<kv::TieredStore::Hit> hits;
    uint32_t at = store_.Match(root_, request.keys, kv::RunIndex::Want::kAny, &hits);
    figures.input_tokens += request.input_tokens;
    figures.hit_tokens +=
        std::min<uint64_t>(request.input_tokens, uint64_t{at} * kTraceBlockTokens);
    if (payload_) {
      for (const kv::TieredStore::Hit& hit : hits) Check(request, hit);
    }
    const uint32_t record_blocks = payload_ ? 8 : 1;
    while (at < request.keys.size()) {
      header_.shape.blocks =
          std::min<uint32_t>(record_blocks, static_cast<uint32_t>(request.keys.size()) - at);
      if (payload_) {
        payload_bytes_ = kv::AlignedBuffer(header_.shape.PayloadBytes());
        for (uint32_t j = 0; j < header_.shape.blocks; ++j) {
          FillBlock(request.keys[at + j],
                    payload_bytes_.span().subspan(j * kScaledBytes, kScaledBytes));
        }
      }
      if (!store_.Put(root_, request.keys, at, header_, payload_bytes_.span()).ok()) break;
      at += header_.shape.blocks;
    }
    std::vector<kv::TieredStore::Fetched> none;
    store_.Poll(kv::IoWait::kNow, &none);
  }

  ReplayFigures figures;

 private:
  void Check(const TraceRequest& request, const kv::TieredStore::Hit& hit) {
    std::vector<std::byte> got(uint64_t{hit.count} * kScaledBytes);
    bool there = false;
    if (const kv::HostRef ref = store_.Get(hit, request.keys[hit.at + hit.count - 1])) {
      there = store_.host().CopyOut(ref, 0, hit.first, hit.count, got).ok();
    } else {
      there = Fetch(request, hit, got);
    }
    if (!there) {
      figures.blocks_missing += hit.count;
      return;
    }
    std::vector<std::byte> expected(kScaledBytes);
    for (uint32_t j = 0; j < hit.count; ++j) {
      FillBlock(request.keys[hit.at + j], expected);
      ++figures.blocks_checked;
      if (std::memcmp(expected.data(), got.data() + j * kScaledBytes, kScaledBytes) != 0)
        ++figures.wrong;
    }
  }

  bool Fetch(const TraceRequest& request, const kv::TieredStore::Hit& hit,
             std::span<std::byte> got) {
    kv::BlobRead read{
        .shape = header_.shape, .sections = 1, .last = request.keys[hit.at + hit.count - 1]};
    read.shape.blocks = store_.index().BlocksOf(hit.run);
    const kv::ReadPlan plan = kv::PlanRead(read.shape, hit.first, hit.count, 1);
    kv::AlignedBuffer buffer(plan.bytes);
    read.into = buffer.span();
    const absl::StatusOr<kv::BlobId> id = store_.Fetch(hit, read);
    if (!id.ok()) return false;
    for (;;) {
      std::vector<kv::TieredStore::Fetched> fetched;
      store_.Poll(kv::IoWait::kForOne, &fetched);
      if (fetched.empty()) continue;
      std::memcpy(got.data(), buffer.data() + plan.parts[0].view_at, got.size());
      return fetched[0].status.ok();
    }
  }

  kv::TieredStore& store_;
  const bool payload_;
  const kv::BlockKey root_ = KeyOf(UINT64_MAX);
  kv::RecordHeader header_;
  kv::AlignedBuffer payload_bytes_;
};

int ReplayCounted(const KvArgs& args, const std::vector<TraceRequest>& trace) {
  std::vector<uint64_t> capacities = args.capacity;
  if (capacities.empty())
    capacities = {100, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, kUnlimited};
  std::string text;
  for (const uint64_t blocks : capacities) {
    kv::TieredOptions options;
    options.host_bytes = blocks * kv::kRecordPage;
    options.runs_max = static_cast<uint32_t>(std::min<uint64_t>(blocks, kUnlimited) + 64);
    const auto store = kv::TieredStore::Create(options, nullptr);
    Replay replay(store.get(), false);
    for (const TraceRequest& request : trace) replay.Take(request);
    char row[128];
    std::snprintf(row, sizeof(row),
                  args.json ? "%s{\"blocks\":%llu,\"hit_percent\":%.3f}"
                            : "%s%9llu blocks  %6.2f %% of tokens\n",
                  args.json && !text.empty() ? "," : "", static_cast<unsigned long long>(blocks),
                  replay.figures.percent());
    text += row;
  }
  std::printf(args.json ? "{\"requests\":%zu,\"capacities\":[%s]}\n" : "%zu requests\n%s",
              trace.size(), text.c_str());
  return 0;
}

int ReplayReal(const KvArgs& args, const std::vector<TraceRequest>& trace) {
  const std::string dir = args.dir.empty() ? std::filesystem::temp_directory_path().string() +
                                                 "/weir-kv-bench-" + std::to_string(getpid())
                                           : args.dir;
  const uint64_t host = kMiB;  // so little that most is read from the disk
  kv::AlignedBuffer arena(host);
  kv::TieredOptions options{
      .arena = arena.span(), .host_bytes = host, .host_free_share = 0.3, .disk_path = dir};
  options.disk = {.capacity_bytes = 64 * kMiB, .segment_bytes = 4 * kMiB};
  ReplayFigures figures;
  kv::TieredStats stats;
  const size_t requests = args.quick ? std::min<size_t>(trace.size(), 3000) : trace.size();
  for (size_t i = 0; i < requests;) {  // with restarts in between
    absl::StatusOr<std::unique_ptr<kv::TieredStore>> store = kv::TieredStore::Open(options);
    if (!store.ok()) {
      std::fprintf(stderr, "weir kv bench: %s\n",
                   std::string(StdView(store.status().message())).c_str());
      return 1;
    }
    Replay replay(store->get(), true);
    replay.figures = figures;
    for (const size_t end = i + requests / 3 + 1; i < requests && i < end; ++i)
      replay.Take(trace[i]);
    figures = replay.figures;
    stats = (*store)->stats();
  }
  if (args.dir.empty()) std::filesystem::remove_all(dir);
  std::printf(args.json ? "{\"requests\":%zu,\"hit_percent\":%.3f,\"blocks_checked\":%llu,\"blocks_"
                          "missing\":%llu,\"wrong\":%llu,"
                          "\"disk_written\":%llu,\"disk_moved\":%llu}\n"
                        : "%zu requests, %.2f %% of tokens\n%llu blocks checked, %llu promised and "
                          "missed, %llu wrong\n"
                          "disk: %llu bytes written, %llu moved\n",
              requests, figures.percent(), static_cast<unsigned long long>(figures.blocks_checked),
              static_cast<unsigned long long>(figures.blocks_missing),
              static_cast<unsigned long long>(figures.wrong),
              static_cast<unsigned long long>(stats.disk.written_bytes),
              static_cast<unsigned long long>(stats.disk.moved_bytes));
  return figures.wrong > 0 ? 1 : 0;
}

}  // namespace

int RunKvBench(const KvArgs& args) {
  if (args.speed) return RunKvSpeed(args);
  if (args.restart) return RunKvRestart(args);
  std::vector<TraceRequest> trace;
  if (!ReadTrace(args.trace, &trace)) {
    std::fprintf(
        stderr,
        "weir kv bench: --trace names a file of requests as JSON lines; or --speed, --restart, "
        "--node\n");
    return 2;
  }
  return args.payload == "none" ? ReplayCounted(args, trace) : ReplayReal(args, trace);
}

}  // namespace weir
