package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// notifyManager sends a state to the service manager, as sd_notify(3) does. Without a service manager it does nothing.
func notifyManager(log *slog.Logger, state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	// A leading "@" means an abstract socket, to Go's net package as well.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(state))
		conn.Close()
	}
	if err != nil {
		log.Warn("telling the service manager", "state", state, "error", err)
	}
}

// monotonic returns the present time as the line that must follow RELOADING=1 (Type=notify-reload, systemd.service(5)).
func monotonic() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return ""
	}
	return fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000)
}
