// SPDX-License-Identifier: Apache-2.0
//
// Holds the protos against the committed descriptor set: what was there must still be there with the
// same number, type and label, and the set must know everything that is there now.
#include <fstream>
#include <sstream>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include "proto/config.pb.h"
#include "proto/front.pb.h"
#include "proto/kv.pb.h"
#include "proto/peer.pb.h"

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::DescriptorProto;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumDescriptorProto;
using google::protobuf::FieldDescriptor;
using google::protobuf::FieldDescriptorProto;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;

FileDescriptorSet Committed() {
  std::ifstream file("proto/schema.binpb", std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  FileDescriptorSet set;
  EXPECT_TRUE(set.ParseFromString(bytes.str())) << "proto/schema.binpb is missing or damaged";
  return set;
}

bool ReservedNumber(const Descriptor& message, int number) {
  for (int i = 0; i < message.reserved_range_count(); ++i) {
    const auto* range = message.reserved_range(i);
    if (number >= range->start && number < range->end) return true;
  }
  return false;
}

void CheckMessage(const DescriptorProto& old, const std::string& name) {
  const Descriptor* now = DescriptorPool::generated_pool()->FindMessageTypeByName(name);
  ASSERT_NE(now, nullptr) << "message " << name << " is gone";
  for (const FieldDescriptorProto& field : old.field()) {
    const FieldDescriptor* found = now->FindFieldByNumber(field.number());
    if (found == nullptr) {
      EXPECT_TRUE(ReservedNumber(*now, field.number()))
          << name << "." << field.name() << " was removed without reserving " << field.number();
      continue;
    }
    FieldDescriptorProto current;
    found->CopyTo(&current);
    EXPECT_EQ(current.name(), field.name()) << name << " field " << field.number();
    EXPECT_EQ(current.type(), field.type()) << name << "." << field.name();
    EXPECT_EQ(current.label(), field.label()) << name << "." << field.name();
    EXPECT_EQ(current.type_name(), field.type_name()) << name << "." << field.name();
  }
  for (const DescriptorProto& nested : old.nested_type()) {
    CheckMessage(nested, name + "." + nested.name());
  }
}

void CheckEnum(const EnumDescriptorProto& old, const std::string& name) {
  const EnumDescriptor* now = DescriptorPool::generated_pool()->FindEnumTypeByName(name);
  ASSERT_NE(now, nullptr) << "enum " << name << " is gone";
  for (const auto& value : old.value()) {
    const auto* found = now->FindValueByNumber(value.number());
    ASSERT_NE(found, nullptr) << name << "." << value.name() << " is gone";
    EXPECT_EQ(found->name(), value.name());
  }
}

TEST(ProtoCompat, NothingCommittedWasBroken) {
  const FileDescriptorSet committed = Committed();
  for (const FileDescriptorProto& file : committed.file()) {
    for (const DescriptorProto& message : file.message_type()) {
      CheckMessage(message, file.package() + "." + message.name());
    }
    for (const EnumDescriptorProto& type : file.enum_type()) {
      CheckEnum(type, file.package() + "." + type.name());
    }
  }
}

TEST(ProtoCompat, TheCommittedSetIsComplete) {
  // Linking these keeps every file in the generated pool.
  (void)v1::Envelope::descriptor();
  (void)v1::Config::descriptor();
  (void)v1::KvMessage::descriptor();
  (void)v1::GenerateRequest::descriptor();
  const FileDescriptorSet committed = Committed();
  for (const FileDescriptorProto& file : committed.file()) {
    const FileDescriptor* now = DescriptorPool::generated_pool()->FindFileByName(file.name());
    ASSERT_NE(now, nullptr) << file.name();
    FileDescriptorProto current;
    now->CopyTo(&current);
    now->CopyJsonNameTo(&current);
    EXPECT_EQ(current.SerializeAsString(), file.SerializeAsString())
        << file.name() << " has additions: run proto/update_schema";
  }
}

TEST(ProtoCompat, EveryEnumStartsWithUnspecified) {
  const FileDescriptorSet committed = Committed();
  for (const FileDescriptorProto& file : committed.file()) {
    for (const EnumDescriptorProto& type : file.enum_type()) {
      ASSERT_GT(type.value_size(), 0);
      EXPECT_EQ(type.value(0).number(), 0) << type.name();
      EXPECT_NE(type.value(0).name().find("UNSPECIFIED"), std::string::npos) << type.name();
    }
  }
}

}  // namespace
}  // namespace weir
