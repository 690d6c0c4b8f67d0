package datapath

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

var (
	// ErrNotSupported is wrapped when this machine cannot run a data path; the message names what is missing.
	ErrNotSupported = errors.New("not supported by this machine")
	// ErrForeign is wrapped for an address that no client of the LAN can have.
	ErrForeign = errors.New("no client's address")
	// ErrTaken is wrapped for a network that another client or another route has.
	ErrTaken = errors.New("the network is another's")
	// ErrBusy is wrapped when another gateway has one of the interfaces.
	ErrBusy = errors.New("another gateway has the interface")
	// ErrInUse is wrapped when another gateway has one of the folders.
	ErrInUse = errors.New("another gateway has the folder")
)

// Locks are interfaces and folders locked against other gateways.
type Locks []io.Closer

// Claim is an interface that a gateway locks.
type Claim struct {
	Interface string
	// LAN is set if the gateway shares the interface with gateways of other LANs: the name of its own. "": it has the
	// interface alone.
	LAN string
}

// ExclusiveClaims claims interfaces that no other gateway may have.
func ExclusiveClaims(names ...string) (all []Claim) {
	for _, name := range names {
		all = append(all, Claim{Interface: name})
	}
	return all
}

// Sharing claims a LAN for one gateway alone, and a WAN for this gateway and others that share it.
func Sharing(lan, wan string) []Claim { return []Claim{{Interface: lan}, {Interface: wan, LAN: lan}} }

const lockPrefix = "@gatewayd/"

// socket is the name of the claim's lock.
func (c Claim) socket() string {
	if c.LAN == "" {
		return lockPrefix + c.Interface
	}
	return lockPrefix + c.Interface + ":" + c.LAN
}

// excludes reports whether an existing lock forbids the claim.
func (c Claim) excludes(socket string) bool {
	return socket == lockPrefix+c.Interface || c.LAN == "" && strings.HasPrefix(socket, c.socket()+":") ||
		socket == c.socket()
}

// Lock locks interfaces against other gateways in this network namespace until Close or the end of the process. It
// fails with ErrBusy if another gateway has one of them with any data path, unless both share it. Others' locks are
// listed in /proc, without which it fails.
func Lock(claims ...Claim) (held Locks, err error) {
	for _, c := range claims {
		l, err := net.Listen("unix", c.socket())
		if errors.Is(err, syscall.EADDRINUSE) {
			if err = c.checkLocks(""); err == nil { // it ended meanwhile
				err = c.busyError("")
			}
		} else if err != nil {
			err = fmt.Errorf("locking %s: %w", c.Interface, err)
		} else {
			held = append(held, l)
			err = c.checkLocks(c.socket()) // after locking: of two gateways at the same moment one finds the other at least
		}
		if err != nil {
			return nil, errors.Join(err, held.Close())
		}
	}
	return held, nil
}

// CheckClaims returns ErrBusy if a claim cannot be granted because a gateway, this process's included, has locked the
// interface.
func CheckClaims(claims ...Claim) (err error) {
	for _, c := range claims {
		err = errors.Join(err, c.checkLocks(""))
	}
	return err
}

// checkLocks returns ErrBusy if a lock other than ownSocket excludes the claim.
func (c Claim) checkLocks(ownSocket string) error {
	text, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return fmt.Errorf(
			"looking for other gateways at %s, which takes the /proc of this process (mount -t proc proc /proc): %w",
			c.Interface, err)
	}
	for line := range strings.Lines(string(text)) {
		if index := strings.Index(line, lockPrefix); index >= 0 {
			if socket := strings.TrimSpace(line[index:]); socket != ownSocket && c.excludes(socket) {
				return c.busyError(line)
			}
		}
	}
	return nil
}

// busyError is the error for a lock of another gateway, by its line in /proc/net/unix; "": that is not known.
func (c Claim) busyError(line string) error {
	const inode = 6 // field of "0000000000000000: 00000002 00000000 00010000 0001 01 21846 @gatewayd/eth1" (proc_net(5))
	pid := 0
	if f := strings.Fields(line); len(f) > inode {
		pid, _ = SocketHolder(map[string]bool{"socket:[" + f[inode] + "]": true})
	}
	return fmt.Errorf("%w %s%s: stop it first", ErrBusy, c.Interface, describe(pid))
}

// LockFolder locks an existing folder against a second gateway on this machine until it is closed, or the process ends.
// It fails with ErrInUse if another gateway has the folder.
func LockFolder(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("locking a folder: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		holder := ""
		if info, e := f.Stat(); e == nil {
			holder = describe(flockHolder(info))
		}
		err = fmt.Errorf("%w %s%s: stop it first, or give each gateway folders of its own", ErrInUse, dir, holder)
	case err != nil:
		err = fmt.Errorf("locking %s: %w", dir, err)
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}

// Close unlocks all.
func (held Locks) Close() error {
	var errs []error
	for _, l := range held {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
