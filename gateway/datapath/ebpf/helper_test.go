// Tests of connections whose addresses the kernel's helpers for FTP and SIP translate, with the cache of flows.

package ebpf

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/datapathtest"
	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// The tests of connections that a helper of the kernel's connection tracking expects, with a gateway that caches flows.

// newHelped returns a gateway that masquerades and caches flows. From outside it lets in only packets of connections
// that clients began or that a helper expects.
func newHelped(t *testing.T) *datapathtest.World {
	t.Helper()
	netnstest.NeedTCX(t)
	w := datapathtest.NewWorld(t, cachePath(t), datapathtest.Shape{})
	out, err := w.Router.Try(`modprobe -qa nf_nat_ftp nf_nat_sip || : # where they are modules
nft -f - <<END
table ip isp {
	ct helper ftp { type "ftp" protocol tcp; l3proto ip; }
	ct helper sip { type "sip" protocol udp; l3proto ip; }
	chain assign { type filter hook prerouting priority filter; tcp dport 21 ct helper set "ftp"; udp dport 5060 ct helper set "sip"; }
	chain forward { type filter hook forward priority filter; policy drop; ct state established,related accept; iifname lan0 accept; }
	chain out { type nat hook postrouting priority srcnat; oifname wan0 masquerade; }
}
END`)
	if err != nil && strings.Contains(out, "No such file") {
		t.Skip("the kernel lacks conntrack's helpers of FTP and SIP (CONFIG_NF_CONNTRACK_FTP, _SIP)")
	}
	if err != nil {
		t.Fatal(out)
	}
	w.Server.Run(t, "ip route del default") // the server has no route to clients
	becomes(t, w, "flow cache", "ip isp")
	must(t, w.Set(datapath.Client{Addrs: []netip.Addr{w.Alice.Addr}, MAC: w.Alice.MAC, Admitted: true}))
	return w
}

// ftpd is the configuration of proftpd, with files that everybody may read.
const ftpd = `ServerType standalone
Port 21
UseIPv6 off
User root
Group root
UseReverseDNS off
UseFtpUsers off
RequireValidShell off
AuthOrder mod_auth_unix.c
ScoreboardFile none
PidFile %[1]s/pid
SystemLog %[1]s/log
DelayEngine off
WtmpLog off
TransferLog none
<Anonymous %[1]s/files>
  User nobody
  Group nogroup
  UserAlias anonymous nobody
  RequireValidShell off
</Anonymous>
`

// TestActiveFTP: the server's connection to the client, with the file, passes and is translated and cached. The
// client's connection, in which the helper rewrites addresses, is always forwarded by the stack.
func TestActiveFTP(t *testing.T) {
	t.Parallel()
	w := newHelped(t)
	const bytes = 20_000_000
	dir := t.TempDir()
	must(t, errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)))
	must(t, os.MkdirAll(dir+"/files", 0o755))
	must(t, os.WriteFile(dir+"/files/file", make([]byte, bytes), 0o644))
	must(t, os.WriteFile(dir+"/conf", fmt.Appendf(nil, ftpd, dir), 0o644))
	server := exec.Command("proftpd", "-n", "-c", dir+"/conf")
	var output strings.Builder
	server.Stdout, server.Stderr = &output, &output
	must(t, w.Server.Start(server))
	t.Cleanup(func() { server.Process.Kill(); server.Wait() })
	netnstest.Await(t, "the FTP server", func() error {
		if out := w.Server.Run(t, "ss -Htln sport = :21"); out == "" {
			return errors.New("it does not listen yet: " + output.String())
		}
		return nil
	})
	before := w.Packets(t)
	out, err := w.Alice.Try(`curl -sS --max-time 60 -P 10.1.0.10 -o $dir/got ftp://192.0.2.2/file`, "dir="+dir)
	if err != nil {
		t.Fatalf("curl: %v\n%s\n%s", err, out, output.String())
	}
	if got, err := os.Stat(dir + "/got"); err != nil || got.Size() != bytes {
		t.Errorf("received %v, %v", got, err)
	}
	n := w.Packets(t)
	if cached, stack := n["forwarded"]-before["forwarded"], n["stack"]-before["stack"]; cached < 5*stack {
		t.Errorf("%d packets by the cache, %d by the stack", cached, stack)
	}
}

