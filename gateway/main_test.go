package gateway

import (
	"os"
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) {
	if os.Getenv(internetEnv) != "" {
		serveInternet()
	}
	if secret := os.Getenv(elsewhereEnv); secret != "" {
		serveElsewhere(secret)
	}
	if link := os.Getenv(framesEnv); link != "" {
		sendFrames(link)
	}
	netnstest.Main(m,
		"mount -t tmpfs none /run; mount -t bpf bpf /sys/fs/bpf; ip link set lo up; sysctl -qw net.ipv4.ip_forward=1")
}
