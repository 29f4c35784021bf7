package client

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestServersMayBeWrittenInSeveralForms(t *testing.T) {
	for given, want := range map[string]string{
		"127.0.0.1:7070": "127.0.0.1:7070", "http://127.0.0.1:7071": "127.0.0.1:7071", "http://h:1/v1/runs": "h:1",
		"localhost": "localhost:7070", "http://localhost/": "localhost:7070", "::1": "[::1]:7070", "[::1]": "[::1]:7070", "[::1]:1": "[::1]:1",
	} {
		if got, err := address(given); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", given, got, err, want)
		}
	}
	for _, given := range []string{"https://h", "http://", "a b", "u@h"} {
		if got, err := address(given); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %s, %v; want a refusal", given, got, err)
		}
	}
}

func TestAFolderOfAFlagGoesBeforeAServerOfTheEnvironment(t *testing.T) {
	t.Setenv("CAIRN_SERVER", "h:1")
	t.Setenv("CAIRN_DIR", "elsewhere")
	if o := (Options{Dir: "here"}).FromEnvironment(); o.Server != "" || o.Dir != "here" {
		t.Errorf("with a folder: %+v", o)
	}
	if o := (Options{}).FromEnvironment(); o.Server != "h:1" || o.Dir != "elsewhere" {
		t.Errorf("without: %+v", o)
	}
}
