// A test of the check that lab and agent are the same build.

package agent

import (
	"context"
	"io"
	"strings"
	"testing"
)

// TestOtherBuildsAreRefused: an agent says what it is, and one that is another program
// than the lab does not match.
func TestOtherBuildsAreRefused(t *testing.T) {
	toAgent, fromLab := io.Pipe()
	toLab, fromAgent := io.Pipe()
	a := &machineAgent{}
	go func() {
		serve(t.Context(), toAgent, fromAgent, machineVerbs, sameReceiver(a))
		fromAgent.Close()
	}()
	conn := NewConn(toLab, fromLab, "the agent", func() string { return "" })
	defer conn.Close()
	hello, err := conn.Hello(context.Background())
	if err != nil || hello.Matches() != nil {
		t.Fatalf("%+v: %v, %v", hello, err, hello.Matches())
	}
	if hello.PID == 0 || hello.Arch == "" || hello.Build == "" {
		t.Errorf("it says too little: %+v", hello)
	}
	for name, change := range map[string]func(*Hello){
		"version": func(h *Hello) { h.Version = "v0.1" },
		"build":   func(h *Hello) { h.Build = "another" },
	} {
		other := hello
		change(&other)
		if err := other.Matches(); err == nil || !strings.Contains(err.Error(), Version) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	far := hello
	far.Arch = "riscv64"
	if err := far.Matches(); err != nil {
		t.Errorf("the same build on another architecture: %v", err)
	}
	if far.Build = "another"; far.Matches() == nil {
		t.Error("another build on another architecture is taken for the same")
	}
	defer func() { Sources = "" }()
	if Sources = "of both"; hello.Matches() == nil {
		t.Error("an agent of unknown sources is taken for one of these")
	}
	if own := thisProcess(); own.Matches() != nil || !strings.Contains(own.Build, Sources) {
		t.Errorf("with sources it is %+v", own)
	}
}
