package exactjson_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
	"github.com/cairnrun/cairn/proto/exactjson"
)

func TestValuesKeepTheirExactText(t *testing.T) {
	const doc = `{"id":"a","action":{"kind":"tool","name":"echo","arguments":{"id":9007199254740993,"max":9223372036854775807,` +
		`"p":9011.00,"e":1e2,"n":null,"t":"<读✅>\u2028"},"timeout":"1.5s"},"retry":{"max_attempts":3,"factor":2},"risk":"high"}`
	var s planv1.Step
	if err := exactjson.Unmarshal([]byte(doc), &s); err != nil {
		t.Fatal(err)
	}
	if s.GetAction().GetTimeout().AsDuration().Milliseconds() != 1500 || s.GetRisk() != planv1.Risk_RISK_HIGH {
		t.Fatalf("read as %v", &s)
	}
	got, err := exactjson.Marshal(&s)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != doc {
		t.Fatalf("\ngot  %s\nwant %s", got, doc)
	}
}

func TestNullIsAValueInsideJsonTextAndAbsentElsewhere(t *testing.T) {
	var v runv1.Observation
	if err := exactjson.Unmarshal([]byte(`{"output":{"inline":null},"error":null,"usage":null}`), &v); err != nil {
		t.Fatal(err)
	}
	if v.GetOutput().GetInline().GetText() != "null" || v.GetError() != nil || v.GetUsage() != nil {
		t.Fatalf("read as %v", &v)
	}
}

func TestReadsFullNamesQuotedNumbersAndLongDurations(t *testing.T) {
	var got, want runv1.RunLimits
	if err := exactjson.Unmarshal([]byte(`{"maxEvents":"9","max_duration":"1m30s"}`), &got); err != nil {
		t.Fatal(err)
	}
	if err := exactjson.Unmarshal([]byte(`{"max_events":9,"max_duration":"90s"}`), &want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&got, &want) {
		t.Fatalf("%v != %v", &got, &want)
	}
}

func TestErrorsNameThePlace(t *testing.T) {
	for doc, want := range map[string]string{
		`{"steps":[{"id":1}]}`:                              "/steps/0/id: a string is expected, not a number",
		`{"steps":[{"idd":"a"}]}`:                           `/steps/0/idd: unknown field "idd"`,
		`{"steps":{}}`:                                      "/steps: an array is expected, not an object",
		`{"steps":[{"risk":"hihg"}]}`:                       `/steps/0/risk: "hihg" is not one of low, medium, high`,
		`{"steps":[{"action":{"timeout":"soon"}}]}`:         `/steps/0/action/timeout: "soon" is not a duration such as 90s or 1m30s`,
		`{"goal":"a","goal":"b"}`:                           `/ (byte 12): the key "goal" stands twice in one object`,
		`{"version":1.5}`:                                   "/version: a whole number of 32 bits is expected, not 1.5",
		`{"goal":"a"`:                                       "/ (byte 11): a comma or the end of the object is expected",
		`{"goal":"a"} x`:                                    "/ (byte 13): something follows the JSON value",
		`{"goal":"` + "\xff" + `"}`:                         "/goal (byte 9): not UTF-8",
		strings.Repeat("[", 600) + strings.Repeat("]", 600): "nested deeper than 512",
	} {
		err := exactjson.Unmarshal([]byte(doc), &planv1.Plan{})
		var e *exactjson.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s\ngot  %v\nwant %s", doc, err, want)
		}
	}
}

func TestCase68_TextKeepsUnicodeAndMendsLoneSurrogates(t *testing.T) {
	for in, want := range map[string]string{
		`{ "é" : 1 , "e\u0301":2 }`:     `{"é":1,"e\u0301":2}`,
		`"\ud83d\ude00 \ud800 \udc00x"`: `"\ud83d\ude00 \ufffd \ufffdx"`,
		"\"\u2028\u0085\\u0000\"":       "\"\u2028\u0085\\u0000\"",
		" [1.50, -0, 1E+2 ] ":           "[1.50,-0,1E+2]",
	} {
		got, err := exactjson.Text([]byte(in))
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v", in, got, err)
		}
	}
	for _, bad := range []string{"", "01", "+1", "1.", ".5", "1e", "nul", `"\x"`, `"\u12"`, "\"\t\"", "{1:2}", "[1,]", `{"a":1,}`, "'a'"} {
		if got, err := exactjson.Text([]byte(bad)); err == nil {
			t.Errorf("%q was read as %s", bad, got)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.50,"x\ud800",null,true]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		text, err := exactjson.Text(in)
		if err != nil {
			return
		}
		again, err := exactjson.Text([]byte(text))
		if err != nil || again != text {
			t.Fatalf("%q reads as %q, and that as %q, %v", in, text, again, err)
		}
	})
}
