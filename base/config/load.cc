// SPDX-License-Identifier: Apache-2.0
#include "base/config/load.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

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

// What reading the sources brought to light, and what is needed to place problems found later.
struct Findings {
  std::vector<std::string> problems;
  std::map<std::string, std::string> origins;  // setting -> the file's line or the overlay
  std::set<std::string> bad;                   // settings (or sections) that have a problem

  // True when the setting or the section it is in was refused: its value is not what was written.
  bool Refused(const std::string& path) const {
    return std::any_of(bad.begin(), bad.end(), [&](const std::string& one) {
      return path == one || (path.size() > one.size() && path[one.size()] == '.' &&
                             path.compare(0, one.size(), one) == 0);
    });
  }
};

// Applies YAML nodes to a message and collects what is wrong. `source` says where they come from.
class Filler {
 public:
  Filler(std::string source, Findings* findings)
      : source_(std::move(source)), findings_(*findings) {}

  void FillMessage(const YAML::Node& node, const std::string& path, Message* out) {
    if (node.IsNull()) return;
    if (!node.IsMap()) {
      Problem(node, path,
              absl::StrCat(path.empty() ? "the file" : path, " must be a map of settings"));
      return;
    }
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : std::string("?");
      const std::string child = path.empty() ? key : absl::StrCat(path, ".", key);
      const FieldDescriptor* field = out->GetDescriptor()->FindFieldByName(key);
      if (field == nullptr) {
        const std::string meant = Suggest(*out->GetDescriptor(), key);
        Problem(entry.first, child,
                absl::StrCat("unknown setting ", child,
                             meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
        continue;
      }
      if (!seen.insert(key).second) {
        Problem(entry.first, child, absl::StrCat(child, " is given twice"));
        continue;
      }
      FillField(entry.second, child, field, out);
    }
  }

  void FillField(const YAML::Node& node, const std::string& path, const FieldDescriptor* field,
                 Message* out) {
    const Reflection& reflection = *out->GetReflection();
    findings_.origins[path] = Where(node);
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
      Problem(node, path, absl::StrCat(path, " must be a list, for example [\"a\", \"b\"]"));
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
    using Limits = std::numeric_limits<T>;
    int64_t wide = 0;
    uint64_t unsigned_wide = 0;
    const std::string& text = node.Scalar();
    std::string bound;  // empty: not a whole number at all
    if (absl::SimpleAtoi(text, &unsigned_wide)) {
      constexpr auto kMax = static_cast<uint64_t>(Limits::max());
      if (unsigned_wide <= kMax) return static_cast<T>(unsigned_wide);
      bound = absl::StrCat(" of at most ", Limits::max());
    } else if (absl::SimpleAtoi(text, &wide)) {
      if (Limits::is_signed && wide >= static_cast<int64_t>(Limits::min())) {
        return static_cast<T>(wide);
      }
      bound = absl::StrCat(" of at least ", Limits::min());
    }
    Problem(node, path,
            absl::StrCat(path, " must be a whole number", bound, ", not \"", text, "\""));
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
      Problem(node, path, absl::StrCat(path, " must be a single value"));
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
        Problem(node, path, absl::StrCat(path, " has a type that configuration does not support"));
    }
  }

  std::optional<bool> Bool(const YAML::Node& node, const std::string& path) {
    if (node.Scalar() == "true") return true;
    if (node.Scalar() == "false") return false;
    Problem(node, path, absl::StrCat(path, " must be true or false, not \"", node.Scalar(), "\""));
    return std::nullopt;
  }

  std::optional<double> Double(const YAML::Node& node, const std::string& path) {
    double value = 0;
    if (absl::SimpleAtod(node.Scalar(), &value)) return value;
    Problem(node, path, absl::StrCat(path, " must be a number, not \"", node.Scalar(), "\""));
    return std::nullopt;
  }

