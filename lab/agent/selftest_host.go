package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/burn"
	"github.com/gateweigh/gateweigh/lab/client"
	"github.com/gateweigh/gateweigh/lab/machine"
	"github.com/gateweigh/gateweigh/lab/traffic/frames"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/receive"
	"github.com/gateweigh/gateweigh/lab/traffic/frames/send"
)

// tryHost starts an agent in namespaces of its own, and has it run programs and write a file.
func tryHost(ctx context.Context, s *selfTest) (string, error) {
	conn, end, err := s.startTest(true)
	if err != nil {
		return "", err
	}
	defer end()
	out, err := conn.Run(ctx, Command{Argv: []string{"sh", "-c", "cat; echo err >&2; exit 3"}, Stdin: "in"})
	if err == nil || out.ExitCode != 3 || out.Stdout != "in" || strings.TrimSpace(out.Stderr) != "err" {
		return "", fmt.Errorf("a command that prints and exits with 3: %+v, %v", out, err)
	}
	file, text := filepath.Join(s.dir, "sub", "file"), "written\n"
	if err := conn.WriteFile(ctx, file, []byte(text), 0o600); err != nil {
		return "", err
	}
	if out, err = conn.Run(ctx, Command{Argv: []string{"cat", file}}); err != nil || out.Stdout != text {
		return "", fmt.Errorf("reading back what was written: %+v, %v", out, err)
	}
	if err := conn.Spawn(ctx, Command{Name: "sleeper", Argv: []string{"sleep", "1000"}}); err != nil {
		return "", err
	}
	running, err := conn.Programs(ctx)
	if err != nil || len(running) != 1 || running[0].Ended {
		return "", fmt.Errorf("a program that was started: %+v, %v", running, err)
	}
	if ended, err := conn.End(ctx, Ending{Name: "sleeper"}); err != nil || !ended.Ended {
		return "", fmt.Errorf("ending a program: %+v, %v", ended, err)
	}
	// The file has two lines of heading, and one for the loopback interface, which is the only link.
	if out, err = conn.Run(ctx, Command{Argv: []string{"cat", "/proc/net/dev"}}); err != nil ||
		strings.Count(out.Stdout, "\n") != 3 {
		return "", fmt.Errorf("the links of a new network namespace: %+v, %v", out, err)
	}
	return "commands ran and ended, a file was written and read, in network and mount namespaces of their own", nil
}

// tryJail tests that a host's programs have another process namespace and another /etc than the machine.
func tryJail(ctx context.Context, s *selfTest) (string, error) {
	conn, end, err := s.startTest(true)
	if err != nil {
		return "", err
	}
	defer end()
	out, err := conn.Run(ctx, Command{Argv: []string{"readlink", "/proc/self/ns/pid"}})
	if err != nil {
		return "", err
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", err
	}
	if namespace == strings.TrimSpace(out.Stdout) {
		return "", fmt.Errorf("a host's programs are in the machine's process namespace %s", namespace)
	}
	file := "/etc/" + filepath.Base(s.dir)
	if err := conn.WriteFile(ctx, file, []byte("private\n"), 0o600); err != nil {
		return "", err
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s, which a host has written, is on the machine: %v", file, err)
	}
	return "process namespace and /etc of their own", nil
}

// tryMeters connects two hosts with a link, opens the meter of one, and reads a sample.
func tryMeters(ctx context.Context, s *selfTest) (string, error) {
	if (machine.Need{Program: "ethtool"}).Locate() == "" {
		return "", fmt.Errorf("%w: ethtool, which sets a link's offloads", errNotHere)
	}
	var hosts [2]*Conn
	for i := range hosts {
		conn, end, err := s.startTest(true)
		if err != nil {
			return "", err
		}
		defer end()
		hosts[i] = conn
	}
	// A link's polling thread is found by the first ten bytes of the link's name (meter.ThreadsNamed), among the threads
	// of all network namespaces. So the names contain this process's id, in case another self-test runs.
	suffix := strconv.FormatInt(int64(os.Getpid()), 36)
	left, right := "gs"+suffix+"r0", "gs"+suffix+"r1"
	peer, err := hosts[1].Hello(ctx)
	if err == nil {
		err = hosts[0].AddVethPair(ctx, VethPair{Name: left, Peer: right, PeerPID: peer.PID})
	}
	for i, name := range []string{left, right} {
		if err == nil {
			addr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, 0, byte(1 + i)}), 24)
			err = hosts[i].Apply(
				ctx, Network{Links: []Link{{Name: name, Addrs: []netip.Prefix{addr}, TxChecksum: true, QueueLen: 100}}})
		}
	}
	if err == nil {
		err = hosts[0].OpenMeter(ctx, Meter{IfNames: []string{left}, Follow: true})
	}
	if err != nil {
		return "", err
	}
	links, err := hosts[0].LinkAddresses(ctx)
	if _, has := links[left]; err != nil || !has {
		return "", fmt.Errorf("the links of a host are %v, %v", links, err)
	}
	sample, err := hosts[0].Sample(ctx)
	if err != nil {
		return "", err
	}
	if sample.NAPI[left].TID == 0 || sample.CPUs < 1 || sample.Stat.Total() == 0 || sample.MonotonicNs == 0 {
		return "", fmt.Errorf("a sample lacks something: %+v", sample)
	}
	return fmt.Sprintf("task clock of a link's polling thread %d, counters of links and machine", sample.NAPI[left].TID),
		nil
}

