// Package packaging has the packages' contents. Its tests make the packages and install them in a Debian tree of their
// own, which they boot: systemd is process 1 in namespaces of its own, see testdata/boot.
package packaging

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "") }

var must = netnstest.Must

// pack makes packages of a program as a version into a new folder, for amd64.
func pack(t *testing.T, version, program, formats string) string {
	t.Helper()
	into := filepath.Join(t.TempDir(), version)
	cmd := exec.Command("./build", into)
	cmd.Env = append(os.Environ(), "VERSION="+version, "LDFLAGS=-X main.version="+version, "ARCHES=amd64",
		"AGENTS=amd64", "OPENWRT=amd64:x86_64", "PROGRAMS="+program, "FORMATS="+formats, "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return into
}

// machine is a booted Debian between a client and a server.
//
//	client eth0 ── eth1 machine eth0 ── eth0 server
type machine struct {
	t                      *testing.T
	space, client, outside *netnstest.Space
	dir                    string // of the machine's disk
	tree                   string // Debian
	cmd                    *exec.Cmd
	pid                    string // of process 1, as this process sees it
}

const (
	serverAddr = "192.0.2.2"
	portal     = "http://10.1.0.1:8080"
)

// newMachine makes a machine with an empty disk, that is Debian's tree, and boots it.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir()}
	m.space, m.client, m.outside = netnstest.NewSpace(t), netnstest.NewSpace(t), netnstest.NewSpace(t)
	for _, s := range []*netnstest.Space{m.space, m.client, m.outside} {
		s.Quiet(t)
	}
	m.space.Veth(t, netnstest.End{Name: "eth1"}, m.client, netnstest.End{Name: "eth0"})
	m.space.Veth(t, netnstest.End{Name: "eth0"}, m.outside, netnstest.End{Name: "eth0"})
	m.space.Run(t, "ip address add 192.0.2.1/24 dev eth0; ip link set eth0 up")
	m.outside.Run(t, "ip address add "+serverAddr+"/24 dev eth0; ip link set eth0 up; ip route add default via 192.0.2.1")
	m.client.Run(t, "ip link set eth0 up")
	out, err := exec.Command("../.ci/tree").Output()
	must(t, err)
	m.tree = strings.TrimSpace(string(out))
	m.groups()
	m.boot("systemctl is-system-running --wait || [ $(systemctl is-system-running) = degraded ]")
	t.Cleanup(func() {
		m.off()
		removeGroup(t, m.dir+"/cgroup/"+m.group())
	})
	for _, knob := range []string{"fs/file-max", "kernel/pid_max"} { // they are the whole host's
		if out, err := m.try("true >/proc/sys/" + knob); err == nil || !strings.Contains(out, "Read-only") {
			t.Errorf("the machine can set %s: %v %s", knob, err, out)
		}
	}
	return m
}

// boot starts the machine, and returns once a script succeeds there.
func (m *machine) boot(started string) {
	m.t.Helper()
	m.cmd = exec.Command("testdata/boot", m.tree, m.dir, m.group())
	console, err := os.Create(m.dir + "/console") // a file: the machine's processes write it while this one reads
	must(m.t, err)
	defer console.Close()
	m.cmd.Stdout, m.cmd.Stderr = console, console
	must(m.t, m.space.Start(m.cmd))
	netnstest.Await(m.t, "the machine boots", func() error {
		pid := fmt.Sprint(m.cmd.Process.Pid)
		child, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		if m.pid = strings.TrimSpace(string(child)); err == nil && m.pid == "" {
			err = errors.New("it has no process 1")
		}
		if out, _ := os.ReadFile(console.Name()); len(out) > 0 {
			m.t.Fatalf("the machine does not boot: %s", out)
		}
		if err == nil {
			_, err = m.try(started)
		}
		return err
	})
}

// off cuts the machine's power, and returns once its processes have ended.
func (m *machine) off() {
	m.t.Helper()
	m.cmd.Process.Kill()
	m.cmd.Wait()
	m.awaitEmpty()
}

// try runs a script on the machine.
func (m *machine) try(script string) (string, error) {
	cmd := exec.Command("nsenter", "-t", m.pid, "-a", "env", "-i", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C",
		"HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-ec", "cd; "+script)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run is try that fails the test when the script fails.
func (m *machine) run(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	if err != nil {
		m.t.Fatalf("%v\n%s\n%s\n%s", err, script, out, m.journal())
	}
	return out
}

func (m *machine) journal() string {
	out, _ := m.try("journalctl --no-pager -u 'gatewayd*' | tail -40")
	return out
}

// copy puts files into /root.
func (m *machine) copy(pattern string) {
	m.t.Helper()
	files, err := filepath.Glob(pattern)
	must(m.t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(m.t, err)
		cmd := exec.Command("nsenter", "-t", m.pid, "-m", "sh", "-c", `cat >"/root/$0"`, filepath.Base(file))
		cmd.Stdin = bytes.NewReader(data)
		must(m.t, cmd.Run())
	}
}

// lease gets the client an address from the gateway.
func (m *machine) lease() {
	m.t.Helper()
	script := filepath.Join(m.dir, "udhcpc")
	must(m.t, os.WriteFile(script, []byte("#!/bin/sh\n[ \"$1\" = bound ] || exit 0\n"+
		"ip address replace $ip/16 dev $interface\nip route replace default via $router\n"), 0o755))
	m.client.Run(m.t, "busybox udhcpc -i eth0 -q -n -t 10 -T 1 -s "+script)
}

// logIn sends the form of the portal's page as it is.
func (m *machine) logIn() {
	m.t.Helper()
	page := m.client.Run(m.t, "curl -s --max-time 20 "+portal+"/login")
	send := "curl -s --max-time 20 -o /dev/null -w '%{http_code}' " + portal + "/login"
	for _, field := range regexp.MustCompile(`name="(\w+)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		send += fmt.Sprintf(" --data-urlencode '%s=%s'", field[1], field[2])
	}
	if code := m.client.Run(m.t, send); code != "303" {
		m.t.Fatalf("%s\nis answered with %s; the page is\n%s", send, code, page)
	}
}

// passes says whether the client reaches the server.
func (m *machine) passes() bool {
	_, err := m.client.Try("ping -c 1 -W 1 " + serverAddr)
	return err == nil
}

func (m *machine) awaitPasses() {
	m.t.Helper()
	netnstest.Until(m.t, "the client reaches the server", m.passes)
}
