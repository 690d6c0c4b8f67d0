package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gateweigh/gateweigh/gateway"
	"github.com/gateweigh/gateweigh/gateway/config"
)

// capabilities returns the capabilities that the daemon keeps once it serves: it changes rules, links, settings and
// programs, and opens DHCP's sockets again. gateway.Capabilities has those of the data path. CAP_PERFMON is not kept,
// because only loading programs needs it, at the start.
func capabilities(cfg *config.Config) []int {
	keep := []int{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE}
	return append(keep, gateway.Capabilities(cfg)...)
}

// confine gives up all capabilities except those in keep, for every thread and for good. Programs that the process
// executes get the kept ones too.
func confine(keep []int) error {
	if err := allThreads("setting no_new_privs", unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return err
	}
	for c := 0; ; c++ {
		bound, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break // after the last capability
		}
		if bound == 0 || slices.Contains(keep, c) {
			continue
		}
		err = allThreads("giving up capabilities", unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0)
		if errors.Is(err, unix.EPERM) {
			break // CAP_SETPCAP is missing; with no_new_privs the permitted set, which limit reduces, is a bound as well
		}
		if err != nil {
			return err
		}
	}
	return limit(keep)
}

// limit reduces the permitted, effective, inheritable and ambient sets to the capabilities in keep that are permitted.
func limit(keep []int) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // capabilities 0 to 31, and 32 to 63
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	var kept [2]uint32
	for _, c := range keep {
		kept[c/32] |= 1 << (c % 32)
	}
	for i := range sets {
		sets[i].Permitted &= kept[i]
		sets[i].Effective, sets[i].Inheritable = sets[i].Permitted, sets[i].Permitted
	}
	err := allThreads(
		"giving up capabilities", unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets)), 0)
	if err != nil {
		return err
	}
	for _, c := range keep {
		if sets[c/32].Permitted&(1<<(c%32)) == 0 {
			continue
		}
		if err := allThreads(
			"handing on capabilities", unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c)); err != nil {
			return err
		}
	}
	return nil
}

// names has the capabilities' names, by number: those of capabilities(7) without CAP_, in small letters.
var names = strings.Fields(
	`chown dac_override dac_read_search fowner fsetid kill setgid setuid setpcap linux_immutable net_bind_service
net_broadcast net_admin net_raw ipc_lock ipc_owner sys_module sys_rawio sys_chroot sys_ptrace sys_pacct sys_admin sys_boot sys_nice
sys_resource sys_time sys_tty_config mknod lease audit_write audit_control setfcap mac_override mac_admin syslog wake_alarm block_suspend
audit_read perfmon bpf checkpoint_restore`)

// heldCapabilities returns the names of the capabilities that this process has.
func heldCapabilities() string {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return "unknown: " + err.Error()
	}
	var all []string
	for c, name := range names {
		if sets[c/32].Permitted&(1<<(c%32)) != 0 {
			all = append(all, name)
		}
	}
	if len(all) == len(names) {
		return "all"
	}
	return strings.Join(all, " ")
}

// allThreads makes a system call on every thread, because each thread has its own capabilities. doing names the action
// in errors.
//
//go:uintptrescapes
func allThreads(doing string, call, a, b, c uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(call, a, b, c, 0, 0, 0)
	if errno == syscall.ENOTSUP {
		return fmt.Errorf("%s: this gatewayd was built with cgo: build it with make, or CGO_ENABLED=0", doing)
	}
	if errno != 0 {
		return fmt.Errorf("%s: %w", doing, errno)
	}
	return nil
}

// dropPrivileges confines the daemon once it serves, and warns about files that it can no longer read or write. Where
// that fails the daemon serves nevertheless.
func dropPrivileges(cfg *config.Config, log *slog.Logger) {
	if err := confine(capabilities(cfg)); err != nil {
		log.Warn("giving up capabilities did not go to its end", "kept", heldCapabilities(), "err", err)
		return
	}
	if err := readAgain(cfg); err != nil {
		log.Warn("with the capabilities that are left the daemon cannot read its files again: they must belong to root",
			"err", err)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, cfg.StateDir, unix.W_OK, unix.AT_EACCESS); err != nil {
		log.Warn("with the capabilities that are left the daemon cannot write to state_dir: it must belong to root", "folder",
			cfg.StateDir, "err", err)
	}
}

// readAgain reads a configuration and the files that it names, as a running daemon does after a change.
func readAgain(cfg *config.Config) error {
	_, err := config.Load(cfg.File)
	return errors.Join(err, gateway.Refused(gateway.CheckFiles(cfg)))
}

// checkRights finds files that this process reads, but the daemon could not read again once it serves: it gives up the
// right to what is not root's. A configuration that comes from a pipe is not checked.
func checkRights(cfg *config.Config) (all []gateway.Finding) {
	if info, err := os.Stat(cfg.File); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	var bad error
	if err := whileConfined(capabilities(cfg), func() { bad = readAgain(cfg) }); err != nil || bad == nil {
		return nil
	}
	for line := range strings.SplitSeq(bad.Error(), "\n") {
		all = append(all, gateway.Finding{Weight: gateway.Warning, Text: "once it serves, gatewayd reads only what root's " +
			"permissions allow, and could not read this again after a change: " + line + ": see that the file and the folders " +
			"above belong to root, who may read them (chown root FILE; chmod u+r FILE)"})
	}
	return all
}

// whileConfined calls f on a thread that has no capabilities in effect except those in keep.
func whileConfined(keep []int, f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var sets [2]unix.CapUserData // capabilities 0 to 31, and 32 to 63
		err := unix.Capget(&header, &sets[0])
		var kept [2]uint32
		for _, c := range keep {
			kept[c/32] |= 1 << (c % 32)
		}
		for i := range sets {
			sets[i].Effective &= kept[i]
		}
		if err == nil {
			err = unix.Capset(&header, &sets[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}
