package gateway

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestMain runs the tests in network and mount namespaces of their own, which end
// with them: the machine's interfaces, pins and files are never touched.
func TestMain(m *testing.M) {
	const inside = "GATEWAY_TEST_INSIDE"
	if os.Getenv(internetEnv) != "" {
		serveInternet()
	}
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	const prepare = `mount -t tmpfs none /run && mount -t bpf bpf /sys/fs/bpf && ip link set lo up && sysctl -qw net.ipv4.ip_forward=1 && exec "$0" "$@"`
	argv := append([]string{"unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", prepare, os.Args[0]}, os.Args[1:]...)
	path, err := exec.LookPath(argv[0])
	if err == nil {
		err = syscall.Exec(path, argv, append(os.Environ(), inside+"=1"))
	}
	fmt.Fprintln(os.Stderr, "running inside namespaces of its own:", err)
	os.Exit(1)
}
