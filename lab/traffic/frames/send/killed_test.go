// Tests of senders that are killed. engines are the two ways of sending; newPair makes two namespaces with a link;
// carryOut sends a plan to its end, and steady is a plan with a constant gap (send_test.go, plans_test.go).

package send_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// engineToKill is an environment variable with an engine. With it this test program sends without end by that engine.
const engineToKill = "SEND_WITHOUT_END_BY"

func TestMain(m *testing.M) {
	if e := os.Getenv(engineToKill); e != "" {
		s, err := send.Start(
			context.Background(), send.Config{Link: "gwt0", Streams: streamsTo(send.MAC{2}, 1), Engine: send.Engine(e),
				Plan: &steady{gapNs: 1e5, sizes: []int{60}, streams: 1}})
		if err == nil {
			err = s.Wait()
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// programs returns the IDs of the eBPF programs in the kernel that make frames.
func programs(t *testing.T) map[ebpf.ProgramID]bool {
	t.Helper()
	ids := map[ebpf.ProgramID]bool{}
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // it is gone
		}
		if info, err := p.Info(); err == nil && info.Name == "send_frame" {
			ids[id] = true
		}
		p.Close()
	}
	return ids
}

// TestKilledSenderLeavesNothing: a sender that is killed leaves no program in the kernel and no changed setting of the
// link.
func TestKilledSenderLeavesNothing(t *testing.T) {
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			s, fd := tap(t)
			before, settings := programs(t), linkSettings(t, s)
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), engineToKill+"="+string(e))
			cmd.Stderr = os.Stderr
			var err error
			s.Do(func() { err = cmd.Start() })
			if err != nil {
				t.Fatal(err)
			}
			read(t, fd, 10)
			during := programs(t)
			if e == send.EngineLive && len(during) == 0 {
				t.Error("the kernel has no program of the sender")
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			if after := linkSettings(t, s); after != settings {
				t.Errorf("the link was\n%s and is\n%s", settings, after)
			}
			labtest.Await(t, "the kernel to free the programs", func() bool {
				now := programs(t)
				for id := range during {
					if now[id] && !before[id] {
						return false
					}
				}
				return true
			})
		})
	}
}

// linkSettings returns all settings of the link as text.
func linkSettings(t *testing.T, s *netnstest.Space) (text string) {
	t.Helper()
	s.Do(func() {
		out, err := exec.Command("sh", "-c", "ip -d link show gwt0; tc qdisc show dev gwt0; ethtool -k gwt0").CombinedOutput()
		if text = string(out); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	return text
}
