// Tests of how programs on a host end. host_test.go has the helpers: startHost starts a host; marked returns a time, in
// seconds, for which only this test's programs sleep; running counts the processes whose command line has a text.

package backend_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/lab/agent"
	"github.com/gateweigh/gateweigh/lab/labtest"
)

// TestEndTakesWhatItTakes: End ends programs that ignore signals, leave children behind or have much to say: by the
// first of its signals that ends the program (by), or by SIGKILL after the grace period.
func TestEndTakesWhatItTakes(t *testing.T) {
	h := startHost(t)
	const (
		soon = 50 * time.Millisecond // grace period of programs that do not end by themselves
		long = 2 * time.Minute       // of programs that end sooner
	)
	hup := []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}
	for name, c := range map[string]struct {
		script string
		how    agent.Ending
		by     string
		ended  string
		says   string // at the end of its output
	}{
		"polite": {`trap 'echo counted 5; exit 3' TERM; echo up; while :; do sleep 60 & wait $!; done`,
			agent.Ending{Grace: long}, "SIGTERM", "exit status 3", "\ncounted 5\n"},
		"until HUP": {`trap "" TERM; trap 'echo counted 6; exit 0' HUP; echo up; while :; do sleep 60 & wait $!; done`,
			agent.Ending{Signals: hup, Grace: 250 * time.Millisecond}, "SIGHUP", "exit status 0", "\ncounted 6\n"},
		"stubborn": {`trap "" TERM HUP; echo up; while :; do sleep 60; done`, agent.Ending{Signals: hup, Grace: soon},
			"SIGKILL", "signal: killed", "up\n"},
		// The children get the signal because it goes to the whole process group.
		"with a child that goes on": {`(trap "" TERM; echo up; exec sleep ` + marked(4715) + `) & wait`, agent.Ending{
			Grace: soon}, "SIGTERM", "signal: terminated", "up\n"},
		"without its child": {`(trap "" TERM; echo up; exec sleep ` + marked(4715) + `) & exit 4`, agent.Ending{
			Grace: soon}, "", "exit status 4", "up\n"},
		"talkative": {`trap 'seq 9000; exit 0' TERM; echo up; while :; do sleep 60 & wait $!; done`,
			agent.Ending{Grace: long}, "SIGTERM", "exit status 0", "\n8999\n9000\n"},
	} {
		end := func() (agent.Program, error) {
			if err := h.Spawn(t.Context(), agent.Command{Name: name, Argv: []string{"sh", "-c", c.script}}); err != nil {
				t.Fatal(err)
			}
			labtest.Await(t, name+" to be up", func() bool {
				list, err := h.Programs(t.Context())
				return err == nil && len(list) == 1 && list[0].Output == "up" && list[0].Ended == (c.by == "")
			})
			c.how.Name = name
			return h.End(t.Context(), c.how)
		}
		p, err := end()
		// A program that needs less may need more on a busy machine.
		for c.by != "SIGKILL" && p.Signal == "SIGKILL" && c.how.Grace < long {
			c.how.Grace *= 4
			p, err = end()
		}
		if err != nil || p.Signal != c.by || p.Status != c.ended || !p.Ended || !strings.HasSuffix(p.Output, c.says) ||
			!strings.HasPrefix(p.Output, "up\n") {
			t.Errorf("%s: ended by %q, %q, printed …%.40q, %v", name, p.Signal, p.Status, p.Output[max(0, len(p.Output)-40):],
				err)
		}
		if n := running("sleep\x00" + marked(4715)); n != 0 {
			t.Errorf("%s: %d processes are left", name, n)
		}
	}
}
