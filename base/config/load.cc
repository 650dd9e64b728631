// SPDX-License-Identifier: Apache-2.0
#include "base/config/load.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/stdx/bytes.h"
#include "base/stdx/planted.h"

extern char** environ;

namespace weir {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::string_view kEnvironmentPrefix = "WEIR_";

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

// The field's name that `key` was probably meant to be, or empty.
std::string Suggest(const Descriptor& type, std::string_view key) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, key.size() / 3) + 1;
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string& name = type.field(i)->name();
    const size_t distance = EditDistance(key, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

// Applies YAML nodes to a message and collects what is wrong. `where` says where a node comes from.
class Filler {
 public:
  Filler(std::string source, std::vector<std::string>* problems)
      : source_(std::move(source)), problems_(problems) {}

  void FillMessage(const YAML::Node& node, const std::string& path, Message* out) {
    if (node.IsNull()) return;
    if (!node.IsMap()) {
      Problem(node, absl::StrCat(path.empty() ? "the file" : path, " must be a map of settings"));
      return;
    }
    for (const auto& entry : node) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : std::string("?");
      const std::string child = path.empty() ? key : absl::StrCat(path, ".", key);
      const FieldDescriptor* field = out->GetDescriptor()->FindFieldByName(key);
      if (field == nullptr) {
        const std::string meant = Suggest(*out->GetDescriptor(), key);
        Problem(entry.first,
                absl::StrCat("unknown setting ", child,
                             meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
        continue;
      }
      FillField(entry.second, child, field, out);
    }
  }

  void FillField(const YAML::Node& node, const std::string& path, const FieldDescriptor* field,
                 Message* out) {
    const Reflection& reflection = *out->GetReflection();
    if (!field->is_repeated()) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        FillMessage(node, path, reflection.MutableMessage(out, field));
      } else {
        FillScalar(node, path, field, /*add=*/false, out);
      }
      return;
    }
    reflection.ClearField(out, field);  // a later source replaces the list
    if (!node.IsSequence()) {
      Problem(node, absl::StrCat(path, " must be a list, for example [\"a\", \"b\"]"));
      return;
    }
    for (size_t i = 0; i < node.size(); ++i) {
      const std::string element = absl::StrCat(path, "[", i, "]");
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        FillMessage(node[i], element, reflection.AddMessage(out, field));
      } else {
        FillScalar(node[i], element, field, /*add=*/true, out);
      }
    }
  }

 private:
  template <class T>
  std::optional<T> Integer(const YAML::Node& node, const std::string& path) {
    int64_t wide = 0;
    uint64_t unsigned_wide = 0;
    const std::string& text = node.Scalar();
    if (absl::SimpleAtoi(text, &unsigned_wide)) {
      if (unsigned_wide <= static_cast<uint64_t>(std::numeric_limits<T>::max())) {
        return static_cast<T>(unsigned_wide);
      }
    } else if (absl::SimpleAtoi(text, &wide) && std::numeric_limits<T>::is_signed &&
               wide >= static_cast<int64_t>(std::numeric_limits<T>::min())) {
      return static_cast<T>(wide);
    }
    Problem(node, absl::StrCat(path, " must be a whole number from ", std::numeric_limits<T>::min(),
                               " to ", std::numeric_limits<T>::max(), ", not \"", text, "\""));
    return std::nullopt;
  }

  template <class T, class Set, class Add>
  void Put(const std::optional<T>& value, bool add, Set set, Add append) {
    if (!value) return;
    if (add) {
      append(*value);
    } else {
      set(*value);
    }
  }

  void FillScalar(const YAML::Node& node, const std::string& path, const FieldDescriptor* field,
                  bool add, Message* out) {
    if (!node.IsScalar()) {
      Problem(node, absl::StrCat(path, " must be a single value"));
      return;
    }
    const Reflection& r = *out->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        Put<std::string>(node.Scalar(), add,
                         [&](const std::string& v) { r.SetString(out, field, v); },
                         [&](const std::string& v) { r.AddString(out, field, v); });
        return;
      case FieldDescriptor::CPPTYPE_UINT32:
        Put<uint32_t>(Integer<uint32_t>(node, path), add,
                      [&](uint32_t v) { r.SetUInt32(out, field, v); },
                      [&](uint32_t v) { r.AddUInt32(out, field, v); });
        return;
      case FieldDescriptor::CPPTYPE_UINT64:
        Put<uint64_t>(Integer<uint64_t>(node, path), add,
                      [&](uint64_t v) { r.SetUInt64(out, field, v); },
                      [&](uint64_t v) { r.AddUInt64(out, field, v); });
        return;
      case FieldDescriptor::CPPTYPE_INT32:
        Put<int32_t>(Integer<int32_t>(node, path), add,
                     [&](int32_t v) { r.SetInt32(out, field, v); },
                     [&](int32_t v) { r.AddInt32(out, field, v); });
        return;
      case FieldDescriptor::CPPTYPE_INT64:
        Put<int64_t>(Integer<int64_t>(node, path), add,
                     [&](int64_t v) { r.SetInt64(out, field, v); },
                     [&](int64_t v) { r.AddInt64(out, field, v); });
        return;
      case FieldDescriptor::CPPTYPE_BOOL:
        Put<bool>(Bool(node, path), add, [&](bool v) { r.SetBool(out, field, v); },
                  [&](bool v) { r.AddBool(out, field, v); });
        return;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        Put<double>(Double(node, path), add, [&](double v) { r.SetDouble(out, field, v); },
                    [&](double v) { r.AddDouble(out, field, v); });
        return;
      case FieldDescriptor::CPPTYPE_FLOAT:
        Put<double>(Double(node, path), add,
                    [&](double v) { r.SetFloat(out, field, static_cast<float>(v)); },
                    [&](double v) { r.AddFloat(out, field, static_cast<float>(v)); });
        return;
      default:
        Problem(node, absl::StrCat(path, " has a type that configuration does not support"));
    }
  }

  std::optional<bool> Bool(const YAML::Node& node, const std::string& path) {
    if (node.Scalar() == "true") return true;
    if (node.Scalar() == "false") return false;
    Problem(node, absl::StrCat(path, " must be true or false, not \"", node.Scalar(), "\""));
    return std::nullopt;
  }

  std::optional<double> Double(const YAML::Node& node, const std::string& path) {
    double value = 0;
    if (absl::SimpleAtod(node.Scalar(), &value)) return value;
    Problem(node, absl::StrCat(path, " must be a number, not \"", node.Scalar(), "\""));
    return std::nullopt;
  }

  void Problem(const YAML::Node& node, const std::string& what) {
    const int line = node.Mark().line;
    problems_->push_back(line_numbers_ && line >= 0
                             ? absl::StrCat(source_, ":", line + 1, ": ", what)
                             : absl::StrCat(source_, ": ", what));
  }

 public:
  Filler& WithoutLines() {
    line_numbers_ = false;
    return *this;
  }

 private:
  const std::string source_;
  std::vector<std::string>* const problems_;
  bool line_numbers_ = true;
};

