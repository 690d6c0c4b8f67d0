package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// version is the version of the messages and of what a keeper does without an owner (Serving.Unowned). A keeper of
// another version is told to end; the verb end is the same in all versions.
const version = 4

// Verbs: an owner sends taking, put, drop and end. A keeper answers taking with holding for each item, and then done.
// It answers put with refused when it has no room.
const (
	taking  = "take" // begin to be the owner
	put     = "put"
	drop    = "drop"
	end     = "end"
	holding = "held"
	done    = "done"
	refused = "refused"
)

// message is one packet of the socket; descriptors are beside it (SCM_RIGHTS).
type message struct {
	Version int
	Verb    string
	Key     string          `json:",omitempty"`
	Data    json.RawMessage `json:",omitempty"`
	Until   time.Time       `json:",omitzero"`
}

const (
	messageMax = 64 << 10 // bytes
	filesMax   = 16       // in a message
)

// send sends a message with descriptors.
func send(conn *net.UnixConn, m message, files ...int) error {
	m.Version = version
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(roomTimeout)); err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(b, rights, nil)
	return err
}

// receive receives a message with its descriptors; wait 0: however long it takes. With errCut it returns a message
// without descriptors.
func receive(conn *net.UnixConn, wait time.Duration) (m message, files []int, err error) {
	if wait > 0 {
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return m, nil, err
		}
	}
	b, rights := make([]byte, messageMax), make([]byte, unix.CmsgSpace(4*filesMax))
	n, on, flags, _, err := conn.ReadMsgUnix(b, rights)
	if err != nil {
		return m, nil, err
	}
	if n == 0 && on == 0 {
		return m, nil, io.EOF
	}
	controls, err := unix.ParseSocketControlMessage(rights[:on])
	for _, c := range controls {
		some, e := unix.ParseUnixRights(&c)
		files, err = append(files, some...), errors.Join(err, e)
	}
	if err == nil {
		err = json.Unmarshal(b[:n], &m)
	}
	if flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		err = errCut
	}
	if err != nil {
		closeAll(files)
		return m, nil, fmt.Errorf("reading a message: %w", err)
	}
	return m, files, nil
}

// errCut is a message whose descriptors this process has no room for.
var errCut = errors.New("a message was cut short (RLIMIT_NOFILE)")

func closeAll(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}

// checkPeer checks that a process of this user is at the other end.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	e := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(e, err); err != nil {
		return os.NewSyscallError("getsockopt SO_PEERCRED", err)
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: of user %d", ErrForeign, peer.Uid)
	}
	return nil
}
