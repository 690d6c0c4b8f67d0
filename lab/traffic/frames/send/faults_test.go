package send_test

import (
	"errors"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
	"github.com/gateweigh/gateweigh/lab/labtest"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// The tests of this file send frames over links that refuse them, go down or are removed, and with plans and
// configurations that are wrong. Each runs with both engines. steady is a plan of frames at a constant gap.

// tap makes a TAP link in a namespace of its own. Its queue holds 64 frames until the test reads them from fd.
func tap(t *testing.T) (s *netnstest.Space, fd int) {
	t.Helper()
	s = netnstest.NewSpace(t)
	var err error
	s.Do(func() {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
			return
		}
		var r *unix.Ifreq
		if r, err = unix.NewIfreq("gwt0"); err == nil {
			r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
		}
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		t.Skip("the kernel lacks TAP links: no /dev/net/tun (CONFIG_TUN)")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	s.Run(t, "sysctl -qw net.ipv6.conf.gwt0.disable_ipv6=1; ip link set gwt0 txqueuelen 64 up")
	return s, fd
}

// TestRefusedFramesAreTriedAgain: the link's queue is full until the test reads it. No number is missing, none comes
// twice, and none of the attempts counts as offered.
func TestRefusedFramesAreTriedAgain(t *testing.T) {
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			s, fd := tap(t)
			to := streamsTo(send.MAC{2, 0, 0, 0, 0, 1}, 3)
			plan := &steady{frames: 2000, sizes: []int{60, 1514, 700}, streams: 3}
			sender, err := start(t, s, send.Config{Streams: to, Plan: plan, Engine: e})
			if err != nil {
				t.Fatal(err)
			}
			labtest.Await(t, "a refusal", func() bool { return sender.Stats().Refused > 0 })
			if got := sender.Stats().Offered; got > 64+1 {
				t.Errorf("a queue of 64 took %d frames", got)
			}
			all := read(t, fd, 2000)
			if err := sender.Wait(); err != nil {
				t.Fatal(err)
			}
			sent := sender.Stats()
			if sent.Offered != 2000 || sent.Intended != 2000 {
				t.Errorf("intended %d and offered %d of 2000", sent.Intended, sent.Offered)
			}
			compare(t, plan, to, all)
			checkAccount(t, plan, sent, all)
		})
	}
}

// TestRefusedFramesAreLost: a sender that may lose frames keeps to its plan's times when the link refuses frames.
// Refused frames count as offered. Those that the queue took arrive in order.
func TestRefusedFramesAreLost(t *testing.T) {
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			s, fd := tap(t)
			plan := &steady{frames: 2000, sizes: []int{60}, streams: 1}
			sender, err := start(
				t, s, send.Config{Streams: streamsTo(send.MAC{2, 0, 0, 0, 0, 1}, 1), Plan: plan, Loses: true, Engine: e})
			if err != nil {
				t.Fatal(err)
			}
			if err := sender.Wait(); err != nil {
				t.Fatal(err)
			}
			sent := sender.Stats()
			if sent.Offered != 2000 || sent.Intended != 2000 || sent.Refused < 2000-64-1 || sent.Engine != e {
				t.Errorf("%s: %d due, %d offered, %d of them refused by a queue of 64", sent.Engine, sent.Intended, sent.Offered,
					sent.Refused)
			}
			var before uint64
			for i, frame := range read(t, fd, int(sent.Offered-sent.Refused)) {
				if i > 0 && frame.Number <= before {
					t.Errorf("frame %d has number %d after %d", i, frame.Number, before)
				}
				before = frame.Number
			}
		})
	}
}

// TestPlanFasterThanLink: frames that could not be sent in time are intended but not offered. No frame arrives that was
// not offered.
func TestPlanFasterThanLink(t *testing.T) {
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) {
			s, fd := tap(t)
			plan := &steady{gapNs: 10, sizes: []int{60}, streams: 1}
			sent := carryOut(
				t, s, send.Config{Streams: streamsTo(send.MAC{2}, 1), Plan: plan, Engine: e, MaxFor: 20 * time.Millisecond})
			if due := int64(sent.Elapsed)/10 + 1; sent.Intended != due {
				t.Errorf("intended %d frames in %s at one every 10 ns, want %d", sent.Intended, sent.Elapsed, due)
			}
			if sent.Offered == 0 || sent.Offered > 64+1 {
				t.Errorf("a queue of 64 took %d frames", sent.Offered)
			}
			all := read(t, fd, int(sent.Offered))
			compare(t, plan, streamsTo(send.MAC{2}, 1), all)
			if _, err := unix.Read(fd, make([]byte, 2000)); err != unix.EAGAIN {
				t.Errorf("there is more than was offered (%v)", err)
			}
		})
	}
}

// TestEndlessPlanDueAtOnce: a plan without end whose frames are all due at the start has more of them than can be
// counted.
func TestEndlessPlanDueAtOnce(t *testing.T) {
	s, _ := tap(t)
	sent := carryOut(t, s, send.Config{Streams: streamsTo(send.MAC{2}, 1), Plan: &steady{sizes: []int{60}, streams: 1},
		MaxFor: time.Millisecond})
	if !sent.More || sent.Intended <= sent.Offered {
		t.Errorf("intended %d, offered %d, more %v", sent.Intended, sent.Offered, sent.More)
	}
}

