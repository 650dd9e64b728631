// SPDX-License-Identifier: Apache-2.0
#include "kvstore/meta/rocks_store.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/write_batch.h>

namespace weir::kv {
namespace {

rocksdb::Slice SliceOf(std::string_view text) { return {text.data(), text.size()}; }

absl::Status FromRocks(const rocksdb::Status& status) {
  if (status.ok()) return absl::OkStatus();
  if (status.IsNotFound()) return Error(Reason::kUnknownModel, "there is no such key", "key");
  const std::string text = "the run catalogue: " + status.ToString();
  if (status.IsCorruption()) return Error(Reason::kCorrupt, text);
  return Error(Reason::kNoCapacity, text);
}

class RocksStore : public OrderedStore {
 public:
  explicit RocksStore(std::unique_ptr<rocksdb::DB> db) : db_(std::move(db)) {}

  absl::StatusOr<std::string> Get(std::string_view key) override {
    std::string value;
    WEIR_TRY(FromRocks(db_->Get({}, SliceOf(key), &value)));
    return value;
  }

  absl::Status Scan(std::string_view prefix, const Each& each) override {
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator({}));
    for (at->Seek(SliceOf(prefix)); at->Valid(); at->Next()) {
      if (!at->key().starts_with(SliceOf(prefix))) break;
      if (!each({at->key().data(), at->key().size()}, {at->value().data(), at->value().size()}))
        break;
    }
    return FromRocks(at->status());
  }

  absl::Status Write(std::span<const Change> changes, Durability durability) override {
    rocksdb::WriteBatch batch;
    for (const Change& change : changes) {
      const rocksdb::Status added =
          change.value ? batch.Put(change.key, *change.value) : batch.Delete(change.key);
      WEIR_TRY(FromRocks(added));
    }
    rocksdb::WriteOptions options;
    options.sync = durability == Durability::kNow;
    return FromRocks(db_->Write(options, &batch));
  }

 private:
  const std::unique_ptr<rocksdb::DB> db_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<OrderedStore>> OpenRocksStore(const std::string& path) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.max_open_files = 256;
  options.keep_log_file_num = 2;
  options.max_background_jobs = 2;
  options.write_buffer_size = 16 << 20;
  rocksdb::DB* db = nullptr;
  WEIR_TRY(FromRocks(rocksdb::DB::Open(options, path, &db)));
  return std::make_unique<RocksStore>(std::unique_ptr<rocksdb::DB>(db));
}

}  // namespace weir::kv
