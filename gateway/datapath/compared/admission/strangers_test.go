// Tests of budgets of clients that are not admitted. newTable makes a table with alice, who is admitted, bob, who is
// not, and a garden; tcp and udp make a packet from alice to a server, changed by edits such as from, to and segments
// (judge_test.go).

package admission

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gateweigh/gateweigh/gateway/datapath"
)

// TestGardenBudgetPerDevice: connections to the garden that a device opens from one address after the other fill little
// of the kernel's table of connections (262,144 by default), even if the kernel keeps each for its default of 5 days.
func TestGardenBudgetPerDevice(t *testing.T) {
	const (
		days  = 5
		table = 262_144
	)
	clients, judge := newTable(t)
	must(t, clients.Open(netip.PrefixFrom(server, 32), time.Time{}))
	opened, asked := 0, 0 // connections, and datagrams, that passed
	addr, now, port := bob, Now(), uint16(0)
	for end := now + days*24*time.Hour.Nanoseconds(); now < end; addr = addr.Next() {
		if !lan.Contains(addr.Next()) {
			addr = bob
		}
		must(t, clients.Set(datapath.Client{Addrs: []netip.Addr{addr}, MAC: bobMAC}))
		segment, datagram := tcp(443, from(addr, bobMAC)).bytes(), udp(443, from(addr, bobMAC)).bytes()
		for range 60 {
			now += 5 * time.Second.Nanoseconds()
			port++
			binary.BigEndian.PutUint16(segment[20:], port)
			binary.BigEndian.PutUint16(datagram[20:], port)
			if judge.JudgeUp(bobMAC, Packet{Bytes: segment}, now) == Forward {
				opened++
			}
			if judge.JudgeUp(bobMAC, Packet{Bytes: datagram}, now) == Forward {
				asked++
			}
		}
		must(t, clients.Remove(datapath.IDOf(addr))) // as the gateway does after 5 minutes where others lease addresses
	}
	if b := datapath.Budgets[datapath.LongTracked]; opened > table/20 || opened < b.AtOnce {
		t.Errorf("%d connections in %d days", opened, days)
	}
	if want := days * 24 * 60 * 60 / 5; asked != want {
		t.Errorf("%d of %d datagrams passed, which the kernel remembers for 2 minutes at most", asked, want)
	}
}

// TestBudgetsOfADevice: the addresses of a device share one budget, and another device has its own.
func TestBudgetsOfADevice(t *testing.T) {
	table, judge := newTable(t)
	second := bob.Next().Next()
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{second}, MAC: bobMAC}))
	must(t, table.Set(datapath.Client{Addrs: []netip.Addr{alice}, MAC: aliceMAC}))
	now, refused := Now(), 0
	for range 2 * datapath.Budgets[datapath.Refusal].AtOnce {
		for _, a := range []netip.Addr{bob, second} {
			if judge.JudgeUp(bobMAC, tcp(443, from(a, bobMAC)).packet(), now) == Reject {
				refused++
			}
		}
	}
	if want := datapath.Budgets[datapath.Refusal].AtOnce; refused != want {
		t.Errorf("%d refusals of a device with two addresses, want %d", refused, want)
	}
	if v := judge.JudgeUp(aliceMAC, tcp(443).packet(), now); v != Reject {
		t.Errorf("verdict %d on another device's packet", v)
	}
}
