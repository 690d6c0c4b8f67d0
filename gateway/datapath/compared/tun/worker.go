package tun

import (
	"encoding/binary"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/arp"
	"github.com/gateweigh/gateweigh/gateway/budget"
	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
)

// shared is what all threads of a data path use.
type shared struct {
	cfg       datapath.Setup
	net       datapath.Network
	lan       *net.Interface
	mac       [6]byte // the gateway's MAC address in the LAN
	gateway   uint32
	redirects *redirects
	errors    *budget.Clock
	stop      *waker
	failed    *failure
}

// worker handles one thread's packets one by one: both modes use it, the fast one for packets that are not simply
// forwarded. It belongs to one goroutine.
type worker struct {
	*shared
	judge     *admission.Judge
	socket    int  // packet socket of the LAN, to send on
	device    int  // queue of the TUN device
	hasVirtio bool // the device's packets have a virtio header

	out     []byte // a frame under construction
	scratch []byte // segments
	framed  []byte // a frame of a PPPoE session under construction; nil: there are no PPPoE sessions
}

func (s *shared) worker(judge *admission.Judge, socket, device int, hasVirtio bool) *worker {
	w := &worker{
		shared: s, judge: judge, socket: socket, device: device, hasVirtio: hasVirtio,
		out: make([]byte, bufferLen), scratch: make([]byte, bufferLen),
	}
	if s.cfg.PPPoE {
		w.framed = make([]byte, bufferLen+pppoeLen)
	}
	return w
}