// Sets the field at `path` ("a.b.c") to the YAML text `value`.
void ApplyOverlay(const std::string& source, const std::string& path, const std::string& value,
                  Message* out, std::vector<std::string>* problems) {
  Filler filler(source, problems);
  filler.WithoutLines();
  Message* message = out;
  size_t begin = 0;
  while (true) {
    const size_t dot = path.find('.', begin);
    const std::string key = path.substr(begin, dot == std::string::npos ? dot : dot - begin);
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(key);
    if (field == nullptr) {
      const std::string meant = Suggest(*message->GetDescriptor(), key);
      problems->push_back(absl::StrCat(source, ": unknown setting ", path,
                                       meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
      return;
    }
    if (dot == std::string::npos) {
      YAML::Node node;
      try {
        node = YAML::Load(value);
        if (!node.IsDefined() || node.IsNull()) node = YAML::Node(value);
      } catch (const YAML::Exception&) {
        node = YAML::Node(value);  // not YAML: taken as the text it is
      }
      filler.FillField(node, path, field, message);
      return;
    }
    if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      problems->push_back(absl::StrCat(source, ": ", path.substr(0, dot), " has no settings below it"));
      return;
    }
    message = message->GetReflection()->MutableMessage(message, field);
    begin = dot + 1;
  }
}

void ApplyFile(const std::string& file, Message* out, std::vector<std::string>* problems) {
  try {
    Filler(file, problems).FillMessage(YAML::LoadFile(file), "", out);
  } catch (const YAML::BadFile&) {
    problems->push_back(absl::StrCat(file, ": cannot be read"));
  } catch (const YAML::Exception& error) {
    problems->push_back(absl::StrCat(file, ":", error.mark.line + 1, ": ", error.msg));
  }
}

void ApplyEnvironment(Message* out, std::vector<std::string>* problems) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos || text.substr(0, kEnvironmentPrefix.size()) != kEnvironmentPrefix) {
      continue;
    }
    const std::string_view name = text.substr(0, equals);
    if (name.find("__") == std::string_view::npos) continue;  // not a setting
    std::string path;
    for (size_t i = kEnvironmentPrefix.size(); i < name.size(); ++i) {
      if (name.substr(i, 2) == "__") {
        path.push_back('.');
        ++i;
      } else {
        path.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(name[i]))));
      }
    }
    ApplyOverlay(std::string(name), path, std::string(text.substr(equals + 1)), out, problems);
  }
}