  std::string Where(const YAML::Node& node) const {
    const int line = node.Mark().line;
    return line_numbers_ && line >= 0 ? absl::StrCat(source_, ":", line + 1) : source_;
  }

  void Problem(const YAML::Node& node, const std::string& path, const std::string& what) {
    findings_.problems.push_back(absl::StrCat(Where(node), ": ", what));
    findings_.bad.insert(path);
  }

 public:
  Filler& WithoutLines() {
    line_numbers_ = false;
    return *this;
  }

 private:
  const std::string source_;
  Findings& findings_;
  bool line_numbers_ = true;
};

YAML::Node ParseValue(const std::string& value) {
  try {
    const YAML::Node node = YAML::Load(value);
    if (node.IsDefined() && !node.IsNull()) return node;
  } catch (const YAML::Exception&) {  // not YAML: taken as the text it is
  }
  return YAML::Node(value);
}

// Sets the field at `path` ("a.b.c") to the YAML value.
void ApplyOverlay(const std::string& source, const std::string& path, const YAML::Node& value,
                  Message* out, Findings* findings) {
  Filler filler(source, findings);
  filler.WithoutLines();
  Message* message = out;
  size_t begin = 0;
  while (true) {
    const size_t dot = path.find('.', begin);
    const std::string key = path.substr(begin, dot == std::string::npos ? dot : dot - begin);
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(key);
    if (field == nullptr) {
      const std::string meant = Suggest(*message->GetDescriptor(), key);
      findings->problems.push_back(
          absl::StrCat(source, ": unknown setting ", path,
                       meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?")));
      return;
    }
    if (dot == std::string::npos) {
      filler.FillField(value, path, field, message);
      return;
    }
    if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      findings->problems.push_back(
          absl::StrCat(source, ": ", path.substr(0, dot), " has no settings below it"));
      return;
    }
    message = message->GetReflection()->MutableMessage(message, field);
    begin = dot + 1;
  }
}

// False when the file is not YAML or not there, so that nothing is known of what it should say.
bool ApplyFile(const std::string& file, Message* out, Findings* findings) {
  try {
    Filler(file, findings).FillMessage(YAML::LoadFile(file), "", out);
    return true;
  } catch (const YAML::BadFile&) {
    findings->problems.push_back(absl::StrCat(file, ": cannot be read"));
  } catch (const YAML::Exception& error) {
    findings->problems.push_back(absl::StrCat(file, ":", error.mark.line + 1, ": ", error.msg));
  }
  return false;
}

void ApplyEnvironment(Message* out, Findings* findings) {
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
    ApplyOverlay(std::string(name), path, ParseValue(std::string(text.substr(equals + 1))), out,
                 findings);
  }
}

void EmitScalar(const Message& message, const FieldDescriptor* field, int index,
                YAML::Emitter* out) {
  const Reflection& r = *message.GetReflection();
  std::string scratch;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      *out << YAML::DoubleQuoted
           << (index < 0 ? r.GetStringReference(message, field, &scratch)
                         : r.GetRepeatedStringReference(message, field, index, &scratch));
      return;
    case FieldDescriptor::CPPTYPE_BOOL: *out << r.GetBool(message, field); return;
    case FieldDescriptor::CPPTYPE_UINT32: *out << r.GetUInt32(message, field); return;
    case FieldDescriptor::CPPTYPE_UINT64: *out << r.GetUInt64(message, field); return;
    case FieldDescriptor::CPPTYPE_INT32: *out << r.GetInt32(message, field); return;
    case FieldDescriptor::CPPTYPE_INT64: *out << r.GetInt64(message, field); return;
    case FieldDescriptor::CPPTYPE_DOUBLE: *out << r.GetDouble(message, field); return;
    case FieldDescriptor::CPPTYPE_FLOAT: *out << r.GetFloat(message, field); return;
    default: *out << YAML::Null;
  }
}

