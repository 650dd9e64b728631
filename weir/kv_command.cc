// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <map>
#include <memory>

#include "base/config/load.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "kvstore/blob/segment_log.h"
#include "weir/commands.h"
#include "weir/kv_bench.h"

namespace weir {
namespace {

using kv::FoundRecord;
using kv::SegmentLog;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "weir kv: %s\n", std::string(StdView(status.message())).c_str());
  return 1;
}

struct Folder {
  std::unique_ptr<SegmentLog> log;
  std::vector<FoundRecord> records;
};

absl::StatusOr<Folder> OpenFolder(const std::string& dir) {
  Folder folder;
  WEIR_ASSIGN(std::unique_ptr<kv::Directory> directory, kv::OpenDirectory(dir, {}));
  // Nothing is written by these commands but tombstones, so no capacity applies.
  const kv::SegmentLogOptions options{.capacity_bytes = 1ull << 50};
  WEIR_ASSIGN(folder.log,
              SegmentLog::Open(std::move(directory), options, [&](const FoundRecord& record) {
                folder.records.push_back(record);
                return static_cast<kv::BlobTag>(folder.records.size() - 1);
              }));
  return folder;
}

int List(const Folder& folder) {
  for (const FoundRecord& record : folder.records) {
    std::printf("%s %2u blocks  %016llx%016llx  segment %u page %u%s\n",
                HexOf(record.domain).c_str(), record.blocks,
                static_cast<unsigned long long>(record.last.hi),
                static_cast<unsigned long long>(record.last.lo), record.place.segment,
                record.place.page, record.approx ? "  approx" : "");
  }
  return 0;
}

int Stat(const Folder& folder, bool json) {
  std::map<std::string, uint64_t> domains;
  uint64_t blocks = 0;
  for (const FoundRecord& record : folder.records) {
    ++domains[HexOf(record.domain)];
    blocks += record.blocks;
  }
  const kv::BlobStats stats = folder.log->stats();
  std::printf(
      json ? "{\"records\":%llu,\"blocks\":%llu,\"domains\":%zu,\"segments\":%llu,"
             "\"live_bytes\":%llu,\"held_bytes\":%llu}\n"
           : "records   %llu\nblocks    %llu\ndomains   %zu\nsegments  %llu\nlive      %llu bytes\n"
             "held      %llu bytes\n",
      static_cast<unsigned long long>(stats.records), static_cast<unsigned long long>(blocks),
      domains.size(), static_cast<unsigned long long>(stats.segments),
      static_cast<unsigned long long>(stats.live_bytes),
      static_cast<unsigned long long>(stats.held_bytes));
  return 0;
}

absl::Status ReadWhole(SegmentLog* log, const FoundRecord& record, kv::AlignedBuffer* buffer) {
  WEIR_ASSIGN(const kv::RecordHeader header, log->Inspect(record.place));
  const kv::RecordShape& shape = header.shape;
  if (buffer->bytes() < shape.PayloadBytes()) *buffer = kv::AlignedBuffer(shape.PayloadBytes());
  kv::BlobRead read{.place = record.place,
                    .shape = shape,
                    .first = 0,
                    .count = shape.blocks,
                    .sections = (1u << shape.sections) - 1,
                    .last = header.last(),
                    .into = buffer->span()};
  WEIR_ASSIGN(const kv::BlobId id, log->Read(read));
  for (;;) {
    std::vector<kv::BlobEvent> events;
    log->Poll(kv::IoWait::kForOne, &events);
    for (const kv::BlobEvent& event : events) {
      if (event.id == id) return event.status;
    }
  }
}

int Verify(const Folder& folder, bool json) {
  kv::AlignedBuffer buffer;
  uint64_t damaged = 0;
  for (const FoundRecord& record : folder.records) {
    const absl::Status status = ReadWhole(folder.log.get(), record, &buffer);
    if (status.ok()) continue;
    ++damaged;
    if (!json) {
      std::printf("segment %u page %u: %s\n", record.place.segment, record.place.page,
                  std::string(StdView(status.message())).c_str());
    }
  }
  std::printf(json ? "{\"records\":%zu,\"damaged\":%llu}\n" : "%zu records, %llu damaged\n",
              folder.records.size(), static_cast<unsigned long long>(damaged));
  return damaged > 0 ? 1 : 0;
}

int Erase(const Folder& folder, const std::string& domain) {
  for (const FoundRecord& record : folder.records) {
    if (HexOf(record.domain) != domain) continue;
    const absl::Status erased = folder.log->EraseDomain(record.domain);
    if (!erased.ok()) return Fail(erased);
    std::printf("erased %s\n", domain.c_str());
    return 0;
  }
  std::fprintf(stderr, "weir kv: the folder holds nothing of domain \"%s\"\n", domain.c_str());
  return 1;
}

}  // namespace

int RunKv(const KvArgs& args) {
  ArmPlantedFromEnvironment();
  if (args.what == "bench") return RunKvBench(args);
  if (args.what != "ls" && args.what != "stat" && args.what != "verify" && args.what != "erase") {
    std::fprintf(stderr, "weir kv: there are ls, stat, verify, erase and bench, not \"%s\"\n",
                 args.what.c_str());
    return 2;
  }
  if (args.dir.empty()) {
    std::fprintf(stderr, "weir kv %s: --dir names the folder of a disk tier\n", args.what.c_str());
    return 2;
  }
  const absl::StatusOr<Folder> folder = OpenFolder(args.dir);
  if (!folder.ok()) return Fail(folder.status());
  if (args.what == "ls") return List(*folder);
  if (args.what == "stat") return Stat(*folder, args.json);
  if (args.what == "verify") return Verify(*folder, args.json);
  return Erase(*folder, args.domain);
}

}  // namespace weir
