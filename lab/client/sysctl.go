package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Sysctls hold what would otherwise change by itself between cells, below
// /proc/sys/net of every namespace with an endpoint: a stream that pauses between
// bursts keeps its window (RFC 2861 would halve it).
var Sysctls = map[string]string{
	"ipv4/tcp_slow_start_after_idle": "0",
	"ipv4/tcp_no_metrics_save":       "1",
	"ipv4/tcp_autocorking":           "0",
	"ipv6/conf/all/disable_ipv6":     "1",
	"ipv6/conf/default/disable_ipv6": "1",
}

// SetSysctls sets values below /proc/sys/net in the namespace of the calling thread.
func SetSysctls(values map[string]string) error {
	for key, value := range values {
		err := os.WriteFile(filepath.Join("/proc/sys/net", key), []byte(value), 0)
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(key, "ipv6/") {
			continue // a kernel without IPv6 is as good as one that has it switched off
		}
		if err != nil {
			return fmt.Errorf("setting net/%s = %s: %w", key, value, err)
		}
	}
	return nil
}