// One setting, or a list of such.
void EmitValue(const Message& message, const FieldDescriptor* field, YAML::Emitter* out) {
  if (!field->is_repeated()) return EmitScalar(message, field, -1, out);
  *out << YAML::Flow << YAML::BeginSeq;
  const int size = message.GetReflection()->FieldSize(message, field);
  for (int i = 0; i < size; ++i) EmitScalar(message, field, i, out);
  *out << YAML::EndSeq;
}

bool IsSection(const FieldDescriptor* field) {
  return !field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

void Emit(const Message& message, YAML::Emitter* out) {
  const Reflection& reflection = *message.GetReflection();
  const Descriptor& type = *message.GetDescriptor();
  *out << YAML::BeginMap;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    if (IsSection(field) && !reflection.HasField(message, field)) continue;
    *out << YAML::Key << field->name() << YAML::Value;
    if (IsSection(field)) {
      Emit(reflection.GetMessage(message, field), out);
    } else {
      EmitValue(message, field, out);
    }
  }
  *out << YAML::EndMap;
}

void Compare(const Message& before, const Message& after, const std::string& prefix,
             std::vector<std::string>* changed) {
  const Reflection& reflection = *before.GetReflection();
  const Descriptor& type = *before.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* field = type.field(i);
    const std::string path = prefix + field->name();
    if (IsSection(field)) {
      Compare(reflection.GetMessage(before, field), reflection.GetMessage(after, field), path + ".",
              changed);
      continue;
    }
    YAML::Emitter was;
    YAML::Emitter is;
    EmitValue(before, field, &was);
    EmitValue(after, field, &is);
    if (std::string_view(was.c_str()) != is.c_str()) changed->push_back(path);
  }
}

// "router.slots" of "router.slots must be ..."; what the caller's check says begins with it.
std::string LeadingPath(const std::string& problem) {
  size_t end = 0;
  while (end < problem.size() && (problem[end] == '.' || problem[end] == '_' ||
                                  std::isalnum(static_cast<unsigned char>(problem[end])) != 0)) {
    ++end;
  }
  return problem.substr(0, end);
}

void AddChecked(const ConfigCheck& check, Findings* findings) {
  std::vector<std::string> problems;
  check(&problems);
  for (const std::string& problem : problems) {
    const std::string path = LeadingPath(problem);
    if (findings->Refused(path)) continue;
    const auto origin = findings->origins.find(path);
    findings->problems.push_back(origin == findings->origins.end()
                                     ? problem
                                     : absl::StrCat(origin->second, ": ", problem));
  }
}

}  // namespace

absl::Status LoadConfig(const ConfigSources& sources, const ConfigCheck& check, Message* out) {
  Findings findings;
  if (!sources.file.empty() && !ApplyFile(sources.file, out, &findings)) {
    return Error(Reason::kBadField, absl::StrJoin(findings.problems, "\n"));
  }
  if (sources.environment) ApplyEnvironment(out, &findings);
  for (const std::string& set : sources.sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos) {
      findings.problems.push_back(absl::StrCat("--set ", set, ": must be section.key=value"));
      continue;
    }
    ApplyOverlay("--set", set.substr(0, equals), ParseValue(set.substr(equals + 1)), out,
                 &findings);
  }
  for (const ConfigFlag& flag : sources.flags) {
    ApplyOverlay(flag.name, flag.path, YAML::Node(flag.value), out, &findings);
  }
  if (check) AddChecked(check, &findings);
  if (findings.problems.empty()) return absl::OkStatus();
  return Error(Reason::kBadField, absl::StrJoin(findings.problems, "\n"));
}

std::string DumpConfig(const Message& config) {
  YAML::Emitter out;
  Emit(config, &out);
  return std::string(out.c_str()) + "\n";
}

std::vector<std::string> ChangedSettings(const Message& before, const Message& after) {
  std::vector<std::string> changed;
  Compare(before, after, "", &changed);
  return changed;
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
