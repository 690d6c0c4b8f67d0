package kernel

import "golang.org/x/sys/unix"

// hasPPPoE returns an error if the kernel has no PPPoE. It opens a PPPoE socket and the PPP device, which loads the
// kernel's modules for them.
func hasPPPoE() error {
	fd, err := pppox()
	if err != nil {
		return err
	}
	unix.Close(fd)
	if fd, err = openDevice(); err != nil {
		return err
	}
	unix.Close(fd)
	return nil
}

// filesSpare is a generous bound of the files that the daemon opens in addition to those of its sessions.
const filesSpare = 256

// filesFor returns the limit of open files (RLIMIT_NOFILE) that the daemon needs for a number of sessions. It is also
// enough for the daemon's keeper, which opens fewer.
func filesFor(sessions int) uint64 { return filesKept*uint64(sessions) + filesSpare }

// sessionsWith returns the number of sessions for which a limit of open files is enough; see filesFor.
func sessionsWith(files uint64) int { return int((max(files, filesSpare) - filesSpare) / filesKept) }