// close closes the worker's descriptors.
func (w *worker) close() {
	for _, fd := range []*int{&w.socket, &w.device} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// frameIn handles a frame from the LAN, from its Ethernet header on; v describes the work left to be done. It may
// change the frame.
func (w *worker) frameIn(frame []byte, v virtio, now int64) {
	if len(frame) < ethernetLen {
		w.judge.Count(admission.Malformed, 1)
		return
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_IP:
		ip, ok := ipv4(frame[ethernetLen:])
		if !ok {
			w.judge.Count(admission.Malformed, 1)
			return
		}
		from := sender{datapath.MAC(frame[6:12]), 0, frame[0]&1 != 0}
		if v.isComplete() {
			w.packetIn(from, ip, now)
			return
		}
		v.sumStart -= min(v.sumStart, ethernetLen)
		if !settle(ip, v, w.scratch, func(ip []byte) { w.packetIn(from, ip, now) }) {
			w.judge.Count(admission.Malformed, 1)
		}
	case unix.ETH_P_ARP:
		if w.judge.ARP(datapath.MAC(frame[6:12]), frame[ethernetLen:], now) != admission.Local {
			return
		}
		if a := arp.Reply(frame, w.net.Gateway(), w.mac); a != nil {
			w.sendFrame(w.out[:frameStart+copy(w.out[frameStart:], a)])
		}
	case etherSession:
		w.pppoeIn(frame, v, now)
	case unix.ETH_P_IPV6:
		w.judge.Count(admission.IPv6, 1)
	case unix.ETH_P_8021Q, unix.ETH_P_8021AD: // a second tag
		w.judge.Count(admission.Malformed, 1)
	}
}

// sender is what the headers of a frame from the LAN, other than the packet's own, say about its sender.
type sender struct {
	mac     datapath.MAC
	session uint16 // PPPoE's; 0: none
	toMany  bool   // the frame's destination was broadcast or multicast
}

// packetIn handles a whole packet from the LAN.
func (w *worker) packetIn(from sender, ip []byte, now int64) {
	verdict := w.judge.JudgeUp(from.mac, admission.Packet{Bytes: ip, Session: from.session, ToMany: from.toMany}, now)
	if verdict == admission.Local && from.toMany && w.isElsewhere(destOf(ip)) {
		return // the kernel would forward it, because it does not know the frame's destination
	}
	w.carryOut(verdict, from.mac, ip, now)
}

// isElsewhere reports whether an address is a single host's, and not the gateway's.
func (s *shared) isElsewhere(addr uint32) bool {
	return addr != s.gateway && addr>>28 != 0xe && addr != 0xffffffff
}

// carryOut carries out the verdict on a whole packet from the LAN.
func (w *worker) carryOut(verdict admission.Verdict, mac datapath.MAC, ip []byte, now int64) {
	switch verdict {
	case admission.Forward:
		if w.judge.IsClientAddr(destOf(ip)) {
			w.passToClient(ip, now)
			return
		}
		w.toKernel(ip)
	case admission.Local:
		if isDHCP(ip) { // the server receives it by its own socket
			return
		}
		w.redirects.direct(ip)
		w.toKernel(ip)
	case admission.Portal:
		if w.redirects.toPortal(ip, now) {
			w.toKernel(ip)
		} else if tcp := transport(ip, tcpLen); tcp != nil && tcp[13]&flagRST == 0 {
			w.answer(mac, ip, now)
		}
	case admission.Reject:
		w.answer(mac, ip, now)
	case admission.Unknown:
		w.judge.Report(mac, ip)
	}
}

// isDHCP reports whether a packet is for a DHCP server.
func isDHCP(ip []byte) bool {
	udp := transport(ip, udpLen)
	return ip[9] == protocolUDP && udp != nil && binary.BigEndian.Uint16(udp[2:]) == portDHCPServer
}

// packetOut handles a whole packet from the kernel for a client. frame has space for the headers before it.
func (w *worker) packetOut(frame []byte, now int64) {
	ip, ok := ipv4(frame[packetStart:])
	if !ok { // for example the kernel's IPv6 neighbour discovery
		return
	}
	verdict, mac := w.judge.JudgeDown(admission.Packet{Bytes: ip}, now)
	if verdict == admission.Local {
		w.redirects.fromPortal(ip, now)
	} else if verdict != admission.Forward {
		return
	}
	w.send(mac, frame[:packetStart+len(ip)], now)
}

// passToClient passes a packet from one client to another.
func (w *worker) passToClient(ip []byte, now int64) {
	if ip[8] <= 1 {
		return
	}
	verdict, mac := w.judge.JudgeAcross(admission.Packet{Bytes: ip}, now)
	if verdict != admission.Forward {
		return
	}
	ip[8]--
	replace(ip[10:12], uint32(ip[8]+1)<<8, uint32(ip[8])<<8)
	frame := w.out[:packetStart+len(ip)]
	copy(frame[packetStart:], ip)
	w.send(mac, frame, now)
}

// answer tells a client that its packet was rejected.
func (w *worker) answer(mac datapath.MAC, ip []byte, now int64) {
	var a []byte
	switch {
	case ip[9] == protocolTCP && transport(ip, tcpLen) != nil:
		a = reset(w.out[packetStart:], ip)
	case w.errors.Spend(icmpErrors, now):
		a = prohibited(w.out[packetStart:], ip, w.gateway)
	default:
		return
	}
	w.send(mac, w.out[:packetStart+len(a)], now)
}

// send writes the headers before a whole packet and sends it to the LAN.
func (w *worker) send(mac datapath.MAC, frame []byte, now int64) {
	if w.cfg.PPPoE {
		if session, mtu := w.judge.PPPoE(destOf(frame[packetStart:])); session != 0 {
			w.toPPPoE(mac, session, mtu, frame[packetStart:], now)
			return
		}
	}
	w.header(mac, frame)
	w.sendFrame(frame)
}

// header writes the Ethernet header of a frame.
func (w *worker) header(mac datapath.MAC, frame []byte) {
	copy(frame[frameStart:], mac[:])
	copy(frame[frameStart+6:], w.mac[:])
	frame[frameStart+12], frame[frameStart+13] = 8, 0
}

// sendFrame sends a whole frame to the LAN. An error means a full queue or an interface that is down.
func (w *worker) sendFrame(frame []byte) {
	virtio{}.write(frame)
	if n := write(w.socket, frame); n < 0 {
		w.judge.Count(admission.Overflow, 1)
	}
}

// toKernel passes a whole packet to the kernel.
func (w *worker) toKernel(ip []byte) {
	var n int
	if w.hasVirtio {
		var none [virtioLen]byte
		n = writeTwo(w.device, none[:], ip)
	} else {
		n = write(w.device, ip)
	}
	if n < 0 {
		w.judge.Count(admission.Overflow, 1)
	}
}

// write and read are system calls on non-blocking descriptors that bypass Go's scheduler: they return at once, with -1
// for an error.
func write(fd int, b []byte) int {
	n, _, errno := unix.RawSyscall(
		unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return -1
	}
	return int(n)
}

func writeTwo(fd int, a, b []byte) int {
	vec := [2]unix.Iovec{iovec(a), iovec(b)}
	return writeAll(fd, vec[:])
}

func writeAll(fd int, vec []unix.Iovec) int {
	n, _, errno := unix.RawSyscall(
		unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(vec))), uintptr(len(vec)))
	if errno != 0 {
		return -1
	}
	return int(n)
}

func read(fd int, b []byte) int {
	n, _, errno := unix.RawSyscall(
		unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return -1
	}
	return int(n)
}
