package dhcp6

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// host is a client's network namespace, with the interface c0 at a port of the bridge.
type host struct {
	*netnstest.Space
	dir string // of the client's files, empty for each test
}

func newHost(t *testing.T, number int) host {
	t.Helper()
	h := host{netnstest.NewSpace(t), t.TempDir()}
	netnstest.Run(t, fmt.Sprintf(`ip link add p%[1]d type veth peer name c%[1]d
		ip link set p%[1]d master br0; ip link set p%[1]d up
		ip link set c%[1]d netns %[2]d name c0`, number, h.TID()))
	t.Cleanup(func() { netnstest.Try(fmt.Sprintf("ip link del p%d", number)) })
	h.Run(t, netnstest.Up+"ip link set c0 up; up c0\n"+
		"until ip -6 addr show dev c0 scope link -tentative | grep -q fe80; do sleep 0.01; done")
	return h
}

// file writes a file of the client, and returns its path.
func (h host) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(h.dir, name)
	netnstest.Must(t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

// hook writes a client's hook. It stores its environment in a file named after the event. dhclient calls it for an
// address and a prefix in turn.
func (h host) hook(t *testing.T, first string) string {
	return h.file(t, "hook", fmt.Sprintf("#!/bin/sh\ncd %s\n%s\nenv >$$.new\n"+
		"mv $$.new event.$reason${new_ip6_prefix:+.prefix}\n", h.dir, first))
}

// event returns what a hook was told of an event, once it was.
func (h host) event(t *testing.T, reason string) map[string]string {
	t.Helper()
	var text []byte
	await(t, reason, func() (ok bool) {
		var err error
		text, err = os.ReadFile(filepath.Join(h.dir, "event."+reason))
		return err == nil
	})
	env := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	return env
}

// program starts a client that runs until the test ends, with folders of its own for what it remembers.
func (h host) program(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	script := `for dir in /run /var/lib/dhcpcd /var/lib/dhcpv6; do
		mkdir -p $dir; mkdir -p "$0$dir"; mount --bind "$0$dir" $dir; done; exec "$@"`
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", script, h.dir}, argv...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second // children that live on may hold its output open
	netnstest.Must(t, h.Start(cmd))
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // killed, dhcpcd would leave its other processes
		late := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
		cmd.Wait()
		late.Stop()
		if t.Failed() {
			t.Logf("%s has written:\n%s", strings.Join(argv, " "), out.String())
		}
	})
	return cmd
}

// briefly gives pools whose leases are renewed after some seconds.
func briefly() Prefixes {
	brief := func(prefix netip.Prefix) []Pool {
		return []Pool{{Prefix: prefix, Preferred: 8 * time.Second, Valid: 60 * time.Second}}
	}
	return Prefixes{OnLink: []netip.Prefix{onLink}, Addresses: brief(pooled), Delegated: brief(parcels)}
}

// dhclient returns the command of ISC's client. what is -N, -P or both.
func (h host) dhclient(t *testing.T, first string, what ...string) []string {
	conf := h.file(t, "conf", "option dhcp6.portal code 103 = text;\n"+
		"also request dhcp6.portal, dhcp6.name-servers, dhcp6.domain-search;\n")
	args := append([]string{"dhclient", "-6", "-d"}, what...)
	return append(args, "-cf", conf, "-lf", filepath.Join(h.dir, "leases"), "-pf", filepath.Join(h.dir, "pid"),
		"-sf", h.hook(t, first), "c0")
}

// TestDhclient: ISC's client gets an address and a prefix, renews them, keeps them over a restart of the server, and
// releases them.
func TestDhclient(t *testing.T) {
	newLAN(t)
	path := leasesFile(t)
	run := start(t, path, nil)
	run.net.set(briefly())
	h := newHost(t, 0)
	args := h.dhclient(t, "", "-N", "-P")
	client := h.program(t, args...)
	env := h.event(t, "BOUND6")
	addr, prefix := env["new_ip6_address"], h.event(t, "BOUND6.prefix")["new_ip6_prefix"]
	for name, want := range map[string]string{
		"new_dhcp6_name_servers": "2001:db8:1:1::1", "new_dhcp6_domain_search": "guests.example.",
		"new_dhcp6_portal": "https://portal.example/api",
	} {
		if env[name] != want {
			t.Errorf("%s is %q, want %q", name, env[name], want)
		}
	}
	await(t, "both leases", func() bool { return len(run.Leases()) == 2 })
	list := run.Leases()
	if list[1].Prefix.String() != prefix || list[0].Prefix.Addr().String() != addr {
		t.Errorf("has %s and %s, leases %v", addr, prefix, list)
	}
	await(t, "a renewal", func() bool { return run.Stats().Renews > 0 })
	run.stop()
	run = start(t, path, func(cfg *Config) { cfg.Prefixes = briefly })
	await(t, "a renewal after the restart", func() bool { return run.Stats().Renews > 0 })
	if st := run.Stats(); len(run.Leases()) != 2 || st.Malformed+st.Unread+st.Foreign > 0 || st.Rebinds > 0 {
		t.Errorf("leases %v, stats %+v", run.Leases(), st)
	}
	netnstest.Must(t, client.Process.Signal(syscall.SIGKILL))
	client.Wait()
	args[2] = "-r"
	h.program(t, args...)
	await(t, "the release", func() bool { return len(run.Leases()) == 0 && run.Stats().Releases > 0 })
}

// TestDhclientDeclines: a client whose hook finds its address in use gets another.
func TestDhclientDeclines(t *testing.T) {
	newLAN(t)
	run := start(t, leasesFile(t), nil)
	h := newHost(t, 0)
	decline := `[ $reason != BOUND6 ] || [ -e declined ] || { echo $new_ip6_address >declined; exit 3; }`
	h.program(t, h.dhclient(t, decline)...)
	await(t, "the decline", func() bool { return run.Stats().Declines > 0 })
	env := h.event(t, "BOUND6")
	declined, err := os.ReadFile(filepath.Join(h.dir, "declined"))
	netnstest.Must(t, err)
	if addr := env["new_ip6_address"]; addr == strings.TrimSpace(string(declined)) || run.Stats().DeclinedAddresses != 1 {
		t.Errorf("%s after %s, stats %+v", addr, declined, run.Stats())
	}
}

// TestDhclientConfirms: a client that has a lease asks whether it is still in the same network.
func TestDhclientConfirms(t *testing.T) {
	newLAN(t)
	run := start(t, leasesFile(t), nil)
	h := newHost(t, 0)
	args := h.dhclient(t, "")
	client := h.program(t, args...)
	addr := h.event(t, "BOUND6")["new_ip6_address"]
	await(t, "dhclient's own record", func() bool {
		text, err := os.ReadFile(filepath.Join(h.dir, "leases"))
		return err == nil && strings.Contains(string(text), addr)
	})
	client.Process.Kill()
	client.Wait()
	netnstest.Must(t, os.Remove(filepath.Join(h.dir, "event.BOUND6")))
	h.program(t, args...)
	if again := h.event(t, "BOUND6")["new_ip6_address"]; again != addr || run.Stats().Confirms == 0 {
		t.Errorf("%s instead of %s, stats %+v", again, addr, run.Stats())
	}
}
