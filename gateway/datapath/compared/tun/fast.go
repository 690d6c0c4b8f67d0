package tun

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway/datapath"
	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
)

// fast is a thread of the fast mode. Frames arrive in a ring; those that are waiting are judged together, and each
// flow's packets are sent together. A packet that is not simply forwarded goes to the worker.
type fast struct {
	*worker
	ring    *ring
	up      coalescer // to the kernel
	down    coalescer // to the LAN
	buffers [][]byte  // buffers for a batch of packets from the device's queue
	egress  *egress   // source of packets for clients; nil: the queue only
	queue   []byte    // a frame too long for the ring

	checked int64 // when the ring was last checked
}

// batch is how many packets are taken at once from each side: as many as the kernel polls from an interface.
const batch = 64

// maxThreads bounds the memory of rings and batches: 9 MiB each. device.bpf.c has as many bells.
const maxThreads = 16

// openFast opens a ring and a queue of the device for each CPU this process may use.
func openFast(s *shared, judge func() *admission.Judge) (all []*fast, err error) {
	defer func() {
		if err != nil {
			for _, f := range all {
				f.close()
			}
			all = nil
		}
	}()
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	queues, err := openDevice(s.cfg.Device, s.net, s.lan.MTU, min(max(1, cpus.Count()), maxThreads), unix.IFF_VNET_HDR)
	if err != nil {
		return nil, err
	}
	udp, err := offload(queues[0])
	for _, q := range queues {
		all = append(all, &fast{worker: s.worker(judge(), -1, q, true)})
	}
	if err != nil {
		return all, err
	}
	if !udp {
		s.cfg.Log.Info("UDP packets that a sender on a virtual interface hands over as one are lost: this kernel cannot "+
			"describe them to programs (Linux 6.2)", "lan", s.lan.Name)
	}
	for i, f := range all {
		if err := f.open(len(all) > 1, udp); err != nil {
			return all, fmt.Errorf("thread %d of %d: %w", i+1, len(all), err)
		}
	}
	egresses, err := openEgress(s.cfg.Device, queues)
	if err != nil {
		s.cfg.Log.Info("packets for clients are read one by one, for this kernel cannot hand over many at a time", "device",
			s.cfg.Device, "err", err)
	}
	for i, e := range egresses {
		all[i].egress = e
	}
	return all, nil
}

// offload has the device deliver aggregated packets, with checksums left for later. udp reports whether this kernel
// aggregates UDP as well (6.2).
func offload(fd int) (udp bool, err error) {
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, virtioLen); err != nil {
		return false, fmt.Errorf("setting the header of the TUN device's packets: %w", err)
	}
	const tcp = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO_ECN
	if unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp|unix.TUN_F_USO4|unix.TUN_F_USO6) == nil {
		return true, nil
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tcp); err != nil {
		return false, fmt.Errorf("having the TUN device aggregate: %w", err)
	}
	return false, nil
}

// open opens the thread's packet socket. Threads share the LAN's frames by flow.
func (f *fast) open(shares, udp bool) (err error) {
	if f.socket, err = openSocket(); err != nil {
		return err
	}
	if f.ring, err = openRing(f.socket, f.lan.MTU); err != nil {
		return err
	}
	if err := listen(f.socket, f.lan); err != nil {
		return err
	}
	if shares {
		group := f.lan.Index & 0xffff
		if err := unix.SetsockoptInt(
			f.socket, unix.SOL_PACKET, unix.PACKET_FANOUT, group|unix.PACKET_FANOUT_HASH<<16); err != nil {
			return os.NewSyscallError("setsockopt PACKET_FANOUT", err)
		}
	}
	f.up = coalescer{fd: f.device, udp: udp}
	f.down = coalescer{fd: f.socket, udp: udp, headerBytes: ethernetLen, srcMAC: f.mac}
	f.queue = make([]byte, bufferLen)
	for range batch {
		f.buffers = append(f.buffers, make([]byte, bufferLen))
	}
	return nil
}

// close closes the thread's descriptors.
func (f *fast) close() {
	f.worker.close()
	if f.ring != nil {
		f.ring.close()
		f.ring = nil
	}
	if f.egress != nil {
		f.egress.close()
		f.egress = nil
	}
}

