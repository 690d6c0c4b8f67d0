package datapathtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// pppoeBehindNAT: a server sends packets that are longer than the PPPoE session's MTU, and must not be fragmented, to a
// client behind masquerading. It learns the MTU by an ICMP error. Its kernel accepts only an error about a packet that
// it has sent, so the addresses and ports in the error are right. Packets of the MTU arrive, and errors are not counted
// as the client's. Long: the steps of one run, each of which needs the state that the one before left.
func pppoeBehindNAT(t *testing.T, w *World) {
	w.admit(t, w.Alice)
	if !w.path.Netfilter {
		t.Log("it does not promise that netfilter's rules apply")
		says(t, w.Alice.Space, "ping -c 1 -W 5 192.0.2.2", "1 received")
		return
	}
	w.Server.Run(t, "ip route del default") // only masqueraded packets are answered
	w.Router.Run(t, "nft 'table ip nat { chain post { type nat hook postrouting priority srcnat; oifname wan0 "+
		"masquerade; }; }'")
	netnstest.Await(t, "masquerading", func() error {
		if out, err := w.Alice.Try("ping -c 1 -W 1 192.0.2.2"); err != nil {
			return errors.New(out)
		}
		return nil
	})
	var server *net.UDPConn
	var client net.Conn
	var err error
	w.Server.Do(func() { server, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(Server, 0))) })
	must(t, err)
	defer server.Close()
	w.Alice.Do(func() { client, err = net.Dial("udp4", server.LocalAddr().String()) })
	must(t, err)
	defer client.Close()
	_, err = client.Write([]byte("hello"))
	must(t, err)
	b := make([]byte, 2000)
	must(t, server.SetReadDeadline(time.Now().Add(time.Minute)))
	_, from, err := server.ReadFromUDPAddrPort(b)
	must(t, err)
	if from.Addr() != RouterWAN {
		t.Fatalf("%s is not masqueraded", from)
	}
	raw, err := server.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
	}))
	must(t, err)
	before := w.tally(t, w.Alice)
	const headers = 28
	netnstest.Await(t, "an error for the server", func() error {
		if _, err := server.WriteToUDPAddrPort(make([]byte, 1500-headers), from); !errors.Is(err, unix.EMSGSIZE) {
			return fmt.Errorf("a packet of 1500 bytes: %v", err)
		}
		return nil
	})
	if _, err := server.WriteToUDPAddrPort(make([]byte, pppoeMTU-headers+1), from); !errors.Is(err, unix.EMSGSIZE) {
		t.Errorf("a packet of one byte too many: %v", err)
	}
	arrived := make(chan int, 1)
	go func() {
		client.SetReadDeadline(time.Now().Add(time.Minute))
		n, _ := client.Read(make([]byte, 2000))
		arrived <- n
	}()
	_, err = server.WriteToUDPAddrPort(make([]byte, pppoeMTU-headers), from)
	must(t, err)
	if n := <-arrived; n != pppoeMTU-headers {
		t.Errorf("%d bytes arrived of %d", n, pppoeMTU-headers)
	}
	if now := w.tally(t, w.Alice); now.upPackets != before.upPackets {
		t.Errorf("the client is counted for errors: %+v, then %+v", before, now)
	}
}
