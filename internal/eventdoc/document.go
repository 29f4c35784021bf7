package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"

	"github.com/cairnrun/cairn/pkg/run"
	"github.com/cairnrun/cairn/services/runstore"
)

// eventComment is the form of an event's comment: "PlanCreated (recorded): a proposed plan was accepted."
var eventComment = regexp.MustCompile(`^(\w+) \((recorded|decided)\): (.+)$`)

// eventType is one type of event.
type eventType struct {
	name    string
	kind    runv1.EventKind
	meaning string
	body    protoreflect.FieldDescriptor
}

// Document is docs/events.md, from the comments of the files below dir.
func Document(dir string) ([]byte, error) {
	text, err := readComments(dir, "cairn/run/v1/event.proto", "cairn/run/v1/state.proto", "cairn/plan/v1/plan.proto",
		"cairn/plan/v1/tool.proto", "cairn/plan/v1/json_text.proto")
	if err != nil {
		return nil, err
	}
	types, err := eventTypes(text)
	if err != nil {
		return nil, err
	}
	w := &page{text: text}
	w.head(types)
	for _, t := range types {
		if err := w.event(t); err != nil {
			return nil, err
		}
	}
	w.messages(types)
	w.rules()
	w.codes()
	return w.out.Bytes(), nil
}

// eventTypes lists the event's bodies in the order of the contract.
func eventTypes(text comments) ([]eventType, error) {
	fields := (&runv1.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
	var out []eventType
	for i := range fields.Len() {
		f := fields.Get(i)
		m := eventComment.FindStringSubmatch(text[f.Message().FullName()])
		if m == nil || m[1] != string(f.Message().Name()) {
			return nil, fmt.Errorf("the comment of %s does not have the form %q", f.Message().FullName(), "Name (recorded|decided): meaning.")
		}
		t := eventType{name: m[1], meaning: sentence(m[3]), body: f, kind: runv1.EventKind_EVENT_KIND_RECORDED}
		if m[2] == "decided" {
			t.kind = runv1.EventKind_EVENT_KIND_DECIDED
		}
		out = append(out, t)
	}
	return out, nil
}

// page is the document in the making.
type page struct {
	text comments
	out  bytes.Buffer
}

func (w *page) printf(format string, args ...any) { fmt.Fprintf(&w.out, format, args...) }

func (w *page) head(types []eventType) {
	w.printf("%s", intro)
	w.printf("\n## Types\n\n| type | kind | meaning |\n|---|---|---|\n")
	for _, t := range types {
		w.printf("| [%s](#%s) | %s | %s |\n", t.name, strings.ToLower(t.name), kindName(t.kind), cell(t.meaning))
	}
	w.printf("\n## What every event has\n\nThese fields are the same for all types; beside them stands the body, under the name that the type's section gives.\n\n")
	w.fields((&runv1.Event{}).ProtoReflect().Descriptor(), func(f protoreflect.FieldDescriptor) bool { return f.ContainingOneof() == nil })
	for _, m := range []protoreflect.MessageDescriptor{
		(&runv1.Cause{}).ProtoReflect().Descriptor(), (&runv1.Rule{}).ProtoReflect().Descriptor(), (&runv1.TraceContext{}).ProtoReflect().Descriptor(),
	} {
		w.message(m)
	}
	w.printf("\n# Event types\n")
}

func kindName(k runv1.EventKind) string {
	return strings.ToLower(strings.TrimPrefix(k.String(), "EVENT_KIND_"))
}

// event is the section of one type, with an example as the feed publishes it.
func (w *page) event(t eventType) error {
	w.printf("\n## %s\n\n%s: %s Body: `%s`.\n\n", t.name, strings.ToUpper(kindName(t.kind)[:1])+kindName(t.kind)[1:], t.meaning, t.body.TextName())
	w.fields(t.body.Message(), nil)
	shown, err := example(t)
	if err != nil {
		return fmt.Errorf("example of %s: %w", t.name, err)
	}
	w.printf("\n```json\n%s\n```\n", shown)
	return nil
}

// example is an event of this type in the form of the feed, indented.
func example(t eventType) ([]byte, error) {
	body, ok := examples[t.name]
	if !ok {
		return nil, fmt.Errorf("there is none; write one in example.go")
	}
	e := &runv1.Event{}
	if err := exactjson.Unmarshal([]byte(fmt.Sprintf(`{"%s":%s}`, t.body.TextName(), body.body)), e); err != nil {
		return nil, err
	}
	e.RunId, e.Revision, e.Kind = exampleRun, body.revision, t.kind
	e.Id = fmt.Sprintf("%s/%d", e.GetRunId(), e.GetRevision())
	e.Time = timestamppb.New(time.Date(2026, 1, 2, 15, 4, 5, int(body.revision)*1e6, time.UTC))
	if t.kind == runv1.EventKind_EVENT_KIND_RECORDED {
		e.Cause = &runv1.Cause{ReportId: body.cause}
	} else {
		e.Cause = &runv1.Cause{Revision: body.after}
		e.Rule = &runv1.Rule{Name: body.rule}
		if body.values != "" {
			e.Rule.Values = &planv1.JsonText{Text: body.values}
		}
	}
	data, err := runstore.CloudEvent(e, true)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Indent(&out, data, "", "  ")
	return out.Bytes(), err
}

// fields is the table of a message's fields.
func (w *page) fields(m protoreflect.MessageDescriptor, show func(protoreflect.FieldDescriptor) bool) {
	rows := 0
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if show != nil && !show(f) {
			continue
		}
		if rows++; rows == 1 {
			w.printf("| field | JSON | meaning |\n|---|---|---|\n")
		}
		w.printf("| `%s` | %s | %s |\n", f.TextName(), jsonType(f), cell(w.text[f.FullName()]))
	}
	if rows == 0 {
		w.printf("It has no fields.\n")
	}
}