// run moves packets until the waker wakes. The thread ends with it.
func (f *fast) run() {
	runtime.LockOSThread()
	// With poll, not epoll: epoll's callback in the kernel runs for each packet, also while no thread waits.
	fds := []unix.PollFd{{Fd: int32(f.stop.fd), Events: unix.POLLIN}, {Fd: int32(f.socket), Events: unix.POLLIN}, {
		Fd: int32(f.device), Events: unix.POLLIN}}
	for !f.stop.isWoken.Load() {
		now := admission.Now()
		n := f.fromLAN(now)
		queued := fds[2].Revents != 0
		fds[2].Revents = 0
		if now > f.checked+idle.Nanoseconds() {
			f.check(now)
			queued = queued || f.egress != nil && f.egress.givenUp > 0
		}
		n += f.fromKernel(queued, now)
		if n > 0 || f.egress != nil && !f.egress.arm() {
			continue
		}
		poll(fds)
		if fds[1].Revents&unix.POLLERR != 0 {
			// For example, the interface went down. The error is reported once, to whoever reads it.
			unix.GetsockoptInt(f.socket, unix.SOL_SOCKET, unix.SO_ERROR)
		}
	}
}

// check replaces the socket's ring if the ring is stuck.
func (f *fast) check(now int64) {
	f.checked = now
	if !f.ring.isStuck(f.socket) {
		return
	}
	f.cfg.Log.Warn("the receive ring is stuck; making another one", "lan", f.lan.Name)
	if err := f.ring.renew(f.socket, f.lan.MTU); err != nil {
		f.failed.set(err)
	}
}

// fromLAN takes a batch of frames and returns their number.
func (f *fast) fromLAN(now int64) int {
	n := 0
	for ; n < batch; n++ {
		frame, queued := f.ring.take()
		if frame == nil {
			break
		}
		if !queued {
			f.frame(frame, now)
			continue
		}
		f.takeLongFrame(now)
	}
	if n > 0 {
		f.up.flush()
		f.ring.give()
		f.report(&f.up)
	}
	return n
}

// takeLongFrame takes a frame that was too long for the ring.
func (f *fast) takeLongFrame(now int64) {
	n := read(f.socket, f.queue)
	if n < 0 { // an error of the interface was reported instead
		n = read(f.socket, f.queue)
	}
	if n > frameStart {
		f.frame(f.queue[:n], now)
		f.up.flush() // the next one uses the same buffer
	}
}

// frame takes a frame from the LAN with a virtio header before it.
func (f *fast) frame(frame []byte, now int64) {
	if len(frame) < packetStart+ipLen || frame[frameStart+12] != 8 || frame[frameStart+13] != 0 {
		f.frameIn(frame[frameStart:], readVirtio(frame), now)
		return
	}
	ip, ok := ipv4(frame[packetStart:])
	if !ok {
		f.judge.Count(admission.Malformed, 1)
		return
	}
	v := readVirtio(frame)
	v.sumStart -= min(v.sumStart, ethernetLen)
	v.headers -= min(v.headers, ethernetLen)
	mac, toMany := datapath.MAC(frame[frameStart+6:frameStart+12]), frame[frameStart]&1 != 0
	verdict := f.judge.JudgeUp(mac, admission.Packet{Bytes: ip, Segments: v.segments(ip), ToMany: toMany}, now)
	switch {
	case verdict == admission.Forward && !f.judge.IsClientAddr(destOf(ip)):
		f.up.add(ip, v, datapath.MAC{})
	case verdict == admission.Local && toMany && f.isElsewhere(destOf(ip)):
	case verdict == admission.Unknown:
		f.carryOut(verdict, mac, ip, now)
	case verdict != admission.Drop:
		settle(ip, v, f.scratch, func(ip []byte) { f.carryOut(verdict, mac, ip, now) })
	}
}

// fromKernel takes a batch of packets for clients and returns their number. queued means that the device's queue is
// known to have a packet, or may have one that was given up.
func (f *fast) fromKernel(queued bool, now int64) int {
	n := 0
	if f.egress == nil {
		for n < batch && f.fromQueue(f.buffers[n], now) {
			n++
		}
	} else {
		if queued && f.egress.bellWord() == 0 {
			f.egress.givenUp = max(f.egress.givenUp, 1)
			n = f.leftOver(n, now)
			f.egress.givenUp = 0
		}
		n = f.fromRing(n, now)
	}
	if n == 0 {
		return 0
	}
	f.down.flush()
	if f.egress != nil {
		f.egress.give()
		f.down.unsent += f.egress.overflow()
	}
	f.report(&f.down)
	return n
}

