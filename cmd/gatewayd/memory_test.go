// Benchmarks of the daemon's memory. newNetwork makes the host of a gateway with clients and a server, in namespaces
// (world_test.go); figures are measured values by name (soakmeter_test.go).

package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/control"
)

// The settings of BenchmarkMemory. With -predecessor it also measures that version of gatewayd.
var (
	memoryProgram  = flag.String("memory-program", "", "file of the gatewayd that is measured; none: the tests' own")
	memorySessions = flag.Int("memory-sessions", 100_000, "clients that are logged in")
	memoryConns    = flag.Int("memory-conns", 10_000, "connections to the portal that stay open")
	memorySettle   = flag.Duration("memory-settle", 45*time.Second,
		"how long the daemon is watched; its PSS is the median of the last third")
)

// memoryLoads are the loads under which the daemon's memory is measured. Each returns figures in MiB by name. half-TLS:
// one of 2 connections is over TLS.
var memoryLoads = []struct {
	name string
	run  func(*world) figures
}{
	{"sessions", (*world).memoryOfSessions},
	{"plain", func(w *world) figures { return w.memoryOfConnections(0) }},
	{"half-TLS", func(w *world) figures { return w.memoryOfConnections(2) }},
}

// BenchmarkMemory prints how much memory the daemon takes with many sessions, and with many open connections to the
// portal.
func BenchmarkMemory(b *testing.B) {
	for _, load := range memoryLoads {
		b.Run(load.name, func(b *testing.B) {
			found := load.run(newRoomyWorld(b, *memoryProgram))
			var before figures
			if *predecessor != "" {
				b.Run("predecessor", func(b *testing.B) { before = load.run(newRoomyWorld(b, *predecessor)) })
			}
			for name, mib := range found {
				if fmt.Printf("%s: %.1f MiB", name, mib); before != nil {
					fmt.Printf(", predecessor %.1f MiB, ratio %.3f", before[name], mib/before[name])
				}
				fmt.Println()
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// newRoomyWorld returns a world with a LAN of 131,070 addresses, whose daemon is program; "": the tests' own.
func newRoomyWorld(t testing.TB, program string) *world {
	w := newNetwork(t)
	w.sh(`ip -n $ID-router addr flush dev lan0; ip -n $ID-router addr add 10.1.0.1/15 dev lan0
ip -n $ID-server route replace 10.0.0.0/15 via 192.0.2.1`)
	w.certificate()
	if program != "" {
		w.program = program
	}
	return w
}

// memoryOfSessions returns the daemon's memory when all clients have logged in, and after a restart, when the daemon
// has read their sessions from its file.
func (w *world) memoryOfSessions() figures {
	w.write("memory/gatewayd.toml", "gatewayd.toml", w)
	w.start()
	w.logIn(*memorySessions, func(i int) string {
		return fmt.Sprintf("02:01:00:%02x:%02x:%02x", i>>16, i>>8&0xff, i&0xff)
	})
	name := fmt.Sprintf("%d sessions, ", *memorySessions)
	memory := figures{name + "logged in": w.stablePSS()}
	w.daemon.signalAndWait(syscall.SIGTERM)
	w.start()
	memory[name+"read again"] = w.stablePSS()
	w.daemon.signalAndWait(syscall.SIGTERM)
	return memory
}

// logIn logs in n clients by the daemon's control socket, as an operator does. mac returns the MAC address of client i.
func (w *world) logIn(n int, mac func(i int) string) {
	w.t.Helper()
	daemon, err := w.control()
	must(w.t, err)
	all := make([]control.LoginRequest, n)
	for i := range all {
		all[i] = control.LoginRequest{Addr: clientAddr(i), User: fmt.Sprintf("user%06d@example.net", i), MAC: mac(i)}
		all[i].Limits = control.Limits{SessionTimeoutSeconds: 8 * 3600, IdleTimeoutSeconds: 3600, DownBytes: 1 << 40}
	}
	for some := range slices.Chunk(all, 20_000) { // as many as the daemon logs in within a request's time limit
		_, err = daemon.LoginAll(w.t.Context(), some)
		must(w.t, err)
	}
}

// clientAddr returns the address of client i, from 10.0.1.0 on. It leaves out 10.1.0.0/24, which has the gateway and
// the host from which memoryOfConnections connects.
func clientAddr(i int) netip.Addr {
	i += 1 << 8
	if i >= 1<<16 {
		i += 1 << 8
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 10<<24+uint32(i))))
}

// stablePSS returns the daemon's proportional set size, MiB, after some time without requests: the median of the last
// third of -memory-settle.
func (w *world) stablePSS() float64 {
	w.t.Helper()
	var all []float64
	for began := time.Now(); time.Since(began) < *memorySettle; time.Sleep(time.Second) {
		f := figures{}
		const MiB = 1.0 / 1024
		rollup := fmt.Sprintf("/proc/%d/smaps_rollup", w.daemon.cmd.Process.Pid)
		must(w.t, f.fields(rollup, map[string]string{"Pss:": "PSS"}, MiB))
		all = append(all, f["PSS"])
	}
	fmt.Printf("  PSS in MiB, first %.1f, most %.1f, last %.1f\n", all[0], slices.Max(all), all[len(all)-1])
	last := all[len(all)*2/3:]
	slices.Sort(last)
	return last[len(last)/2]
}

// memoryOfConnections returns the daemon's memory with many clients, before they connect to the portal and while each
// has one open connection, over which it asks for a page now and then. One of every secure connections is over TLS; 0:
// none is, and the portal has no certificate.
func (w *world) memoryOfConnections(secure int) figures {
	config := w.write("memory/gatewayd.toml", "gatewayd.toml", w)
	if secure > 0 {
		file, err := os.OpenFile(config, os.O_APPEND|os.O_WRONLY, 0)
		must(w.t, err)
		_, err = fmt.Fprintf(file, "[portal]\nname = %q\ntls_cert = \"portal.crt\"\ntls_key = \"portal.key\"\n", portalName)
		must(w.t, err)
		must(w.t, file.Close())
	}
	w.start()
	w.addDevices()
	w.sh(`n=$ID-` + devicesHost + `; ip -n $n addr add 10.1.0.2/32 dev c0
ip -n $n neigh add 10.1.0.1 dev c0 lladdr $(ip netns exec $ID-router cat /sys/class/net/lan0/address)
ip -n $n route add 10.1.0.1 dev c0 src 10.1.0.2; ip -n $n route add local 10.0.0.0/16 dev lo`)
	mac := w.sh(`ip netns exec $ID-` + devicesHost + ` cat /sys/class/net/c0/address`)
	w.logIn(*memoryConns, func(int) string { return mac }) // one host has the addresses of all clients
	name := fmt.Sprintf("%d connections", *memoryConns)
	if secure > 0 {
		name += fmt.Sprintf(", 1 of %d over TLS", secure)
	}
	memory := figures{name + ", before": w.stablePSS()}

	end := w.keepAsking(secure)
	memory[name] = w.stablePSS()
	end()
	w.daemon.signalAndWait(syscall.SIGTERM)
	return memory
}

// keepAsking opens the connections and returns when each has got a page. They ask again, each every askAgain, until end
// is called.
func (w *world) keepAsking(secure int) (end func()) {
	const askers = 4
	var opened, asking sync.WaitGroup
	over := make(chan struct{})
	for n := range askers {
		opened.Add(1)
		asking.Go(func() {
			var all []*keptConn
			err := w.inHostErr(devicesHost, func() (err error) {
				defer opened.Done()
				all, err = keepSome(n, askers, secure)
				return err
			})
			for i := 0; err == nil; i++ {
				select {
				case <-over:
					for _, k := range all {
						k.Close()
					}
					return
				case <-time.After(askAgain / time.Duration(len(all))):
					err = all[i%len(all)].request()
				}
			}
			w.t.Error(err)
		})
	}
	opened.Wait()
	return func() { close(over); asking.Wait() }
}

// keepSome opens the connections first, first + step, and so on. Meanwhile the connections that it has opened ask
// again, before the portal closes them.
func keepSome(first, step, secure int) (all []*keptConn, err error) {
	again := time.Now()
	for i := first; i < *memoryConns; i += step {
		k, err := openKept(clientAddr(i), secure > 0 && (i/step)%secure == 0)
		if err == nil {
			all = append(all, k)
			err = k.request()
		}
		if err != nil {
			return all, fmt.Errorf("connection %d: %w", i, err)
		}
		if time.Since(again) < askAgain/4 {
			continue
		}
		again = time.Now()
		for _, k := range all {
			if err := k.request(); err != nil {
				return all, fmt.Errorf("connection %d asks again: %w", i, err)
			}
		}
	}
	return all, nil
}

// askAgain is how often a connection asks for a page: the portal keeps a silent connection for longer.
const askAgain = 10 * time.Second

// keptConn is a client's connection to the portal that stays open between requests.
type keptConn struct {
	net.Conn
	host   string
	reader *bufio.Reader
}

// openKept connects from a client's address to the portal, over TLS if secure.
func openKept(client netip.Addr, secure bool) (*keptConn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}, Timeout: soakWait}
	k := &keptConn{host: portalAddr}
	to := portalAddr
	if secure {
		to = "10.1.0.1:8443"
	}
	conn, err := d.Dial("tcp4", to)
	if err != nil {
		return nil, err
	}
	k.Conn = conn
	if secure {
		k.host = portalName + ":8443"
		k.Conn = tls.Client(conn, &tls.Config{ServerName: portalName, InsecureSkipVerify: true})
	}
	k.reader = bufio.NewReaderSize(k.Conn, 1024)
	return k, nil
}

// request asks for a page, and fails unless the portal answers with one and keeps the connection.
func (k *keptConn) request() error {
	_ = k.SetDeadline(time.Now().Add(soakWait))
	if _, err := fmt.Fprintf(k, "GET /status HTTP/1.1\r\nHost: %s\r\nAccept-Language: en\r\n\r\n", k.host); err != nil {
		return err
	}
	answer, err := http.ReadResponse(k.reader, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err == nil && (answer.Close || answer.StatusCode >= 400) {
		err = fmt.Errorf("the answer is %s, close %v", answer.Status, answer.Close)
	}
	return err
}
