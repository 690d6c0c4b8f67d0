package datapath

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"
)

// SocketHolder returns the process that has one of some sockets, by their names in /proc/PID/fd ("socket:[INODE]"); 0:
// that cannot be known.
func SocketHolder(sockets map[string]bool) (pid int, name string) {
	if len(sockets) == 0 {
		return 0, ""
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || !sockets[target] {
			continue
		}
		process := filepath.Dir(filepath.Dir(fd))
		comm, _ := os.ReadFile(filepath.Join(process, "comm"))
		pid, _ = strconv.Atoi(filepath.Base(process))
		return pid, strings.TrimSpace(string(comm))
	}
	return 0, ""
}

// flockHolder returns the process that has locked a file (flock(2)); 0: that cannot be known.
func flockHolder(file fs.FileInfo) int {
	stat, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	const kind, pid, inode = 1, 4, 5 // fields of a line: "1: FLOCK ADVISORY WRITE 4711 08:01:131 0 EOF" (proc_locks(5))
	locked := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	text, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > inode && f[kind] == "FLOCK" && f[inode] == locked {
			id, _ := strconv.Atoi(f[pid])
			return id
		}
	}
	return 0
}

// maxCommand is how many characters of a command a message shows.
const maxCommand = 200

// describe returns the number and command of a process in brackets, for messages: " (process 4711, gatewayd run)".
// "": it is not known.
func describe(pid int) string {
	if pid <= 0 {
		return ""
	}
	arguments, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	command := strings.Map(func(r rune) rune {
		switch {
		case r == 0:
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return '?'
	}, strings.TrimRight(string(arguments), "\x00"))
	if command == "" {
		return fmt.Sprintf(" (process %d)", pid)
	}
	return fmt.Sprintf(" (process %d, %.*s)", pid, maxCommand, command)
}
