package gateway

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

type openAPIDocument struct {
	Swagger     string
	Paths       map[string]map[string]any
	Definitions map[string]struct {
		Type       string
		Enum       []string
		Properties map[string]struct {
			Type, Format string
			Ref          string `json:"$ref"`
		}
	}
}

func document(t *testing.T, h *house) openAPIDocument {
	t.Helper()
	r := h.call("GET", "/openapi.json", "")
	var d openAPIDocument
	if err := json.Unmarshal([]byte(r.body), &d); err != nil || r.code != http.StatusOK || d.Swagger != "2.0" {
		t.Fatalf("%d: %v", r.code, err)
	}
	return d
}

func TestOpenAPIDocumentHasEveryPathAndNoOther(t *testing.T) {
	h := build(t, setup{})
	d := document(t, h)
	var rules struct {
		HTTP struct{ Rules []map[string]string }
	}
	data, err := os.ReadFile("http.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &rules); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{"get /v1/runs/{run_id}/watch": true, "get /v1/artifacts/{sha256}": true}
	for _, r := range rules.HTTP.Rules {
		for _, method := range []string{"get", "put", "post", "delete", "patch"} {
			if path := r[method]; path != "" {
				wanted[method+" "+strings.Replace(path, "{tool.name}", "{name}", 1)] = true
			}
		}
	}
	for path, item := range d.Paths {
		for method := range item {
			if !wanted[method+" "+path] {
				t.Errorf("%s %s is in the document only", method, path)
			}
			delete(wanted, method+" "+path)
			// The gateway knows it: whatever it says, it is not that there is no such path.
			filled := regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "x")
			if r := h.call(strings.ToUpper(method), filled, ""); r.code != http.StatusOK {
				if reason := r.failure(t).reason(); reason == reasonNotFound || reason == reasonMethod {
					t.Errorf("%s %s: %d %s", method, filled, r.code, r.body)
				}
			}
		}
	}
	for left := range wanted {
		t.Errorf("%s is not in the document", left)
	}
}

// TestOpenAPIDocumentSaysWhatIsSent compares the definitions with what exactjson prints of the messages.
func TestOpenAPIDocumentSaysWhatIsSent(t *testing.T) {
	d := document(t, build(t, setup{}))
	if v, ok := d.Definitions["v1JsonText"]; !ok || v.Type != "" || len(v.Properties) > 0 {
		t.Errorf("JsonText is %+v, want any JSON", v)
	}
	seen := map[protoreflect.FullName]bool{}
	var check func(m protoreflect.MessageDescriptor)
	check = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] || !strings.HasPrefix(string(m.FullName()), "cairn.") || m.Name() == "JsonText" {
			return
		}
		seen[m.FullName()] = true
		def, ok := d.Definitions["v1"+string(m.Name())]
		if !ok {
			t.Errorf("%s is not defined", m.FullName())
			return
		}
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			p, ok := def.Properties[f.TextName()]
			switch {
			case !ok:
				t.Errorf("%s.%s is not described", m.Name(), f.TextName())
			case f.Kind() == protoreflect.Int64Kind && !f.IsList() && p.Type != "integer":
				t.Errorf("%s.%s is %s, and a number is sent", m.Name(), f.TextName(), p.Type)
			}
			if e := f.Enum(); e != nil {
				names := strings.Join(d.Definitions["v1"+string(e.Name())].Enum, " ")
				var want []string
				for j := range e.Values().Len() {
					if v := e.Values().Get(j); v.Number() != 0 {
						want = append(want, exactjson.ShortName(v))
					}
				}
				if names != strings.Join(want, " ") {
					t.Errorf("%s is one of %q, want %q", e.Name(), names, want)
				}
			}
			if f.Message() != nil {
				check(f.Message())
			}
		}
	}
	check((&runv1.Event{}).ProtoReflect().Descriptor())
	check((&runv1.RunState{}).ProtoReflect().Descriptor())
	if len(seen) < 30 {
		t.Errorf("only %d messages compared", len(seen))
	}
}
