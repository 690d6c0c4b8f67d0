package softirq

import (
	"testing"

	"github.com/gateweigh/gateweigh/internal/netnstest"
)

func TestMain(m *testing.M) { netnstest.Main(m, "") }