// fromQueue takes a packet from the device's queue, if there is one. buffer holds the packet until the batch is
// flushed.
func (f *fast) fromQueue(buffer []byte, now int64) bool {
	got := read(f.device, buffer)
	if got < 0 {
		return false
	}
	// Packets other than IPv4 are not for clients, such as the kernel's IPv6 neighbour discovery.
	if ip, ok := ipv4(buffer[virtioLen:max(got, virtioLen)]); ok {
		f.packet(ip, readVirtio(buffer), now)
	}
	return true
}

// fromRing takes the rest of a batch that has n packets, and returns the new number.
func (f *fast) fromRing(n int, now int64) int {
	tries := f.egress.tries
	for n < batch {
		r, queued := f.egress.take()
		if r == nil && !queued {
			break
		}
		if queued || r.Len == 0 {
			n, tries = f.inTurn(n, tries, now)
			continue
		}
		n++
		if ip, ok := ipv4(r.Packet[:r.Len]); ok {
			f.packet(ip, virtio{flags: uint8(r.Flags), sumStart: r.SumStart, sumOffset: r.SumOffset}, now)
		}
	}
	return n
}

// inTurn takes from the queue the packet to which the ring or the bell refers, as the nth of a batch. It looks tries
// times, and gives up a packet that has not arrived then: the queue was full. It returns the new number of packets, and
// how often to look for the batch's next packet in the queue.
func (f *fast) inTurn(n, tries int, now int64) (int, int) {
	for range tries {
		if f.fromQueue(f.buffers[n], now) {
			return f.leftOver(n+1, now), tries
		}
	}
	f.egress.givenUp++
	return n + 1, 1
}

// leftOver takes packets that were given up but have arrived since, as the rest of a batch that has n packets. They are
// in the queue before the packet that inTurn looks for next.
func (f *fast) leftOver(n int, now int64) int {
	for ; f.egress.givenUp > 0 && n < batch && f.fromQueue(f.buffers[n], now); n++ {
		f.egress.givenUp--
	}
	return n
}

// packet takes a packet from the kernel; its memory is read-only.
func (f *fast) packet(ip []byte, v virtio, now int64) {
	verdict, mac := f.judge.JudgeDown(admission.Packet{Bytes: ip, Segments: v.segments(ip)}, now)
	switch {
	case verdict == admission.Drop:
	case verdict == admission.Local && f.redirects.sends(ip):
		f.splitPackets(ip, v, func(ip []byte) {
			f.redirects.fromPortal(ip, now)
			f.frameOut(mac, ip, now)
		})
	case f.cfg.PPPoE && f.onPPPoE(ip): // the length in PPPoE's header is that of one packet
		f.splitPackets(ip, v, func(ip []byte) { f.frameOut(mac, ip, now) })
	default:
		f.down.add(ip, v, mac)
	}
}

// splitPackets calls each with the whole packets in one from the kernel.
func (f *fast) splitPackets(ip []byte, v virtio, each func([]byte)) {
	settle(f.queue[:copy(f.queue, ip)], v, f.scratch, each)
}

// frameOut sends a whole packet to a client.
func (f *fast) frameOut(mac datapath.MAC, ip []byte, now int64) {
	frame := f.out[:packetStart+len(ip)]
	copy(frame[packetStart:], ip)
	f.send(mac, frame, now)
}

// onPPPoE reports whether a packet is for a client on PPPoE.
func (f *fast) onPPPoE(ip []byte) bool {
	session, _ := f.judge.PPPoE(destOf(ip))
	return session != 0
}

// report counts packets that found a full queue on their way out.
func (f *fast) report(c *coalescer) {
	if c.unsent > 0 {
		f.judge.Count(admission.Overflow, c.unsent)
		c.unsent = 0
	}
}

// segments is how many packets on the wire an aggregated packet stands for; 0 if it is not aggregated.
func (v virtio) segments(ip []byte) int {
	if v.gso == unix.VIRTIO_NET_HDR_GSO_NONE || v.size == 0 {
		return 0
	}
	headers := int(ip[0]&15) * 4
	if ip[9] == protocolUDP {
		headers += udpLen
	} else if tcp := transport(ip, tcpLen); tcp != nil {
		headers += int(tcp[12]>>4) * 4
	}
	return (len(ip) - headers + int(v.size) - 1) / int(v.size)
}
