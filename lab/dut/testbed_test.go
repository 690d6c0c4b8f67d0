package dut

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/lab/agent"
)

// testHost is a real Host: a process that holds network, mount and process
// namespaces of its own. Everything in it dies with the test binary.
type testHost struct {
	holder *exec.Cmd
	pid    string // of the namespaces' first process
	mu     sync.Mutex
	procs  map[string]*exec.Cmd // guarded by mu
}

// hostScript gives a host the private directories that dut.Host promises.
const hostScript = `mount --make-rprivate /
for d in /tmp /run /var/lib /var/log; do mount -t tmpfs gwd $d; done
mkdir -p /run/gwd/up /run/gwd/work /tmp/scratch
mount -t overlay gwd -o lowerdir=/etc,upperdir=/run/gwd/up,workdir=/run/gwd/work /etc
ip link set lo up
echo ready
exec cat`

func newTestHost(t *testing.T) *testHost {
	t.Helper()
	holder := exec.Command("unshare", "-n", "-m", "-p", "-f", "--mount-proc", "--kill-child=KILL", "sh", "-ec", hostScript)
	holder.Stderr = os.Stderr
	// The first process of the namespaces ends with its standard input, which
	// this process holds open, and the kernel ends all others with it.
	if _, err := holder.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatalf("the host did not come up: %v", err)
	}
	parent := fmt.Sprint(holder.Process.Pid)
	child, err := os.ReadFile("/proc/" + parent + "/task/" + parent + "/children")
	if err != nil {
		t.Fatal(err)
	}
	h := &testHost{holder: holder, pid: strings.TrimSpace(string(child)), procs: map[string]*exec.Cmd{}}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	return h
}

func (h *testHost) command(ctx context.Context, cmd agent.Command) *exec.Cmd {
	argv := append([]string{"-t", h.pid, "-n", "-m", "-p", "--wdns=/tmp/scratch", "--"}, cmd.Argv...)
	c := exec.CommandContext(ctx, "nsenter", argv...)
	c.Env = append(os.Environ(), cmd.Env...)
	c.Stdin = strings.NewReader(cmd.Stdin)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return c
}

func (h *testHost) Run(ctx context.Context, cmd agent.Command) (agent.Output, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c := h.command(ctx, cmd)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	out := agent.Output{Stdout: stdout.String(), Stderr: stderr.String(), ExitCode: c.ProcessState.ExitCode()}
	if err != nil {
		return out, fmt.Errorf("running %q: %w: %s", cmd.Argv, err, lastLines(out.Stdout+out.Stderr, 3))
	}
	return out, nil
}

func (h *testHost) Spawn(_ context.Context, cmd agent.Command) error {
	c := h.command(context.Background(), cmd)
	if err := c.Start(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.procs[cmd.Name] = c
	go func() { _ = c.Wait() }()
	return nil
}

func (h *testHost) Kill(_ context.Context, name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.procs[name]; c != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		delete(h.procs, name)
	}
	return nil
}

func (h *testHost) WriteFile(ctx context.Context, to string, data []byte, mode uint32) error {
	script := fmt.Sprintf(`mkdir -p "$(dirname "$0")"; cat >"$0"; chmod %o "$0"`, mode)
	_, err := h.Run(ctx, agent.Command{Argv: []string{"sh", "-ec", script, to}, Stdin: string(data)})
	return err
}

func (h *testHost) ReadFile(ctx context.Context, from string) ([]byte, error) {
	out, err := h.Run(ctx, agent.Command{Argv: []string{"cat", from}})
	return []byte(out.Stdout), err
}

var _ Host = (*testHost)(nil)

// must runs a script on the host.
func (h *testHost) must(t *testing.T, script string, args ...string) string {
	t.Helper()
	argv := append([]string{"sh", "-ec", script, "sh"}, args...)
	out, err := h.Run(t.Context(), agent.Command{Argv: argv})
	if err != nil {
		t.Fatal(err)
	}
	return out.Stdout
}

// processes lists the command names on the host, without the holder and the lister.
func (h *testHost) processes(t *testing.T) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(h.must(t, `exec ps -eo stat=,comm=`)) {
		state, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		name = strings.TrimSpace(name)
		// Orphans that ended stay as zombies: the holder does not wait for them.
		if state[0] != 'Z' && name != "cat" && name != "ps" {
			names = append(names, name)
		}
	}
	return names
}

// testLab is client – router – server with study 1's addresses.
type testLab struct {
	clientHost, router, server *testHost
	env                        Env
}