// jsonType says how a field is shown.
func jsonType(f protoreflect.FieldDescriptor) string {
	t := ""
	switch f.Kind() {
	case protoreflect.MessageKind:
		switch name := f.Message().FullName(); name {
		case "cairn.plan.v1.JsonText":
			t = "any JSON, exact"
		case "google.protobuf.Timestamp":
			t = "time"
		case "google.protobuf.Duration":
			t = "duration"
		default:
			t = link(string(f.Message().Name()))
		}
	case protoreflect.EnumKind:
		t = link(string(f.Enum().Name()))
	case protoreflect.BoolKind:
		t = "boolean"
	case protoreflect.StringKind:
		t = "string"
	case protoreflect.BytesKind:
		t = "string, base64"
	default:
		t = "number"
	}
	if f.IsList() {
		return "list of " + t
	}
	return t
}

func link(name string) string { return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name)) }

// messages are the sections of what events are made of, by name.
func (w *page) messages(types []eventType) {
	seen := map[protoreflect.FullName]protoreflect.Descriptor{}
	common := map[protoreflect.FullName]bool{}
	for _, name := range []string{"Cause", "Rule", "TraceContext"} {
		common[protoreflect.FullName("cairn.run.v1."+name)] = true
	}
	var collect func(m protoreflect.MessageDescriptor)
	collect = func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			var d protoreflect.Descriptor
			if f := m.Fields().Get(i); f.Message() != nil {
				d = f.Message()
			} else if f.Enum() != nil {
				d = f.Enum()
			}
			if d == nil || seen[d.FullName()] != nil || common[d.FullName()] || d.FullName() == "cairn.plan.v1.JsonText" || d.ParentFile().Package() == "google.protobuf" {
				continue
			}
			seen[d.FullName()] = d
			if sub, ok := d.(protoreflect.MessageDescriptor); ok {
				collect(sub)
			}
		}
	}
	for _, t := range types {
		collect(t.body.Message())
	}
	kinds := (runv1.EventKind)(0).Descriptor()
	seen[kinds.FullName()] = kinds
	all := make([]protoreflect.Descriptor, 0, len(seen))
	for _, d := range seen {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b protoreflect.Descriptor) int { return strings.Compare(string(a.Name()), string(b.Name())) })
	w.printf("\n# What events are made of\n")
	for _, d := range all {
		switch d := d.(type) {
		case protoreflect.MessageDescriptor:
			w.message(d)
		case protoreflect.EnumDescriptor:
			w.enum(d)
		}
	}
}

func (w *page) message(m protoreflect.MessageDescriptor) {
	w.section(m)
	w.fields(m, nil)
}

func (w *page) enum(e protoreflect.EnumDescriptor) {
	w.section(e)
	prefix := ""
	if v := e.Values().ByNumber(0); v != nil {
		prefix = strings.TrimSuffix(string(v.Name()), "UNSPECIFIED")
	}
	w.printf("| value | meaning |\n|---|---|\n")
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		if v.Number() == 0 {
			continue
		}
		w.printf("| `%s` | %s |\n", strings.ToLower(strings.TrimPrefix(string(v.Name()), prefix)), cell(w.text[v.FullName()]))
	}
}

func (w *page) section(d protoreflect.Descriptor) {
	w.printf("\n### %s\n\n", d.Name())
	if c := w.text[d.FullName()]; c != "" {
		w.printf("%s\n\n", sentence(c))
	}
}

func (w *page) rules() {
	w.printf("\n# Rules\n\nThe rule of a decided event, `rule.name`.\n\n| rule | when it applies |\n|---|---|\n")
	for _, r := range run.Rules() {
		w.printf("| `%s` | %s |\n", r.Name, cell(r.Meaning))
	}
}

func (w *page) codes() {
	w.printf("\n# Error codes\n\nCodes of `error.code` that the system itself uses; a tool may use its own. " +
		"Execution faults are retried where the code is retryable, or the tool says so; plan faults are replanned.\n\n" +
		"| code | class | retryable | meaning |\n|---|---|---|---|\n")
	for _, c := range run.Codes() {
		class := strings.ToLower(strings.TrimPrefix(c.Class.String(), "FAULT_CLASS_"))
		yes := "no"
		if c.Retryable {
			yes = "yes"
		}
		w.printf("| `%s` | %s | %s | %s |\n", c.Code, class, yes, cell(c.Meaning))
	}
}

// sentence begins with a capital letter and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// cell is text within a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(sentence(s))
}
