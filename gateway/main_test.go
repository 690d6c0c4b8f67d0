package gateway

import (
	"testing"

	"github.com/gateweigh/gateweigh/gateway/netnstest"
)

func TestMain(m *testing.M) {
	netnstest.Main(m, "mount -t tmpfs none /run; mount -t bpf bpf /sys/fs/bpf; ip link set lo up; sysctl -qw net.ipv4.ip_forward=1")
}
