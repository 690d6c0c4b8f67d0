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

// notified runs a program like a service manager, and writes its notifications to a file,
// one state a line: notified FILE PROGRAM [ARGUMENT...]. The process id is written to
// FILE.pid.
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
	read := make(chan struct{})
	go func() {
		defer close(read)
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
	// A script that fails kills this process, and would wait for ever for the end of what the program prints.
	runtime.LockOSThread() // whose end the kernel takes for this process's
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
			<-read
		}
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
