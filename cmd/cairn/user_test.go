package main

import (
	"bytes"
	"os/user"
	"testing"
)

// The log names the person who answers, not the program.
func TestWhoAnswersIsWhoTypes(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Fatalf("this machine does not know who runs the test: %v", err)
	}
	a := &app{out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	if got := a.answerCommand().Flags().Lookup("by").DefValue; got != me.Username {
		t.Errorf("cairn answer is by %q, want %q", got, me.Username)
	}
}