// TestStopEndsAnEndlessPlan: Stop ends a sender, also when called twice, and its counts then stay.
func TestStopEndsAnEndlessPlan(t *testing.T) {
	p := newPair(t)
	for _, e := range engines {
		sender, err := start(t, p.Client, send.Config{Streams: streams(t, p, 1), Plan: &steady{gapNs: 1e6, sizes: []int{60},
			streams: 1}, Engine: e})
		if err != nil {
			t.Fatal(err)
		}
		labtest.Await(t, "frames", func() bool { return sender.Stats().Offered > 3 })
		for range 2 {
			if err := sender.Stop(); err != nil {
				t.Error(err)
			}
		}
		if a, b := sender.Stats(), sender.Stats(); a.Offered != b.Offered || a.Intended < a.Offered || a.ThreadNs == 0 {
			t.Errorf("%s: after its end %+v, then %+v", e, a, b)
		}
	}
}

// TestLinksThatEnd: while frames are sent, the link loses its carrier, goes down or is removed. The sender ends with an
// error that names the link and the reason.
func TestLinksThatEnd(t *testing.T) {
	for _, e := range engines {
		for _, c := range []struct{ name, server, client, says string }{
			{"other end down", "ip link set gwt1 down", "", "carrier"},
			{"down", "", "ip link set gwt0 down", "down"},
			{"removed", "", "ip link del gwt0", "removed"},
		} {
			t.Run(string(e)+"/"+c.name, func(t *testing.T) {
				p := newPair(t)
				sender, err := start(t, p.Client, send.Config{Streams: streams(t, p, 1), Plan: &steady{gapNs: 1e5, sizes: []int{60},
					streams: 1}, Engine: e})
				if err != nil {
					t.Fatal(err)
				}
				labtest.Await(t, "frames", func() bool { return sender.Stats().Offered > 3 })
				p.Server.Run(t, c.server)
				p.Client.Run(t, c.client)
				if err := sender.Wait(); err == nil || !strings.Contains(err.Error(), c.says) ||
					!strings.Contains(err.Error(), "gwt0") {
					t.Errorf("the sender ends with %v, want a message about gwt0 with %q", err, c.says)
				}
			})
		}
	}
}

// TestBadConfigurations: a wrong configuration is refused with an error that says what is wrong.
func TestBadConfigurations(t *testing.T) {
	p := newPair(t)
	p.Client.Run(t, "ip link add gwtdown type veth peer name gwtother; ip tuntap add gwttun mode tun; ip link set "+
		"gwttun up")
	one := streams(t, p, 1)
	good := func() *steady { return &steady{frames: 1, sizes: []int{60}, streams: 1} }
	six := one[0]
	six.Src = netip.MustParseAddrPort("[2001:db8::1]:4000")
	nowhere := one[0]
	nowhere.DstMAC = send.MAC{}
	for _, c := range []struct {
		cfg  send.Config
		says []string
	}{
		{send.Config{Streams: one}, []string{"plan"}},
		{send.Config{Streams: one, Plan: good(), Link: "nosuch"}, []string{"nosuch"}},
		{send.Config{Streams: one, Plan: good(), Link: "a-name-that-is-too-long"}, []string{"a-name-that-is-too-long"}},
		{send.Config{Streams: one, Plan: good(), Link: "gwtdown"}, []string{"gwtdown", "ip link set gwtdown up"}},
		{send.Config{Streams: one, Plan: good(), Link: "gwttun"}, []string{"gwttun", "Ethernet"}},
		{send.Config{Streams: one, Plan: &steady{sizes: []int{60, 1515}, streams: 1}},
			[]string{"1515", "MTU of 1501", "1500"}},
		{send.Config{Streams: one, Plan: &steady{sizes: []int{60}, streams: 2}}, []string{"2 streams", "1"}},
		{send.Config{Streams: []send.Stream{six}, Plan: good()}, []string{"stream 0", "IPv4"}},
		{send.Config{Streams: []send.Stream{nowhere}, Plan: good()}, []string{"stream 0", "MAC"}},
		{send.Config{Streams: one, Plan: good(), Engine: "warp"}, []string{"warp", "live", "packet"}},
		{send.Config{Streams: one, Plan: good(), MaxFor: -1}, []string{"-1ns"}},
	} {
		_, err := start(t, p.Client, c.cfg)
		if err == nil {
			t.Errorf("%+v is accepted", c.cfg)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%q does not say %q", err, s)
			}
		}
	}
}

// TestBadPlans: a plan that errs while it is carried out ends the sender, and so does a CPU that does not exist.
func TestBadPlans(t *testing.T) {
	p := newPair(t)
	for _, c := range []struct {
		cfg  send.Config
		says string
	}{
		{send.Config{Plan: &steady{frames: 9, sizes: []int{60, 59}, streams: 1}}, "frame 1 of the plan has 59 bytes"},
		{send.Config{Plan: &steady{frames: 9, sizes: []int{60}, streams: 1}, CPUs: []int{1000}}, "1000"},
	} {
		c.cfg.Streams = streams(t, p, 1)
		sender, err := start(t, p.Client, c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := sender.Wait(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("the sender ends with %v, want %q", err, c.says)
		}
		if sent := sender.Stats(); sent.Offered != 0 {
			t.Errorf("%d frames left", sent.Offered)
		}
	}
}

// TestNoPermission starts a sender on a thread without capabilities, which ends with the test.
func TestNoPermission(t *testing.T) {
	p := newPair(t)
	to := streams(t, p, 1)
	var err error
	p.Client.Do(func() {
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err = unix.Capset(&header, &none[0]); err != nil {
			return
		}
		_, err = send.Start(
			t.Context(), send.Config{Link: "gwt0", Streams: to, Plan: &steady{frames: 1, sizes: []int{60}, streams: 1}})
	})
	if err == nil || !strings.Contains(err.Error(), "root") {
		t.Errorf("without capabilities: %v, want the advice to run as root", err)
	}
}
