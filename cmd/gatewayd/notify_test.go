// Helper of tests of the daemon under a service manager, such as systemd.

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// notified is the test program's main function when a test runs it as a service manager like systemd: notified FILE
// PROGRAM [ARGUMENT...]. It runs PROGRAM with NOTIFY_SOCKET set (sd_notify(3)) and writes each notification as a line
// to FILE: "READY=1", for instance. It writes PROGRAM's process id to FILE.pid and exits with PROGRAM's status.
func notified() {
	states, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	address := &net.UnixAddr{Name: fmt.Sprintf("@gatewayd-test-%d", os.Getpid()), Net: "unixgram"}
	l, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		panic(err)
	}
	const end = "the program has ended" // sent last, by this process itself
	readingEnded := make(chan struct{})
	go func() {
		defer close(readingEnded)
		buf := make([]byte, 1000)
		for {
			n, err := l.Read(buf)
			if err != nil || string(buf[:n]) == end {
				return
			}
			fmt.Fprintln(states, strings.ReplaceAll(string(buf[:n]), "\n", " "))
		}
	}()
	cmd := exec.Command(os.Args[2], os.Args[3:]...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+address.Name)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// A test script that fails kills this process alone. The program must end with it: otherwise the test would wait
	// for ever, because the program holds standard output open. The kernel sends the signal when the thread that
	// started the program ends, so this goroutine keeps its thread.
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	if err := os.WriteFile(os.Args[1]+".pid", []byte(fmt.Sprint(cmd.Process.Pid)), 0o600); err != nil {
		panic(err)
	}
	cmd.Wait()
	if self, err := net.DialUnix("unixgram", nil, address); err == nil {
		if _, err := self.Write([]byte(end)); err == nil {
			<-readingEnded
		}
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