// newTestLab builds the topology; lan is the clients' network.
func newTestLab(t *testing.T, lan netip.Prefix, gateway netip.Addr, clients int) *testLab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	l := &testLab{clientHost: newTestHost(t), router: newTestHost(t), server: newTestHost(t)}
	router, server := l.router, l.server
	l.link(t, "gwd-lan", l.clientHost)
	l.link(t, "gwd-wan", l.server)
	router.must(t, `ip link set gwd-lan up; ip link set gwd-wan up
ip addr add "$1" dev gwd-lan; ip addr add 192.168.89.99/24 dev gwd-wan
ip route add default via 192.168.89.1; echo 1 >/proc/sys/net/ipv4/ip_forward
ethtool -K gwd-lan tx off gro off >/dev/null; ethtool -K gwd-wan tx off >/dev/null`,
		fmt.Sprintf("%s/%d", gateway, lan.Bits()))
	l.clientHost.must(t, `ip link set eth0 up; ethtool -K eth0 tx off gro off tso off gso off >/dev/null`)
	server.must(t, `ip link set eth0 up; ip addr add 192.168.89.1/24 dev eth0; ip addr add 192.168.89.2/24 dev eth0
ip route add "$1" via 192.168.89.99; ethtool -K eth0 tx off >/dev/null`, lan.Masked().String())
	l.env = Env{
		Router: router, Server: server, LANIf: "gwd-lan", WANIf: "gwd-wan", LAN: lan.Masked(), Gateway: gateway,
		RouterWAN: netip.MustParseAddr("192.168.89.99"), ServerIP: netip.MustParseAddr("192.168.89.1"),
		ServiceIP: netip.MustParseAddr("192.168.89.2"), Clients: clients, Scratch: "/tmp/scratch",
	}
	return l
}

// link joins the router to a host, on which the other end is eth0.
func (l *testLab) link(t *testing.T, name string, to *testHost) {
	t.Helper()
	// Only the network namespace is entered: the other host's process is not
	// visible from inside the router's process namespace.
	out, err := exec.Command("nsenter", "-t", l.router.pid, "-n",
		"ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", to.pid).CombinedOutput()
	if err != nil {
		t.Fatalf("linking %s: %v: %s", name, err, out)
	}
}

// testClient is one simulated client: a macvlan in a namespace of its own.
type testClient struct {
	ns *os.File // the namespace lives as long as this is open
	ip netip.Addr
}

// leaseScript is what udhcpc does with a lease: the address and the way out.
// The stock script would rewrite the machine's resolv.conf.
const leaseScript = `#!/bin/sh
[ "$1" = bound ] || [ "$1" = renew ] || exit 0
ip addr flush dev "$interface"
ip addr add "$ip/${mask:-24}" dev "$interface"
ip route replace default via "$router" dev "$interface"
echo "leased $ip"
`

// addClients makes n clients and gives each a lease by a real DHCP exchange.
func (l *testLab) addClients(t *testing.T, n int) []*testClient {
	t.Helper()
	script := path.Join(t.TempDir(), "lease.sh")
	if err := os.WriteFile(script, []byte(leaseScript), 0o755); err != nil {
		t.Fatal(err)
	}
	clients := make([]*testClient, n)
	for i := range clients {
		clients[i] = &testClient{ns: newNamespace(t)}
		holder := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), clients[i].ns.Fd())
		// The mount namespace of the lab process sees the holder's descriptor.
		out, err := exec.Command("nsenter", "-t", l.clientHost.pid, "-n", "sh", "-ec",
			`ip link add link eth0 name "$1" type macvlan mode bridge; ip link set "$1" netns "$2" name eth0`,
			"sh", fmt.Sprintf("gwdm%d", i), holder).CombinedOutput()
		if err != nil {
			t.Fatalf("macvlan %d: %v: %s", i, err, out)
		}
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i, c := range clients {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out, err := c.Exec(t.Context(), []string{"sh", "-ec", `ip link set lo up; ip link set eth0 up
udhcpc -i eth0 -n -q -f -t 10 -T 1 -s "$0"`, script}, nil)
			for line := range strings.Lines(out) {
				if ip, ok := strings.CutPrefix(strings.TrimSpace(line), "leased "); ok {
					c.ip, _ = netip.ParseAddr(ip)
				}
			}
			if err != nil || !c.ip.IsValid() {
				t.Errorf("client %d got no lease: %v: %s", i+1, err, out)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return clients
}

// newNamespace makes a network namespace that only a descriptor keeps alive.
func newNamespace(t *testing.T) *os.File {
	t.Helper()
	type result struct {
		f   *os.File
		err error
	}
	made := make(chan result)
	go func() {
		// Never unlocked: the thread in the new namespace ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			made <- result{err: err}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		made <- result{f, err}
	}()
	r := <-made
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.f.Close() })
	return r.f
}

func (c *testClient) LocalIP() netip.Addr { return c.ip }

// DialContext makes the socket in the client's namespace, where it stays.
func (c *testClient) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, as above
		if err := unix.Setns(int(c.ns.Fd()), unix.CLONE_NEWNET); err != nil {
			dialled <- result{err: err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		dialled <- result{conn, err}
	}()
	r := <-dialled
	return r.conn, r.err
}

func (c *testClient) Exec(ctx context.Context, argv, env []string) (string, error) {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/proc/self/fd/3", "--"}, argv...)...)
	cmd.ExtraFiles = []*os.File{c.ns}
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// reaches reports whether the client gets a connection to a TCP port of the
// server, which always listens: a portal refuses by ICMP or by silence.
func (c *testClient) reaches(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := c.DialContext(ctx, "tcp", addr)
	if err == nil {
		conn.Close()
	}
	return err == nil
}
