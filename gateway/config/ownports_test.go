// Tests that ports of the gateway itself are not forwarded. withRADIUS is a good file of eight lines (errors_test.go).

package config

import (
	"strings"
	"testing"
)

// TestForwardOfOwnPortRefused: ports at which gatewayd itself is reached from outside cannot be forwarded. Ports at
// which it listens only on loopback or the LAN can.
func TestForwardOfOwnPortRefused(t *testing.T) {
	forward := func(proto, ports string) string {
		return "[[nat.forward]]\nproto = \"" + proto + "\"\nports = " + ports + "\nto = \"10.1.0.5\"\n"
	}
	for text, want := range map[string]string{
		"ident.enabled = true\nident.method = \"masquerade\"\n" +
			forward("tcp", `"100-9999"`): "113 is where gatewayd answers (ident.enabled)",
		"metrics.listen = \"192.0.2.1:9464\"\n" +
			forward("tcp", "9464"): "9464 is where gatewayd answers (metrics.listen)",
		"metrics.listen = \"192.0.2.1:9464\"\n" + forward("udp", "9464"): "",
		"metrics.listen = \"127.0.0.1:9464\"\n" + forward("tcp", "9464"): "",
		"radius.dynamic = \"192.0.2.1:3799\"\n" +
			forward("udp", "3799"): "3799 is where gatewayd answers (radius.dynamic)",
	} {
		_, err := Parse("x.toml", []byte(withRADIUS+"nat.masquerade = true\n"+text))
		if want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), ": nat.forward.ports: "+want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
