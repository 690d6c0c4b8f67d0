package tun

import (
	"runtime"

	"github.com/gateweigh/gateweigh/gateway/datapath/compared/admission"
)

// studied is the mode that study 1 describes: one thread waits for the packet socket and the device, and moves one
// packet at a time, with one system call to read and one to write it.
type studied struct {
	*worker
	waiting
	buf []byte
}

// close closes the thread's descriptors.
func (s *studied) close() {
	s.worker.close()
	s.waiting.close()
}

// openStudied opens the socket and the device.
func openStudied(s *shared, judge *admission.Judge) (_ *studied, err error) {
	socket, err := openSocket()
	if err != nil {
		return nil, err
	}
	m := &studied{worker: s.worker(judge, socket, -1, false), buf: make([]byte, bufferLen)}
	fds, err := openDevice(s.cfg.Device, s.net, s.lan.MTU, 1, 0)
	if err == nil {
		m.device = fds[0]
		err = disableAggregation(m.device)
	}
	if err == nil {
		err = listen(socket, s.lan)
	}
	if err == nil {
		m.waiting, err = newWaiting(s.stop.fd, m.socket, m.device)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// run moves packets until the waker wakes.
func (s *studied) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		ready := s.wait()
		if ready&readyStop != 0 {
			return
		}
		if ready&readyLAN != 0 {
			s.fromLAN()
		}
		if ready&readyDevice != 0 {
			s.fromKernel()
		}
	}
}

// fromLAN takes one frame.
func (s *studied) fromLAN() {
	if n := read(s.socket, s.buf); n > frameStart {
		s.frameIn(s.buf[frameStart:n], readVirtio(s.buf), admission.Now())
	}
}

// fromKernel takes one packet.
func (s *studied) fromKernel() {
	if n := read(s.device, s.buf[packetStart:]); n > 0 {
		s.packetOut(s.buf[:packetStart+n], admission.Now())
	}
}
