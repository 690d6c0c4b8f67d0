package softirq

import (
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

// TestMain runs the tests in a network namespace of their own.
func TestMain(m *testing.M) { netnstest.Main(m, "") }
