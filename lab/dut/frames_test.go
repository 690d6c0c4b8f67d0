// Labs for capture devices: the server sends frames, and a device on the router captures them.

package dut

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// captureLab is a lab in which a device on the router captures the frames that the server sends. No host has the
// frames' addresses, so nothing answers them.
type captureLab struct {
	*testLab
	sent int64 // frames sent since the last start
}

// newCaptureLab builds a lab without a device.
func newCaptureLab(t testing.TB) *captureLab {
	l := &captureLab{testLab: newTestLab(t, NoCapture{}, 1)}
	l.env.On, l.env.Capture = "router", l.env.Port("wan")
	return l
}

// send sends count frames of a size or mix at 50,000 a second, and returns when all have passed the capturing programs'
// sockets. That may take a while: the thread that polls the router's link may have to wait for a CPU.
func (l *captureLab) send(t *testing.T, count int64, size string) {
	t.Helper()
	came := l.passed(t)
	l.generate(t, count, size)
	labtest.Await(t, "the router to receive all frames", func() bool { return l.passed(t)-came >= count })
	l.sent += count
}

// passed returns the number of frames that have passed packet sockets on the router's interface. The kernel counts
// frames for other hosts (Otherhost) after these sockets have seen them. With an XDP program, which takes the frames,
// passed returns the number of frames that have arrived.
func (l *captureLab) passed(t *testing.T) int64 {
	t.Helper()
	var links []struct {
		XDP     json.RawMessage
		Stats64 struct {
			Rx struct{ Packets, Otherhost int64 }
		}
	}
	text := l.router.must(t, `ip -j -s -s link show dev "$1"`, l.env.Capture)
	if err := json.Unmarshal([]byte(text), &links); err != nil || len(links) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	if links[0].XDP != nil {
		return links[0].Stats64.Rx.Packets
	}
	return links[0].Stats64.Rx.Otherhost
}

// generate sends count frames of a size or mix, and returns when the link has taken them.
func (l *captureLab) generate(t *testing.T, count int64, size string) {
	t.Helper()
	sizes, err := frames.Named(size)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := frames.NewPlan(
		frames.Config{Sizes: sizes, Schedule: frames.Schedule{PacketsPerSecond: 50_000}, Count: count, Burst: 10})
	if err != nil {
		t.Fatal(err)
	}
	hello, err := l.server.Hello(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	nobody := send.Stream{
		SrcMAC: send.MAC{2, 0, 0, 0, 1, 1}, DstMAC: send.MAC{2, 0, 0, 0, 1, 2},
		Src: netip.MustParseAddrPort("198.18.0.1:9"), Dst: netip.MustParseAddrPort("198.18.0.2:9"),
	}
	err = netnstest.In(fmt.Sprintf("/proc/%d/ns/net", hello.PID), func() error {
		s, err := send.Start(t.Context(), send.Config{Link: l.server.Ifs[0], Streams: []send.Stream{nobody}, Plan: plan,
			Engine: send.EnginePacket, Rests: true})
		if err != nil {
			return err
		}
		err = s.Wait()
		if sent := s.Stats(); err == nil && sent.Offered != count {
			err = fmt.Errorf("the link took %d of %d frames", sent.Offered, count)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// capture makes a device, starts it and stops it at the test's end.
func (l *captureLab) capture(t *testing.T, name string, settings Capture) Capturing {
	t.Helper()
	d, err := NewCapture(name, settings)
	if err != nil {
		t.Fatal(err)
	}
	l.start(t, d)
	t.Cleanup(func() {
		for range 2 {
			if err := d.Stop(context.WithoutCancel(t.Context()), l.env); err != nil {
				t.Error(err)
			}
		}
	})
	return d
}

// start starts a device, and begins to count sent frames anew.
func (l *captureLab) start(t *testing.T, d Capturing) {
	t.Helper()
	if err := d.Start(t.Context(), l.env); err != nil {
		t.Fatal(err)
	}
	l.sent = 0
}

// finish ends a device and returns its programs' counts.
func (l *captureLab) finish(t *testing.T, d Capturing) []Captured {
	t.Helper()
	list, err := d.Finish(t.Context(), l.env)
	if err != nil {
		t.Error(err)
	}
	return list
}