// inNamespace runs fn on a new thread in a new network namespace, whose loopback interface is up. Thread and namespace
// end with fn.
func inNamespace(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopbackUp()
		}
		if err == nil {
			err = fn()
		}
		done <- err
	}()
	return <-done
}

// sendTest sends count frames over a link to a MAC address, and waits until all are sent. An empty engine takes the
// fastest that works.
func sendTest(ctx context.Context, link string, to send.MAC, count int64, engine send.Engine) (send.Sent, error) {
	sizes, err := frames.Named("imix")
	if err != nil {
		return send.Sent{}, err
	}
	plan, err := frames.NewPlan(
		frames.Config{Sizes: sizes, Count: count, Schedule: frames.Schedule{PacketsPerSecond: 50_000}})
	if err != nil {
		return send.Sent{}, err
	}
	st := send.Stream{
		SrcMAC: send.MAC{2, 0, 0, 0, 0, 1}, DstMAC: to, Src: netip.MustParseAddrPort("192.0.2.1:9"),
		Dst: netip.MustParseAddrPort("192.0.2.2:9"),
	}
	sender, err := send.Start(ctx, send.Config{Link: link, Streams: []send.Stream{st}, Plan: plan, Engine: engine,
		Rests: engine == send.EnginePacket})
	if err != nil {
		return send.Sent{}, err
	}
	if err := sender.Wait(); err != nil {
		return send.Sent{}, err
	}
	if sent := sender.Stats(); sent.Offered != count {
		return sent, fmt.Errorf("the link took %d of %d frames: %w", sent.Offered, count, context.Cause(ctx))
	}
	return sender.Stats(), nil
}

// tryPackets sends frames on the loopback interface through a packet socket, one of the ways to send.
func tryPackets(ctx context.Context, _ *selfTest) (found string, err error) {
	const count = 500
	err = inNamespace(func() error {
		_, err := sendTest(ctx, "lo", send.MAC{2, 0, 0, 0, 0, 2}, count, send.EnginePacket)
		return err
	})
	return fmt.Sprintf("%d frames were sent through a packet socket", count), err
}

// tryPrograms loads the receiver's programs into the kernel, sends frames over a link, and tests that the programs have
// counted each frame once.
func tryPrograms(ctx context.Context, _ *selfTest) (found string, err error) {
	const count = 5000
	err = inNamespace(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "left0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "right0"}); err != nil {
			return fmt.Errorf("adding a link (the kernel needs CONFIG_VETH): %w", err)
		}
		for _, name := range []string{"left0", "right0"} {
			if err := client.SetUp(&netlink.Handle{}, name); err != nil {
				return err
			}
		}
		// The live engine sends by XDP, whose frames a veth interface takes only with GRO on. Without ethtool, sendTest takes
		// the packet engine.
		_ = exec.CommandContext(ctx, "ethtool", "-K", "right0", "gro", "on").Run()
		r, err := receive.Open(receive.Config{Interface: "right0", FramesPerStream: count})
		if err != nil {
			return err
		}
		defer r.Close()
		sent, err := sendTest(ctx, "left0", send.MAC{2, 0, 0, 0, 0, 2}, count, "")
		if err != nil {
			return err
		}
		got, err := r.Stats()
		if err != nil {
			return err
		}
		if got.Distinct() != count || got.Missing != 0 || got.Duplicates != 0 {
			return fmt.Errorf(
				"of %d frames %d came, %d are missing, %d came twice", count, got.Distinct(), got.Missing, got.Duplicates)
		}
		found = fmt.Sprintf("loaded; %d frames sent by the %s engine were each accounted for", count, sent.Engine)
		if sent.Reason != "" {
			found += " (" + sent.Reason + ")"
		}
		return nil
	})
	return found, err
}

// tryRealTime has an agent take a tenth of a CPU with a thread of real-time priority, until the first time is counted.
func tryRealTime(ctx context.Context, s *selfTest) (string, error) {
	conn, end, err := s.startTest(false)
	if err != nil {
		return "", err
	}
	defer end()
	m, err := conn.Machine(ctx)
	if err != nil {
		return "", err
	}
	cpu := m.Usable[len(m.Usable)-1]
	if err := conn.Slow(ctx, Slow{CPUs: []int{cpu}, Speed: 0.9, How: burn.RealTime}); err != nil {
		return "", err
	}
	for {
		r, err := conn.ReadSlow(ctx)
		if err != nil || len(r) == 1 && r[0].BurnedNs > 0 {
			return fmt.Sprintf("a thread of SCHED_FIFO took its part of CPU %d", cpu), err
		}
	}
}
