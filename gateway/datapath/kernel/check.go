package kernel

import "golang.org/x/sys/unix"

// hasPPPoE tries the kernel's PPPoE, which loads its modules where it has any.
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

// filesSpare is how many open files the daemon needs beside its sessions' ones, amply.
const filesSpare = 256

// filesFor is how many files a process must be allowed to open (RLIMIT_NOFILE) for so many sessions: the daemon, and
// its keeper, which needs fewer.
func filesFor(sessions int) uint64 { return filesKept*uint64(sessions) + filesSpare }

// sessionsWith is how many sessions so many files are enough for.
func sessionsWith(files uint64) int { return int((max(files, filesSpare) - filesSpare) / filesKept) }