// TestSIP: the kernel's helper translates the addresses in a call's messages, and the call's sound passes and is
// cached. Long: the steps of one run, each of which needs the state that the one before left.
func TestSIP(t *testing.T) {
	t.Parallel()
	w := newHelped(t)
	space := func(s *netnstest.Space, addr netip.Addr, port uint16) (c *net.UDPConn) {
		t.Helper()
		var err error
		s.Do(func() { c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, port))) })
		must(t, err)
		t.Cleanup(func() { c.Close() })
		must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		return c
	}
	phone, sound := space(w.Alice.Space, w.Alice.Addr, 5060), space(w.Alice.Space, w.Alice.Addr, 4000)
	exchange, other := space(w.Server, datapathtest.Server, 5060), space(w.Server, datapathtest.Server, 6000)
	say := func(from *net.UDPConn, to netip.AddrPort, line, contact, media string) {
		t.Helper()
		body := "v=0\r\no=- 1 1 IN IP4 " + contact + "\r\ns=-\r\nc=IN IP4 " + contact + "\r\nt=0 0\r\nm=audio " + media +
			" RTP/AVP 0\r\n"
		_, err := from.WriteToUDPAddrPort(fmt.Appendf(nil,
			"%s\r\nVia: SIP/2.0/UDP 10.1.0.10:5060;branch=z9hG4bK1\r\nFrom: <sip:a@10.1.0.10>;tag=1\r\nTo: "+
				"<sip:b@192.0.2.2>;tag=2\r\nCall-ID: 1@10.1.0.10\r\nCSeq: 1 INVITE\r\nContact: <sip:x@%s:5060>\r\nContent-Type: "+
				"application/sdp\r\nContent-Length: %d\r\n\r\n%s", line, contact, len(body), body), to)
		must(t, err)
	}
	hear := func(c *net.UDPConn) (string, netip.AddrPort) {
		t.Helper()
		b := make([]byte, 4000)
		n, from, err := c.ReadFromUDPAddrPort(b)
		must(t, err)
		return string(b[:n]), from
	}
	say(phone, netip.MustParseAddrPort("192.0.2.2:5060"), "INVITE sip:b@192.0.2.2 SIP/2.0", "10.1.0.10", "4000")
	invite, from := hear(exchange)
	place := regexp.MustCompile(`c=IN IP4 (\S+)[\s\S]*m=audio (\d+)`).FindStringSubmatch(invite)
	if len(place) != 3 || place[1] != "192.0.2.1" {
		t.Fatalf("the exchange is asked\n%s", invite)
	}
	say(exchange, from, "SIP/2.0 200 OK", "192.0.2.2", "6000")
	if answer, _ := hear(phone); !strings.Contains(answer, "m=audio 6000") {
		t.Fatalf("the phone is answered\n%s", answer)
	}
	outside := netip.MustParseAddrPort(place[1] + ":" + place[2])
	_, err := other.WriteToUDPAddrPort([]byte("hello"), outside) // the helper does not expect it from this address
	must(t, err)
	_, from = hear(sound)
	netnstest.Await(t, "the sound in the cache", func() error {
		before := w.Packets(t)["forwarded"]
		for range 10 {
			if _, err := sound.WriteToUDPAddrPort([]byte("up"), from); err != nil {
				return err
			}
			if _, address := hear(other); address != outside {
				t.Fatalf("the other side hears %v, not %v", address, outside)
			}
			if _, err := other.WriteToUDPAddrPort([]byte("down"), outside); err != nil {
				return err
			}
			hear(sound)
		}
		if n := w.Packets(t)["forwarded"] - before; n != 20 {
			return fmt.Errorf("%d of 20 packets are forwarded by it", n)
		}
		return nil
	})
}
