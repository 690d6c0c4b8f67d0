package dut

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestManualListsTunnels: the manual's table has each tunnel with its MTU and what it puts around packets.
func TestManualListsTunnels(t *testing.T) {
	manual, err := os.ReadFile("../../docs/tunnels.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tunnels() {
		d := newTunnel(name, 0)
		row := fmt.Sprintf("| `%s` | %s | %d | %s |", name, d.about, d.MTU(), d.encapsulation)
		if !strings.Contains(string(manual), row+"\n") {
			t.Errorf("docs/tunnels.md lacks\n%s", row)
		}
	}
}