void Emit(const Message& message, YAML::Emitter* out) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  const auto scalar = [&](const FieldDescriptor* field, int index) {
    std::string scratch;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        *out << YAML::DoubleQuoted
             << (index < 0 ? reflection.GetStringReference(message, field, &scratch)
                           : reflection.GetRepeatedStringReference(message, field, index, &scratch));
        return;
      case FieldDescriptor::CPPTYPE_BOOL: *out << reflection.GetBool(message, field); return;
      case FieldDescriptor::CPPTYPE_UINT32: *out << reflection.GetUInt32(message, field); return;
      case FieldDescriptor::CPPTYPE_UINT64: *out << reflection.GetUInt64(message, field); return;
      case FieldDescriptor::CPPTYPE_INT32: *out << reflection.GetInt32(message, field); return;
      case FieldDescriptor::CPPTYPE_INT64: *out << reflection.GetInt64(message, field); return;
      case FieldDescriptor::CPPTYPE_DOUBLE: *out << reflection.GetDouble(message, field); return;
      case FieldDescriptor::CPPTYPE_FLOAT: *out << reflection.GetFloat(message, field); return;
      default: *out << YAML::Null;
    }
  };
  *out << YAML::BeginMap;
  for (const FieldDescriptor* field : fields) {
    *out << YAML::Key << field->name() << YAML::Value;
    if (field->is_repeated()) {
      *out << YAML::Flow << YAML::BeginSeq;
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) scalar(field, i);
      *out << YAML::EndSeq;
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Emit(reflection.GetMessage(message, field), out);
    } else {
      scalar(field, -1);
    }
  }
  *out << YAML::EndMap;
}

}  // namespace

absl::Status LoadConfig(const ConfigSources& sources, const ConfigCheck& check, Message* out) {
  std::vector<std::string> problems;
  if (!sources.file.empty()) ApplyFile(sources.file, out, &problems);
  if (sources.environment) ApplyEnvironment(out, &problems);
  for (const std::string& set : sources.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) {
      problems.push_back(absl::StrCat("--set ", set, ": must be section.key=value"));
      continue;
    }
    ApplyOverlay("--set", set.substr(0, equals), set.substr(equals + 1), out, &problems);
  }
  if (check) check(&problems);
  if (problems.empty()) return absl::OkStatus();
  return Error(Reason::kBadField, absl::StrJoin(problems, "\n"));
}

std::string DumpConfig(const Message& config) {
  YAML::Emitter out;
  Emit(config, &out);
  return std::string(out.c_str()) + "\n";
}

void ArmPlantedFromEnvironment() {
  const char* text = std::getenv("WEIR_PLANTED");
  int which = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &which) || which == 0) return;
  g_planted = which;
  std::fprintf(stderr,
               "weir: WARNING: planted bug %d is armed by WEIR_PLANTED; this process misbehaves on "
               "purpose\n",
               which);
}

}  // namespace weir
