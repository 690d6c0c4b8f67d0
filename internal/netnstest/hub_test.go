package netnstest

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// TestHub: a frame over a veth has its sender's socket, and one over a hub has none, whichever way and whatever the
// order of the ports.
func TestHub(t *testing.T) {
	NeedTCX(t)
	near, far, hub := NewSpace(t), NewSpace(t), NewSpace(t)
	hub.Run(t, NoIPv6)
	near.Run(t, `ip link add direct0 type veth peer name direct1 netns $far; ip link add at0 type veth peer name near netns $hub
ip addr add 10.1.0.1/24 dev direct0; ip addr add 10.2.0.1/24 dev at0; ip link set direct0 up; ip link set at0 up`,
		fmt.Sprintf("far=%d", far.TID()), fmt.Sprintf("hub=%d", hub.TID()))
	far.Run(t, `ip link add at1 type veth peer name far netns $hub
ip addr add 10.1.0.2/24 dev direct1; ip addr add 10.2.0.2/24 dev at1; ip link set direct1 up; ip link set at1 up`,
		fmt.Sprintf("hub=%d", hub.TID()))
	hub.Run(t, Hub+"hub; plug near far")
	near.Run(t, Up+"up direct0 at0")
	far.Run(t, Up+"up direct1 at1")
	for _, c := range []struct {
		name, link, to string
		from, space    *Space
		found          bool
	}{
		{"veth", "direct1", "10.1.0.2", near, far, true},
		{"to the last port", "at1", "10.2.0.2", near, far, false},
		{"to the first port", "at0", "10.2.0.1", far, near, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := countSockets(t, c.space, c.link)
			c.from.Run(t, "ping -c 3 -i 0.1 -W 5 "+c.to)
			if measured, baseline := seen(); (measured > 0) != c.found || (baseline > 0) == c.found {
				t.Errorf("%d packets came with a socket, %d without", measured, baseline)
			}
		})
	}
}

// countSockets attaches a program that counts a link's incoming IPv4 packets with and without a socket.
func countSockets(t *testing.T, s *Space, name string) func() (measured, baseline uint64) {
	const protocol, socket = 16, 168 // in struct __sk_buff
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counts.Close() })
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, protocol, asm.Word),
		asm.JNE.Imm(asm.R2, 0x0008, "pass"), // IPv4, in network order on a little-endian machine
		asm.LoadMem(asm.R2, asm.R1, socket, asm.DWord),
		asm.Mov.Imm(asm.R3, 0),
		asm.JEq.Imm(asm.R2, 0, "none"),
		asm.Mov.Imm(asm.R3, 1),
		asm.StoreMem(asm.RFP, -4, asm.R3, asm.Word).WithSymbol("none"),
		asm.LoadMapPtr(asm.R1, counts.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), // TCX_NEXT
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	var l link.Link
	s.Do(func() {
		var dev *net.Interface
		if dev, err = net.InterfaceByName(name); err == nil {
			l, err = link.AttachTCX(link.TCXOptions{Program: program, Interface: dev.Index, Attach: ebpf.AttachTCXIngress})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() (measured, baseline uint64) {
		if err := errors.Join(counts.Lookup(uint32(1), &measured), counts.Lookup(uint32(0), &baseline)); err != nil {
			t.Fatal(err)
		}
		return measured, baseline
	}
}
